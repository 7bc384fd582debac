"""Compressed files and archives: recognize by the first bytes how a file is packed, to tell users what to unpack."""

import re

_BY_CONTENT: dict[str, bytes] = {
    "gzip": rb"\x1f\x8b",
    "bzip2": rb"BZh[1-9](?:1AY&SY|\x17rE8P\x90)",
    "xz": rb"\xfd7zXZ\0",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
    "lz4": rb"\x04\x22\x4d\x18|\x02\x21\x4c\x18",
    "lzop": rb"\x89LZO\0\r\n\x1a\n",
    "snappy": rb"\xff\x06\0\0sNaPpY|\x82SNAPPY\0",
    "compress": rb"\x1f[\x9d\xa0\x1e]",
    "lzip": rb"LZIP[\0\x01]",
    "lzma": rb"\x5d\0\0.{2}(?:\xff{8}|.{5}\0{3})",
    "lrzip": rb"LRZI\0",
    "zip": rb"PK(?:\x03\x04|\x05\x06|\x07\x08)",
    "7z": rb"7z\xbc\xaf\x27\x1c",
    "rar": rb"Rar!\x1a\x07",
    "cab": rb"MSCF\0\0\0\0",
    "cpio": rb"07070[12][0-9A-Fa-f]{104}|070707[0-7]{70}",
    "ar": rb"!<arch>\n",
    "xar": rb"xar!\0",
    "rpm": rb"\xed\xab\xee\xdb",
    "lha": rb".{2}-lh[0-9d]-.{3}\0",
    "arj": rb"\x60\xea[\x1e-\x30]\0",
}
"""Name of a program or format -> pattern of the first bytes of its files."""
PACKED_BYTES = 128
"""Number of first bytes from which `packing_of` recognizes every packing that has first bytes of its own."""
_PATTERN = re.compile(b"|".join(b"(?P<_%b>%b)" % (name.encode(), it) for name, it in _BY_CONTENT.items()), re.DOTALL)
_NAMES = {
    "lz4": ".lz4",
    "lzop": ".lzo",
    "snappy": ".sz .snappy .snz",
    "compress": ".z",
    "lzip": ".lz",
    "lzma": ".lzma",
    "lrzip": ".lrz",
    "brotli": ".br",
    "cab": ".cab",
    "cpio": ".cpio",
    "ar": ".deb",
    "xar": ".xar",
    "rpm": ".rpm",
    "lha": ".lha .lzh",
    "arj": ".arj",
}
SUFFIXES = {suffix: name for name, suffixes in _NAMES.items() for suffix in suffixes.split()}
"""Extensions, in lower case, of files that are packed in a way that nothing here unpacks. An extension alone does not
decide: `.br` is also that of a text in Breton."""
ARCHIVES = ("zip", "7z", "rar", "cab", "cpio", "ar", "xar", "rpm", "lha", "arj")
_CONTROL = re.compile(rb"[\0-\x08\x0e-\x1a\x1c-\x1f]")
"""Pattern of a byte that texts do not hold, but nearly every compressed file does."""


def packing_of(head: bytes, suffix: str = "") -> str:
    """Return the name of the program or format with which a file is packed, e.g. "lz4"; "" if it is not packed.

    Args:
        head: the first bytes of the file; b"" to judge the file by its extension only.
        suffix: the file's extension in lower case. It counts if the first bytes are not those of a text.
    """
    if (magic := _PATTERN.match(head)) and magic.lastgroup:
        return magic.lastgroup.removeprefix("_")
    return "" if head and not _CONTROL.search(head) else SUFFIXES.get(suffix, "")


def described(packing: str) -> str:
    """Return a phrase that says how a file is packed, e.g. "compressed with lz4"."""
    if packing == "zip":
        return "a zip archive or an office document"
    return f"an archive ({packing})" if packing in ARCHIVES else f"compressed with {packing}"
