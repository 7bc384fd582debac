"""A file's bytes, decompressed as they are read, and what they look like: the content decides, then the name."""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

import orjson
import pyarrow as pa

from pipelines.errors import PipelineError

BUFFER_BYTES = 1 << 20
HEAD_BYTES = 1 << 16
MAGIC = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
BOM = b"\xef\xbb\xbf"


@contextlib.contextmanager
def opened(path: Path, compression: str | None) -> Iterator[BinaryIO]:
    """A file's content as a buffered stream. Memory stays bounded whatever the file decompresses to."""
    if compression is None:
        with path.open("rb", buffering=BUFFER_BYTES) as stream:
            yield stream
    else:
        with pa.OSFile(str(path)) as file, pa.CompressedInputStream(file, compression) as raw:
            yield cast(BinaryIO, io.BufferedReader(raw, BUFFER_BYTES))


@contextlib.contextmanager
def naming(path: Path, compression: str | None) -> Iterator[None]:
    """Turns a decompressor's error, which has no error number, into one that names the file."""
    try:
        yield
    except OSError as error:
        if compression is None or error.errno is not None:
            raise
        raise PipelineError(f"{path}: damaged or cut short ({compression}: {error}): fetch or make it again") from None


def sniff(path: Path) -> tuple[str, str | None]:
    """A file's (format, compression).

    Raises:
        PipelineError: it holds neither lines of JSON nor text.
    """
    with path.open("rb") as file:
        magic = file.read(4)
    compression = next((name for mark, name in MAGIC.items() if magic.startswith(mark)), None)
    if {".jsonl", ".ndjson"} & set(path.suffixes[-2:]):
        return "jsonl", compression
    with naming(path, compression), opened(path, compression) as stream:
        head = stream.read(HEAD_BYTES)
    if b"\0" in head:
        raise PipelineError(f"{path}: binary: expected JSON lines or UTF-8 text, plain, .gz or .zst")
    return ("jsonl" if _starts_with_object(head) else "text"), compression


def _starts_with_object(head: bytes) -> bool:
    """Whether the first line is a JSON object, as far as the head of the file shows it."""
    line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
    if not newline and len(head) == HEAD_BYTES:
        return line.startswith(b'{"')
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False
