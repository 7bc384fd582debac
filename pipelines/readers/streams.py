"""Decompression of a file as it is read: all of its bytes, or an error that names the file.

Bytes after the end of a compressed stream are another stream (in xz after padding) or damage, never ignored. Memory is
bounded by WINDOW_BYTES and a few buffers, whatever a file decompresses to.
"""

import codecs
import contextlib
import io
import lzma
import re
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

import pyarrow as pa

from clearspan.pipelines.errors import PipelineError
from clearspan.shards import storage

COMPRESSION = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))|(?P<xz>\xfd7zXZ\0)"
)
"""First bytes of compressed files; a zstd file may begin with a skippable frame."""
COMPRESSION_BYTES = 10
"""Number of first bytes that show a compression."""
BUFFER_BYTES = 1 << 20
PACKED_BYTES = 1 << 16
WINDOW_BYTES = 1 << 27
"""Largest window of a compressed stream, which bounds the memory it takes: the limit of zstd --long=27."""
BOM = b"\xef\xbb\xbf"
HOLE = bytes(513)
"""More than one block of consecutive zero bytes: a part of the file that was lost, or never written."""
TOO_WIDE = ("Frame requires too much memory", "Memory usage limit exceeded")
"""Messages of zstd and xz for a window above the limit."""


NOT_UTF8 = "clearspan-not-utf-8"
"""Handler of errors in an encoding: a byte that is not UTF-8, so that readers find a bad record in its place."""


def _not_utf8(error: UnicodeError) -> tuple[str | bytes, int]:
    """Return the replacement for bytes that are invalid in an encoding, or for half of a surrogate pair."""
    assert isinstance(error, UnicodeDecodeError | UnicodeEncodeError)
    return ("\udcff" if isinstance(error, UnicodeDecodeError) else b"\xff"), error.end


codecs.register_error(NOT_UTF8, _not_utf8)


DAMAGE = (OSError, EOFError, lzma.LZMAError, tarfile.TarError, pa.ArrowException)
"""Errors that readers of compressed files and of containers raise if a file is damaged."""


class DamagedFileError(Exception):
    """A file does not hold what was written to it. The message says what is wrong."""


def check_holes(data: bytes, offset: int = 0, of: str = "") -> None:
    """Raise DamagedFileError if a text has a hole (a long run of zero bytes). `offset`: its beginning in the file."""
    if b"\0" in data and (start := data.find(HOLE)) >= 0:
        raise DamagedFileError(f"more than {len(HOLE) - 1} zero bytes in a row at byte {offset + start:,}{of}")


def chunks(stream: BinaryIO, size: int = BUFFER_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a text in parts of about this size.

    Raises:
        DamagedFileError: there is a hole in the text, within a part or across two parts.
    """
    before, offset = b"", 0
    while data := stream.read(size):
        check_holes(before + data, offset - len(before))
        before, offset = data[1 - len(HOLE) :], offset + len(data)
        yield data


def compression_of(head: bytes) -> str | None:
    """Return the compression that a file's first bytes show, or None."""
    magic = COMPRESSION.match(head)
    return magic.lastgroup if magic else None


class _Stream(io.RawIOBase):
    """The bytes that an iterator yields."""

    def __init__(self, parts: Iterator[bytes]) -> None:
        self.parts, self.rest = parts, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.rest:
            if (part := next(self.parts, None)) is None:
                return 0
            self.rest = part
        part, self.rest = self.rest[: len(buffer)], self.rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _buffered(parts: Iterator[bytes]) -> BinaryIO:
    return cast(BinaryIO, io.BufferedReader(_Stream(parts), BUFFER_BYTES))


def _unxz(stored: BinaryIO) -> Iterator[bytes]:
    """Yield the content of consecutive xz streams. Python's reader ignores other bytes after one, and has no limit."""
    packed = stored.read(PACKED_BYTES)
    while packed:
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=WINDOW_BYTES + BUFFER_BYTES)
        while not stream.eof:
            yield stream.decompress(packed, BUFFER_BYTES)
            packed = stored.read(PACKED_BYTES) if stream.needs_input else b""
            if stream.needs_input and not packed:
                raise EOFError("it ends within a stream")
        packed, padded = stream.unused_data or stored.read(PACKED_BYTES), 0
        while packed and not packed.lstrip(b"\0"):
            packed, padded = stored.read(PACKED_BYTES), padded + len(packed)
        padded += len(packed) - len(packed.lstrip(b"\0"))
        packed = packed.lstrip(b"\0")
        if padded % 4:
            raise DamagedFileError(f"{padded:,} bytes of padding, which is not a multiple of 4")


@contextlib.contextmanager
def decompressed(stream: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """Open a stream's content as a buffered stream."""
    if compression is None:
        yield stream
    elif compression == "xz":
        yield _buffered(_unxz(stream))
    else:
        with pa.CompressedInputStream(pa.PythonFile(stream, "r"), compression) as raw:
            yield cast(BinaryIO, io.BufferedReader(raw, BUFFER_BYTES))


def _utf8(stored: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Yield a text in another encoding as UTF-8."""
    decode, data = codecs.getincrementaldecoder(encoding)(NOT_UTF8).decode, b" "
    while data:
        data = stored.read(BUFFER_BYTES)
        try:
            yield decode(data, not data).encode("utf-8", NOT_UTF8)
        except UnicodeError as error:
            raise PipelineError(f"--encoding {encoding}: {error}: name that of the files, e.g. utf-16-le") from None


def transcoded(stream: BinaryIO, encoding: str | None) -> BinaryIO:
    """Return a stream of text as UTF-8. Bytes that are invalid in the encoding (None: UTF-8) become invalid UTF-8."""
    return _buffered(_utf8(stream, encoding)) if encoding else stream


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
    except DamagedFileError as error:
        reason = str(error)
    except (*DAMAGE, UnicodeDecodeError) as error:
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
