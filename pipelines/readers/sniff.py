"""What a file holds, by its first bytes, then by its name; and a hash of bytes spread over it, to know it again."""

import contextlib
import hashlib
import re
import tarfile
from collections.abc import Sequence
from typing import BinaryIO

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.jsonl import parse
from clearspan.pipelines.readers.streams import BOM, decompressed, naming
from clearspan.pipelines.records import Reading
from clearspan.pipelines.suffixes import COMPRESSED, TARS
from clearspan.shards import storage

LOOK_BYTES = 1 << 16
"""So much of a file is looked at to say what it is."""
MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))|(?P<xz>\xfd7zXZ\0)"
)
"""How compressed files begin; one of zstd may do so with a frame to skip."""
MAGIC_BYTES = 10
PARQUET = b"PAR1"
ARROW = b"\xff\xff\xff\xff"
"""How an Arrow stream begins; no text does."""
ARROW_FILE = b"ARROW1\0\0"
LINES = (".jsonl", ".ndjson")
TABLES = (".csv", ".tsv")
TEXTS = (".txt", ".text", ".md")
CONTAINERS = (*COMPRESSED, ".parquet", ".arrow", *TARS)
"""Ends of names of files that are never empty, nor of bytes that begin otherwise."""
ABOUT = re.compile(r"(licen[sc]es?|readme|copying|citation|notice)(?![a-z])", re.IGNORECASE)
"""Beginnings of names of files that describe a data set and hold none of its data."""
KNOWN = "JSON lines or an array, UTF-8 text, csv, tar (plain, .gz, .bz2, .xz or .zst), parquet or Arrow"
LATIN_LINES = 3
"""So many lines of a head that are no UTF-8 are more than damage."""
SAMPLES = 9
SAMPLE_BYTES = 1 << 13
WHOLE_BYTES = SAMPLES * SAMPLE_BYTES
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
"""A character of several bytes in UTF-8."""
_OPENING = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*"\s*:|$)')
"""How a JSON object begins, whole or not."""


class UnknownKindError(PipelineError):
    """A file that is of no known kind."""


def is_about(path: str) -> bool:
    """Return whether a file describes its data set, by its name. A folder or a glob passes over such files."""
    return bool(ABOUT.match(path.rpartition("/")[2]))


