"""Detection of a file's format, from its first bytes and then its name; and a sampled hash that detects changes."""

import codecs
import hashlib
import io
import re
import tarfile
from collections.abc import Sequence
from typing import BinaryIO, cast

from clearspan.pipelines.errors import PipelineError, check_extra
from clearspan.pipelines.readers.encodings import AUTO, detected
from clearspan.pipelines.readers.jsonl import parse
from clearspan.pipelines.readers.refused import refusal
from clearspan.pipelines.readers.streams import BOM, decompressed, naming, transcoded
from clearspan.pipelines.records import Reading
from clearspan.pipelines.suffixes import COMPRESSED, LINES, TABLES, TARS, TEXTS, suffixes_of
from clearspan.shards import storage

LOOK_BYTES = 1 << 16
"""Bytes of a file from which its format is inferred."""
MAGIC = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))|(?P<xz>\xfd7zXZ\0)"
)
"""First bytes of compressed files; a zstd file may begin with a skippable frame."""
MAGIC_BYTES = 10
PARQUET = b"PAR1"
ARROW = b"\xff\xff\xff\xff"
"""First bytes of an Arrow stream, and of no text."""
ARROW_FILE = b"ARROW1\0\0"
WARC = b"WARC/1."
"""First bytes of a web archive, and of each of its records."""
CONTAINERS = (*COMPRESSED, ".parquet", ".arrow", *TARS)
"""Extensions of files that are never empty, and always begin with their format's bytes."""
ABOUT = re.compile(r"(licen[sc]es?|readme|copying|citation|notice)(?![a-z])", re.IGNORECASE)
"""Beginnings of the names of files that describe a dataset and hold none of its data."""
KNOWN = "JSON lines or an array, UTF-8 text, csv, tar (plain, .gz, .bz2, .xz or .zst), WARC, parquet or Arrow"
UTF8_CHARACTERS = 3
"""This many multi-byte characters of a head that is UTF-8 mean that it has no other encoding."""
SAMPLES = 9
SAMPLE_BYTES = 1 << 13
WHOLE_BYTES = SAMPLES * SAMPLE_BYTES
_MULTIBYTE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
"""A multi-byte character in UTF-8."""
_OPENING = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*"\s*:|\}|$)')
"""The beginning of a JSON object, complete or not."""


class UnknownKindError(PipelineError):
    """A file has no known format. `reason`: what it is instead, and what to do with it, if that is known."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason


def is_about(path: str) -> bool:
    """Return whether a file's name says that it describes a dataset. Folders and globs skip such files."""
    return bool(ABOUT.match(path.rpartition("/")[2]))


