"""Detect the encoding of a text that is not UTF-8, from its bytes: `--encoding auto`.

    the whole text, in parts -> if it is UTF-8: None, since no conversion is needed
                             -> otherwise: its lines that are not ASCII -> charset-normalizer -> the likeliest candidate

The whole text is examined, so that all work units that read parts of one file find the same encoding. If the text
begins with a byte order mark of UTF-16 or UTF-32, its encoding is the one that the mark names. A text with at least as
many valid non-ASCII characters as invalid byte sequences counts as damaged UTF-8, for which the result is also None:
its records with invalid bytes are bad, and its other records are read as UTF-8. The candidates are only encodings that
occur in practice (WHATWG's encoding standard), because charset-normalizer knows many more, and a short text fits some
of them by chance.
"""

import codecs
import contextlib
import dataclasses
import re
import tempfile
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from typing import BinaryIO, cast

from clearspan.pipelines.records import Record

AUTO = "auto"
JUDGED_BYTES = 1 << 16
"""Number of bytes of non-ASCII lines from which an encoding is inferred."""
CANDIDATES = (
    *("cp1252", "cp1251", "koi8_r", "cp932", "euc_jp", "gb18030", "big5", "cp949", "cp1250", "iso8859_2", "cp1253"),
    *("iso8859_5", "cp1254", "cp1255", "cp1256", "cp1257", "tis_620", "cp866", "mac_cyrillic"),
)
"""Encodings to choose from. If several are equally likely, the first of them is chosen."""
MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""Byte order marks and their encodings. UTF-32 comes first, because its mark begins like the mark of UTF-16."""
MARK_BYTES = 4
SPOOL_BYTES = 1 << 24
"""A text that can be read only once is copied to memory, or to the disk if it has more bytes than this."""
MESS, LANGUAGE = 0.02, 0.02
"""Differences between two encodings that are too small to count, in charset-normalizer's measures: the share of
unlikely characters (MESS), and how well the text fits a language (LANGUAGE).
"""
FEW_BYTES = 4
"""Number of non-ASCII bytes below which the fit to a language does not count."""
THRESHOLD = 0.3
"""charset-normalizer returns only encodings in which at most this share of the text's characters is unlikely."""
_APART = re.compile(rb"((?<![A-Za-z\x80-\xff])[\x80-\xff]|(?<=[A-Za-z])\xae)(?![A-Za-z\x80-\xff])")
"""Pattern of a non-ASCII byte that is not part of a word, such as a currency sign, or a trademark sign after a word. In
another encoding it could be a letter, and would then count as evidence for the wrong language.
"""
_NO_LEADS = bytes(range(0xC0))
"""All bytes except those that begin a multi-byte UTF-8 character."""


def detected(parts: Iterable[bytes]) -> str | None:
    """Return Python's name for the encoding of a text; None if the text is to be read as UTF-8.

    It is read as UTF-8 if it is valid UTF-8 or damaged UTF-8 (at least as many valid non-ASCII characters as invalid
    byte sequences), or if no other encoding is likely. Memory is bounded by the largest part.

    Args:
        parts: the bytes of the text, in consecutive parts of any size.
    """
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_utf8, characters, wrong = True, 0, 0
    sample, begin = bytearray(), b""
    for part in parts:
        begin = begin if len(begin) >= MARK_BYTES else (begin + part)[:MARK_BYTES]
        is_utf8 = is_utf8 and _decodes(decoder, part)
        if part.isascii():
            continue
        if len(sample) < JUDGED_BYTES:
            sample += b"".join(line for line in part.splitlines(keepends=True) if not line.isascii())
        if is_utf8:
            characters += len(part.translate(None, _NO_LEADS))
        else:
            text = part.decode("utf-8", "replace")
            damaged = text.count("\ufffd")
            wrong += damaged
            characters += sum(character > "\x7f" for character in text) - damaged
    if named := next((encoding for mark, encoding in MARKS if begin.startswith(mark)), None):
        return named
    return None if wrong <= characters else _likeliest(bytes(sample[:JUDGED_BYTES]))


def _decodes(decoder: codecs.IncrementalDecoder, part: bytes) -> bool:
    with contextlib.suppress(UnicodeDecodeError):
        decoder.decode(part)
        return True
    return False


@contextlib.contextmanager
def copied_and_detected(stream: BinaryIO) -> Iterator[tuple[BinaryIO, str | None]]:
    """Copy a text that can be read only once, such as a member of a tar, and detect its encoding.

    Yield (copy, encoding): a stream of the copy, at its start, and Python's name for the encoding, or None if the text
    is to be read as UTF-8. The copy is in memory, or on the disk if it has more than 16 MiB (SPOOL_BYTES).
    """

    def copied() -> Iterator[bytes]:
        while data := stream.read(JUDGED_BYTES):
            copy.write(data)
            yield data

    with tempfile.SpooledTemporaryFile(SPOOL_BYTES) as copy:
        encoding = detected(copied())
        copy.seek(0)
        yield cast(BinaryIO, copy), encoding


def with_encoding(records: Iterable[Record], encoding: str | None) -> Iterator[Record]:
    """Yield the records of a text with their attribute `encoding` set to the detected encoding of the text.

    If `encoding` is None, the text is read as UTF-8, and its records are yielded unchanged.
    """
    return (dataclasses.replace(record, encoding=encoding) for record in records) if encoding else iter(records)


def _likeliest(sample: bytes) -> str | None:
    """Return the candidate encoding that is most likely for a sample of lines; None if no candidate fits."""
    from charset_normalizer import from_bytes  # imported late: most commands do not need it

    if (sample := _APART.sub(b"", sample)).isascii():
        return CANDIDATES[0]
    matches = list(from_bytes(sample, cp_isolation=list(CANDIDATES), threshold=THRESHOLD))
    if not matches:
        return None
    best, says_little = matches[0], sum(byte > 0x7F for byte in sample) < FEW_BYTES
    near = [
        match
        for match in matches
        if match.chaos <= best.chaos + MESS and (says_little or match.coherence >= best.coherence - LANGUAGE)
    ]
    names = {name for match in near for name in match.could_be_from_charset}
    return next((codecs.lookup(name).name for name in CANDIDATES if name in names), None)


def described(encoding: str) -> str:
    """Return an encoding as a fingerprint states it: `auto` with the version of charset-normalizer, which detects
    encodings; any other name unchanged.
    """
    return f"{AUTO} (charset-normalizer {version('charset-normalizer')})" if encoding == AUTO else encoding