def sample(stream: BinaryIO, size: int) -> str:
    """A hash of an opened file's size and of bytes spread over it, its head, middle and tail among them; of all the
    bytes of a small one. Leaves the stream at its start.

    The same content gives the same wherever it lies, as its modification time would not.
    """
    if size <= WHOLE_BYTES:
        data = stream.read(size)
        stream.seek(0)
    else:
        starts = (number * (size - SAMPLE_BYTES) // (SAMPLES - 1) for number in range(SAMPLES))
        data = b"".join(storage.read_at(stream, start, SAMPLE_BYTES) for start in starts)
    return hashlib.blake2b(size.to_bytes(8, "little") + data, digest_size=16).hexdigest()


def compression_of(head: bytes) -> str | None:
    """What a file's first bytes say it is compressed with."""
    magic = MAGIC.match(head)
    return magic.lastgroup if magic else None


def look(stream: BinaryIO, path: str) -> tuple[str, str | None]:
    """An opened file's (format, compression): "jsonl", "json", "csv", "text", "tar", "parquet" or "arrow". Leaves the
    stream somewhere, or closed.

    Raises:
        UnknownKindError: it holds none of them.
        PipelineError: it is damaged, or text that must be converted first.
    """
    magic = stream.read(MAGIC_BYTES)
    stream.seek(0)
    if magic.startswith(PARQUET):
        return "parquet", None
    compression = compression_of(magic)
    suffixes = suffixes_of(path)
    if set(LINES) & set(suffixes) and not _claims(suffixes, compression):
        return "jsonl", compression
    with naming(path, compression), decompressed(stream, compression) as content:
        head = content.read(LOOK_BYTES)
    if is_tar(head):
        return "tar", compression
    if is_arrow(head):
        return "arrow", compression
    check_claims(path, compression, head)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PipelineError(f"{path}: UTF-16 text: convert it to UTF-8, e.g. iconv -f UTF-16 -t UTF-8")
    if b"\0" in head and not {*TEXTS, *TABLES, ".json"} & set(suffixes):
        raise UnknownKindError(f"{path}: binary: expected {KNOWN}")
    if encoding := single_bytes(head):
        raise PipelineError(f"{path}: no UTF-8: convert it, e.g. iconv -f {encoding} -t UTF-8")
    try:
        return text_format(head, suffixes, len(head) < LOOK_BYTES), compression
    except ValueError as error:
        raise PipelineError(f"{path}: {error}") from None


def check_claims(name: str, compression: str | None, head: bytes) -> None:
    """Raises PipelineError if a file or a member, which is no tar and begins so when decompressed, is by its name a
    container that it is not by its bytes.
    """
    if claims := _claims(suffixes_of(name), compression):
        found = "does not begin as one" if head else "is empty"
        raise PipelineError(f"{name}: damaged or misnamed (a {claims[0]} that {found}): fetch it again, or rename it")


def _claims(suffixes: Sequence[str], compression: str | None) -> list[str]:
    """The ends of a name that only a tar bears out, where this compression was found."""
    last = [suffix for suffix in suffixes[-1:] if suffix in CONTAINERS and not compression]
    return last + [suffix for suffix in suffixes if suffix in TARS and not set(LINES) & set(suffixes)]


def suffixes_of(path: str) -> list[str]:
    """The last two ends of a file's name: ".tar" and ".gz". What macOS keeps beside a file bears its name in vain."""
    name = path.rpartition("/")[2]
    _, *ends = [""] if name.startswith("._") else name.lstrip(".").split(".")
    return [f".{end}" for end in ends[-2:]]


def is_tar(head: bytes) -> bool:
    """Whether a file's first block is the header of a tar's member."""
    if head[257:262] != b"ustar":
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def is_arrow(head: bytes) -> bool:
    """Whether a file begins as an Arrow stream, or file, does."""
    length = int.from_bytes(head[4:8], "little")
    return head.startswith(ARROW_FILE) or (head.startswith(ARROW) and 0 < length < 1 << 30 and length % 8 == 0)


def single_bytes(head: bytes) -> str | None:
    """The encoding of a byte a letter in which a text's head is written; None where it may be UTF-8.

    It is no UTF-8 where at least LATIN_LINES of its lines are none, no character of several bytes is in it, and each
    byte above ASCII is a letter or a sign of the encoding. A text with one bad line stays UTF-8, and so does one with
    any character that only UTF-8 writes so.
    """
    if b"\0" in head or head.isascii():
        return None
    bad = [line for line in head.split(b"\n") if not _is_utf8(line)]
    if len(bad) < LATIN_LINES or _MULTIBYTE.search(head):
        return None
    high = bytes(set(head) - set(range(128)))
    for encoding in ("LATIN1", "WINDOWS-1252"):
        with contextlib.suppress(UnicodeDecodeError):
            if high.decode(encoding).replace("\xa0", "").replace("\xad", "").isprintable():
                return encoding
    return None


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def rows_format(found: str, reading: Reading) -> str:
    """The format in which a text is read: where rows are read, a plain text is a table."""
    return "csv" if found == "text" and reading.columns else found


def text_format(head: bytes, suffixes: Sequence[str], is_whole: bool) -> str:
    """Whether a text is "jsonl", "json" (an array), "csv" or "text", by its head (or all of it) and the ends of its
    name.

    Raises:
        ValueError: it is JSON in another form than lines or an array.
    """
    if set(LINES) & set(suffixes):
        return "jsonl"
    head = head.removeprefix(BOM).lstrip()
    if ".json" in suffixes and head.startswith(b"["):
        return "json"
    if set(TABLES) & set(suffixes):
        return "csv"
    if _starts_with_object(head, is_whole):
        return "jsonl"
    if ".json" in suffixes:
        raise ValueError("not one JSON object a line: make it so, e.g. jq -c .")
    return "jsonl" if _starts_with_bad_line(head, is_whole) else "text"


def _starts_with_object(head: bytes, is_whole: bool) -> bool:
    """Whether the first line is a JSON object, as far as the head shows it."""
    if not head.startswith(b"{"):
        return False
    line, newline, _ = head.partition(b"\n")
    if newline or is_whole:
        return parse(line)[0] is not None
    return bool(_OPENING.match(line))


def _starts_with_bad_line(head: bytes, is_whole: bool) -> bool:
    """Whether the first line begins as an object, and a later whole one is one: the first is damaged, not a text."""
    first, *rest = head.split(b"\n")
    rest = rest if is_whole else rest[:-1]
    return bool(_OPENING.match(first)) and any(line.startswith(b"{") and parse(line)[0] is not None for line in rest)