def sample(stream: BinaryIO, size: int) -> str:
    """Return a hash of an open file's size and of bytes spread over it (of a small file, of all its bytes).

    Unlike a modification time, it is the same for the same content anywhere. The stream is left at its start.
    """
    if size <= WHOLE_BYTES:
        data = stream.read(size)
        stream.seek(0)
    else:
        starts = (number * (size - SAMPLE_BYTES) // (SAMPLES - 1) for number in range(SAMPLES))
        data = b"".join(storage.read_at(stream, start, SAMPLE_BYTES) for start in starts)
    return hashlib.blake2b(size.to_bytes(8, "little") + data, digest_size=16).hexdigest()


def compression_of(head: bytes) -> str | None:
    """Return the compression that a file's first bytes show, or None."""
    magic = MAGIC.match(head)
    return magic.lastgroup if magic else None


def look(stream: BinaryIO, path: str, encoding: str | None = None) -> tuple[str, str | None]:
    """Return (format, compression) of an open file: "jsonl", "json", "csv", "text", "tar", "parquet", "arrow" or
    "warc".

    The stream is left at any position, or closed.

    Args:
        encoding: of a text; None is UTF-8; `auto` is that which its beginning shows.

    Raises:
        UnknownKindError: the file has none of these formats, or is of a type that holds no plain text.
        PipelineError: the file is damaged, or text in another encoding than this one.
    """
    magic = stream.read(MAGIC_BYTES)
    stream.seek(0)
    if magic.startswith(PARQUET):
        return "parquet", None
    compression = compression_of(magic)
    suffixes = suffixes_of(path)
    if set(LINES) & set(suffixes) and not _claims(suffixes, compression) and encoding in (None, AUTO):
        return "jsonl", compression
    with naming(path, compression), decompressed(stream, compression) as content:
        head = content.read(LOOK_BYTES)
    if is_tar(head):
        return "tar", compression
    if is_arrow(head):
        return "arrow", compression
    if head.startswith(WARC):
        check_extra("web", "fastwarc", "resiliparse", what=f"{path}: a web archive")
        return "warc", compression
    if reason := refusal(path, head):
        raise UnknownKindError(f"{path}: {reason}", reason)
    check_claims(path, compression, head)
    is_whole = len(head) < LOOK_BYTES
    if encoding == AUTO:
        encoding = detected([head])
    elif encoding and len(_MULTIBYTE.findall(head)) >= UTF8_CHARACTERS and is_utf8(head, is_whole):
        raise PipelineError(f"{path}: UTF-8, not {encoding}: leave --encoding out, or use auto if files differ")
    if encoding:
        head = transcoded(cast(BinaryIO, io.BytesIO(head)), encoding).read()
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PipelineError(f"{path}: UTF-16 text: convert it to UTF-8, or pass --encoding utf-16 or auto")
    if b"\0" in head and not {*TEXTS, *TABLES, ".json"} & set(suffixes):
        raise UnknownKindError(f"{path}: binary: expected {KNOWN}")
    try:
        return text_format(head, suffixes, is_whole), compression
    except ValueError as error:
        raise PipelineError(f"{path}: {error}") from None


def check_claims(name: str, compression: str | None, head: bytes) -> None:
    """Raise PipelineError if a file or member that is not a tar has the name of a container.

    Args:
        head: its first bytes, decompressed.
    """
    if claims := _claims(suffixes_of(name), compression):
        fault = "does not begin as one" if head else "is empty"
        raise PipelineError(f"{name}: damaged or misnamed (a {claims[0]} that {fault}): fetch it again, or rename it")


def _claims(suffixes: Sequence[str], compression: str | None) -> list[str]:
    """Return the extensions of a name that the content, compressed like this, does not fulfill unless it is a tar."""
    last = [suffix for suffix in suffixes[-1:] if suffix in CONTAINERS and not compression]
    return last + [suffix for suffix in suffixes if suffix in TARS and not set(LINES) & set(suffixes)]


def is_tar(head: bytes) -> bool:
    """Return whether a file's first block is the header of a tar member."""
    if head[257:262] != b"ustar":
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def is_arrow(head: bytes) -> bool:
    """Return whether a file begins like an Arrow stream or file."""
    length = int.from_bytes(head[4:8], "little")
    return head.startswith(ARROW_FILE) or (head.startswith(ARROW) and 0 < length < 1 << 30 and length % 8 == 0)


def is_utf8(head: bytes, is_whole: bool) -> bool:
    """Return whether a text is UTF-8, by its head, which may end within a character unless it is the whole text."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head, final=is_whole)
    except UnicodeDecodeError:
        return False
    return True


def rows_format(file_format: str, reading: Reading) -> str:
    """Return the format in which a file is read: if rows are wanted, a plain text is read as a table."""
    return "csv" if file_format == "text" and reading.columns else file_format


def text_format(head: bytes, suffixes: Sequence[str], is_whole: bool) -> str:
    """Return the format of a text, from its head and extensions: "jsonl", "json" (an array), "csv" or "text".

    Args:
        is_whole: the head is the whole text.

    Raises:
        ValueError: it is JSON, but neither lines nor an array.
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
    return "text"


def _starts_with_object(head: bytes, is_whole: bool) -> bool:
    """Return whether the first line begins as a JSON object, and a complete line is one, if the head has any."""
    lines = head.split(b"\n")
    complete = lines if is_whole else lines[:-1]
    is_object = (parse(line)[0] is not None for line in complete)
    return bool(_OPENING.match(lines[0])) and (not complete or any(is_object))
