"""Decompression of a file as it is read: all of its bytes, or an error that names the file.

Bytes after the end of a compressed stream are another stream (in xz after padding) or damage, never ignored. Memory is
bounded by WINDOW_BYTES and a few buffers, whatever a file decompresses to.
"""

import bz2
import contextlib
import dataclasses
import io
import lzma
import tarfile
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO, cast

import pyarrow as pa

from clearspan.pipelines.errors import PipelineError
from clearspan.shards import storage

BUFFER_BYTES = 1 << 20
PACKED_BYTES = 1 << 16
WINDOW_BYTES = 1 << 27
"""Largest window of a compressed stream, which bounds the memory it takes: the limit of zstd --long=27."""
BOM = b"\xef\xbb\xbf"
HOLE = bytes(513)
"""More than one block of consecutive zero bytes: a part of the file that was lost, or never written."""
TOO_WIDE = ("Frame requires too much memory", "Memory usage limit exceeded")
"""Messages of zstd and xz for a window above the limit."""


class DamagedError(Exception):
    """A file does not hold what was written to it. The message says what is wrong."""


@dataclasses.dataclass
class Bounded:
    """Bytes that are collected up to a limit: their offset, their first `limit` + 1, and the number of all of them."""

    start: int
    limit: int
    data: bytearray = dataclasses.field(default_factory=bytearray)
    size: int = 0

    def add(self, part: bytes) -> None:
        self.size += len(part)
        self.data += part[: max(0, self.limit + 1 - len(self.data))]


def check_holes(data: bytes, offset: int = 0, of: str = "") -> None:
    """Raise DamagedError if there is a hole in a text, which begins at `offset` of its file."""
    if b"\0" in data and (start := data.find(HOLE)) >= 0:
        raise DamagedError(f"more than {len(HOLE) - 1} zero bytes in a row at byte {offset + start:,}{of}")


def chunks(stream: BinaryIO, size: int = BUFFER_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a text in parts of about this size.

    Raises:
        DamagedError: there is a hole in it, within a part or across two.
    """
    before, offset = b"", 0
    while data := stream.read(size):
        check_holes(before + data, offset - len(before))
        before, offset = data[1 - len(HOLE) :], offset + len(data)
        yield data


class _Streams(io.RawIOBase):
    """The content of consecutive compressed streams. Python's readers ignore other bytes after a stream."""

    def __init__(self, stored: BinaryIO, decompressor: Callable[[], Any], padding: int = 0) -> None:
        self.stored, self.decompressor, self.padding = stored, decompressor, padding
        self.current = decompressor()
        self.is_new = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view, size = memoryview(buffer).cast("B"), 0
        while size < len(view) and (data := self._read(len(view) - size)):
            view[size : size + len(data)] = data
            size += len(data)
        return size

    def _read(self, size: int) -> bytes:
        while True:
            packed = b""
            if self.current.eof:
                packed = self._next_stream()
                if not packed:
                    return b""
            elif self.current.needs_input:
                packed = self.stored.read(PACKED_BYTES)
                if not packed and not self.is_new:
                    raise EOFError("it ends within a stream")
                if not packed:
                    return b""
            self.is_new = False
            if data := self.current.decompress(packed, size):
                return cast(bytes, data)

    def _next_stream(self) -> bytes:
        """Return the first bytes of the next stream, or none at the end of the file."""
        packed, padded = self.current.unused_data, 0
        while self.padding:
            rest = packed.lstrip(b"\0")
            padded += len(packed) - len(rest)
            if rest or not (packed := self.stored.read(PACKED_BYTES)):
                packed = rest
                break
        if self.padding and padded % self.padding:
            raise DamagedError(f"{padded:,} bytes of padding, which is not a multiple of {self.padding}")
        packed = packed or self.stored.read(PACKED_BYTES)
        if packed:
            self.current = self.decompressor()
        return packed


def _unxz() -> lzma.LZMADecompressor:
    return lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=WINDOW_BYTES + BUFFER_BYTES)


@contextlib.contextmanager
def decompressed(stream: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """Open a stream's content as a buffered stream."""
    if compression is None:
        yield stream
    elif compression in ("bz2", "xz"):
        streams = _Streams(stream, bz2.BZ2Decompressor) if compression == "bz2" else _Streams(stream, _unxz, padding=4)
        yield cast(BinaryIO, io.BufferedReader(streams, BUFFER_BYTES))
    else:
        with pa.CompressedInputStream(pa.PythonFile(stream, "r"), compression) as raw:
            yield cast(BinaryIO, io.BufferedReader(raw, BUFFER_BYTES))


@contextlib.contextmanager
def opened(path: str, compression: str | None) -> Iterator[BinaryIO]:
    """Open a file's content as a buffered stream."""
    with storage.open_input(path) as stream, decompressed(stream, compression) as content:
        yield content


@contextlib.contextmanager
def naming(name: str, kind: str | None) -> Iterator[None]:
    """Turn an exception that damage causes into a PipelineError that names the file and the kind of container (if any).

    Errors of the disk pass unchanged.
    """
    try:
        yield
    except DamagedError as error:
        reason = str(error)
    except (OSError, EOFError, lzma.LZMAError, tarfile.TarError, pa.ArrowException, UnicodeDecodeError) as error:
        damage = not isinstance(error, OSError) or (type(error) is OSError and error.errno is None)
        if kind is None or not damage:
            raise
        reason = " ".join(str(error).split())
    else:
        return
    if any(words in reason for words in TOO_WIDE):
        raise PipelineError(
            f"{name}: its {kind} window takes more than {WINDOW_BYTES >> 20} MiB of memory: compress it again with a "
            "smaller one, e.g. zstd without --long"
        )
    raise PipelineError(f"{name}: damaged or cut short ({f'{kind}: ' if kind else ''}{reason}): fetch or make it again")
