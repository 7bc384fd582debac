"""Files that hold no plain text: web pages, office documents, archives of files, class labels.

They are not read, because a model would learn their markup. Such a file is recognized by its extension or its first
bytes. But a file with an extension of text (`.txt`, `.md`) is read even if it begins like a web page. Files that are
not read count as files of unknown type: the run ends with an error that says what to do with them; with --skip-unknown,
those that are found in folders or by globs are skipped instead.
"""

import re

from clearspan.common import compressions
from clearspan.pipelines.readers import formats
from clearspan.pipelines.readers.formats import FirstBytes
from clearspan.pipelines.suffixes import type_suffix

PAGES = "clearspan.plugins.web:Pages"
CONVERT = "convert it to plain text, e.g. with pandoc"
PAGE_SUFFIXES = (".html", ".htm", ".xhtml", ".shtml")
_PAGE = ("an HTML page", "read its main text with {pages} (extra web)")
_XML = ("XML", "convert it to text or JSON lines")
_SHEET = ("a spreadsheet", "export it as .csv")
_ARCHIVE = ("an archive of files", "unpack it")
_UNPACK = "unpack it first"
CLASS_LABEL = ("a class label", "leave it out")
BY_NAME: dict[str, tuple[str, str]] = {
    **dict.fromkeys(PAGE_SUFFIXES, _PAGE),
    **dict.fromkeys((".xml", ".svg", ".rss", ".atom", ".xsl", ".xslt"), _XML),
    **dict.fromkeys((".xls", ".xlsx", ".ods"), _SHEET),
    **dict.fromkeys((".zip", ".7z", ".rar"), _ARCHIVE),
    **{
        suffix: _ARCHIVE if name in compressions.ARCHIVES else (compressions.described(name), _UNPACK)
        for suffix, name in compressions.SUFFIXES.items()
    },
    ".cls": CLASS_LABEL,
    ".pdf": ("PDF", "convert it to plain text, e.g. with pdftotext"),
    ".rtf": ("rich text", CONVERT),
    ".epub": ("an e-book", CONVERT),
    **dict.fromkeys((".doc", ".docx", ".odt", ".ppt", ".pptx", ".odp"), ("an office document", CONVERT)),
}
"""Extension -> (type of the file, advice to the user, in which {pages} stands for the option that reads pages)."""
NO_TEXT = re.compile(rb"(?P<pdf>%PDF-)|(?P<rtf>\{\\rtf)|(?P<doc>\xd0\xcf\x11\xe0)")
"""Pattern of the first bytes of files that are never text, whatever their name."""
_MARKUP = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:(?P<html><!doctype\s+html|<html\b)|(?P<xml><\?xml\s))", re.IGNORECASE)
"""Pattern of the first bytes of a web page or of XML. It counts only if the file's extension is not one of text."""


NOTHING = FirstBytes(b"", is_whole=False)


def is_page(path: str, head: bytes) -> bool:
    """Return whether a file is an HTML page, by its extension or its first bytes."""
    markup = _MARKUP.match(head)
    return type_suffix(path) in PAGE_SUFFIXES or bool(markup and markup["html"])


def refusal(path: str, head: FirstBytes = NOTHING) -> str:
    """Return a message about a file that holds no plain text, such as "a spreadsheet: export it as .csv".

    Return "" if the file may be read.

    Args:
        head: the file's first bytes, decompressed; NOTHING (no bytes) to judge the file by its extension only.
    """
    suffix = type_suffix(path)
    packing = compressions.packing_of(head, suffix)
    by_name = BY_NAME.get(suffix) if packing or suffix not in compressions.SUFFIXES else None
    is_promised = any(suffix in known.suffixes and known.recognizes(head, path) for known in formats.texts())
    magic = NO_TEXT.match(head) or (None if is_promised else _MARKUP.match(head))
    by_content = BY_NAME.get(f".{magic.lastgroup}") if magic else None
    if packing:
        by_content = _ARCHIVE if packing in compressions.ARCHIVES else (compressions.described(packing), _UNPACK)
    what, mend = by_name or by_content or ("", "")
    pages = f"`format` {PAGES}"
    return f"{what}: {mend.format(pages=pages)}" if what else ""
