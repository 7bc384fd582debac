"""A file's bytes, decompressed as they are read, and what they look like: the content decides, then the name."""

import bz2
import contextlib
import io
import lzma
import re
import tarfile
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import BinaryIO, cast

import orjson
import pyarrow as pa

from pipelines.errors import PipelineError
from shards import storage

BUFFER_BYTES = 1 << 20
HEAD_BYTES = 1 << 16
MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"),
    "zstd": re.compile(rb"\x28\xb5\x2f\xfd"),
    "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"),
    "xz": re.compile(rb"\xfd7zXZ\0"),
}
MAGIC_BYTES = 10
BOM = b"\xef\xbb\xbf"
LINES = (".jsonl", ".ndjson")
TEXTS = (".txt", ".text", ".md")
KNOWN = "JSON lines, UTF-8 text, tar (plain, .gz, .bz2, .xz or .zst) or parquet"


def compression_of(head: bytes) -> str | None:
    """What a file's first bytes say it is compressed with."""
    return next((name for name, magic in MAGIC.items() if magic.match(head)), None)


@contextlib.contextmanager
def decompressed(stream: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """A stream's content as a buffered stream. Memory stays bounded whatever it decompresses to."""
    if compression is None:
        yield stream
    elif compression in ("bz2", "xz"):
        packed = bz2.BZ2File(stream) if compression == "bz2" else lzma.LZMAFile(stream)
        yield cast(BinaryIO, io.BufferedReader(packed, BUFFER_BYTES))
    else:
        with pa.CompressedInputStream(pa.PythonFile(stream, "r"), compression) as raw:
            yield cast(BinaryIO, io.BufferedReader(raw, BUFFER_BYTES))


@contextlib.contextmanager
def opened(path: str, compression: str | None) -> Iterator[BinaryIO]:
    """A file's content as a buffered stream."""
    with storage.open_input(path) as stream, decompressed(stream, compression) as content:
        yield content


@contextlib.contextmanager
def naming(name: str, kind: str | None) -> Iterator[None]:
    """Turns what a container's damage raises into an error that names the file; a disk's errors stay as they are."""
    try:
        yield
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError, pa.ArrowException) as error:
        damage = not isinstance(error, OSError) or (type(error) is OSError and error.errno is None)
        if kind is None or not damage:
            raise
        reason = " ".join(str(error).split())
        raise PipelineError(f"{name}: damaged or cut short ({kind}: {reason}): fetch or make it again") from None


def sniff(path: str) -> tuple[str, str | None]:
    """A file's (format, compression): "jsonl", "text", "tar" or "parquet".

    Raises:
        PipelineError: it holds none of them.
    """
    with storage.open_input(path) as file:
        magic = file.read(MAGIC_BYTES)
    if magic.startswith(b"PAR1"):
        return "parquet", None
    compression = compression_of(magic)
    suffixes = PurePosixPath(path).suffixes[-2:]
    if set(LINES) & set(suffixes):
        return "jsonl", compression
    with naming(path, compression), opened(path, compression) as stream:
        head = stream.read(HEAD_BYTES)
    if is_tar(head):
        return "tar", compression
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise PipelineError(f"{path}: UTF-16 text: convert it to UTF-8, e.g. iconv -f UTF-16 -t UTF-8")
    if b"\0" in head and not set(TEXTS) & set(suffixes):
        raise PipelineError(f"{path}: binary: expected {KNOWN}")
    if ".json" in suffixes and head.removeprefix(BOM).lstrip().startswith(b"["):
        raise PipelineError(f"{path}: one JSON array: make it one object a line, e.g. jq -c '.[]'")
    if _starts_with_object(head):
        return "jsonl", compression
    if ".json" in suffixes:
        raise PipelineError(f"{path}: not one JSON object a line: make it so, e.g. jq -c .")
    return "text", compression


def is_tar(head: bytes) -> bool:
    """Whether a file's first block is the header of a tar's member."""
    if head[257:262] != b"ustar":
        return False
    try:
        tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _starts_with_object(head: bytes) -> bool:
    """Whether the first line is a JSON object, as far as the head of the file shows it."""
    line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
    if not newline and len(head) == HEAD_BYTES:
        return line.startswith(b'{"')
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False
