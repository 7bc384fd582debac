"""Decompression of a file while it is read. The reader gets all bytes of the file, or an error that names the file.

Bytes that follow the end of a compressed stream must be another stream (in xz after padding). Otherwise the file counts
as damaged; the bytes are never ignored. Memory is bounded by a few buffers and the largest window of a compressed
stream (128 MiB, WINDOW_BYTES), however much a file decompresses to.
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

from clearspan.common.errors import PipelineError
from clearspan.shards import storage

COMPRESSION = re.compile(
    rb"(?P<gzip>\x1f\x8b)|(?P<zstd>\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18)"
    rb"|(?P<bz2>BZh[1-9](?:1AY&SY|\x17rE8P\x90))|(?P<xz>\xfd7zXZ\0)"
)
"""Pattern of the first bytes of compressed files. A zstd file may begin with a skippable frame."""
COMPRESSION_BYTES = 10
"""Number of first bytes from which a compression is recognized."""
BUFFER_BYTES = 1 << 20
PACKED_BYTES = 1 << 16
WINDOW_BYTES = 1 << 27
"""Largest window of a compressed stream, which bounds the memory for decompression.
It is the limit of zstd --long=27.
"""
BOM = b"\xef\xbb\xbf"
HOLE = bytes(513)
"""A run of zero bytes longer than one disk block. A text holds such a run only if a part of the
file was lost or never written.
"""
TOO_WIDE = ("Frame requires too much memory", "Memory usage limit exceeded")
"""Parts of the error messages of zstd and xz for a window above the limit."""
DICTIONARY = "Dictionary"
"""Part of the error messages of zstd for a file that was compressed with a dictionary."""

NOT_UTF8 = "clearspan-not-utf-8"
"""Name of the codec error handler that replaces an invalid byte by a byte that is not UTF-8 either, so that the readers
find a bad record there.
"""


def _not_utf8(error: UnicodeError) -> tuple[str | bytes, int]:
    """Error handler of codecs for the conversion of a text to UTF-8: mark invalid bytes by an invalid byte of UTF-8.

    While the text is decoded, the handler replaces the invalid bytes by U+DCFF, which a str can hold, but UTF-8 cannot
    encode. While it is encoded as UTF-8, the handler replaces U+DCFF by the byte 0xFF, which UTF-8 never contains. The
    readers then find a bad record there.

    Returns:
        The replacement, and the index at which to continue (see `codecs.register_error`).
    """
    assert isinstance(error, UnicodeDecodeError | UnicodeEncodeError)
    return ("\udcff" if isinstance(error, UnicodeDecodeError) else b"\xff"), error.end


codecs.register_error(NOT_UTF8, _not_utf8)


DAMAGE = (OSError, EOFError, lzma.LZMAError, tarfile.TarError, pa.ArrowException)
"""Errors that readers of compressed files and of containers raise if a file is damaged."""


class DamagedFileError(Exception):
    """The content of a file is damaged or incomplete. The message says what is wrong."""


def check_holes(data: bytes, offset: int = 0, place: str = "") -> None:
    """Raise DamagedFileError if a text has a hole (a long run of zero bytes).

    Args:
        offset: offset at which `data` begins in the file, for the error message.
        place: text to add to the end of the error message, such as " of row 5".
    """
    if b"\0" in data and (start := data.find(HOLE)) >= 0:
        raise DamagedFileError(f"more than {len(HOLE) - 1} zero bytes in a row at byte {offset + start:,}{place}")


def chunks(stream: BinaryIO, size: int = BUFFER_BYTES) -> Iterator[bytes]:
    """Yield the bytes of a stream of a text in parts of about `size` bytes.

    Raises:
        DamagedFileError: there is a hole (a long run of zero bytes) within a part or across two parts.
    """
    before, offset = b"", 0
    while data := stream.read(size):
        check_holes(before + data, offset - len(before))
        before, offset = data[1 - len(HOLE) :], offset + len(data)
        yield data


def compression_of(head: bytes) -> str | None:
    """Return the name of the compression that a file's first bytes show, e.g. "gzip"; None if it is not compressed."""
    magic = COMPRESSION.match(head)
    return magic.lastgroup if magic else None


class _Stream(io.RawIOBase):
    """Stream of the bytes that an iterator yields."""

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


def buffered(parts: Iterator[bytes]) -> BinaryIO:
    """Return a buffered stream of the bytes that an iterator yields."""
    return cast(BinaryIO, io.BufferedReader(_Stream(parts), BUFFER_BYTES))


def _unxz(stored: BinaryIO) -> Iterator[bytes]:
    """Yield the decompressed content of one or more xz streams that follow each other.

    Python's `lzma.open` is not used, because it ignores bytes after a stream that are not another stream, and has no
    limit of memory.

    Raises:
        EOFError: the file ends within a stream.
        DamagedFileError: the padding after a stream has a wrong length.
        lzma.LZMAError: a stream is damaged, needs too much memory, or is followed by something else.
    """
    packed = stored.read(PACKED_BYTES)
    while packed:
        stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=WINDOW_BYTES + BUFFER_BYTES)
        while not stream.eof:
            yield stream.decompress(packed, BUFFER_BYTES)
            packed = stored.read(PACKED_BYTES) if stream.needs_input else b""
            if stream.needs_input and not packed:
                raise EOFError("it ends within a compressed stream")
        packed, padded = stream.unused_data or stored.read(PACKED_BYTES), 0
        while packed and not packed.lstrip(b"\0"):
            packed, padded = stored.read(PACKED_BYTES), padded + len(packed)
        padded += len(packed) - len(packed.lstrip(b"\0"))
        packed = packed.lstrip(b"\0")
        if padded % 4:
            raise DamagedFileError(f"{padded:,} bytes of padding, which is not a multiple of 4")


@contextlib.contextmanager
def decompressed(stream: BinaryIO, compression: str | None) -> Iterator[BinaryIO]:
    """Yield a buffered stream of the decompressed content of `stream`; if `compression` is None, yield `stream`."""
    if compression is None:
        yield stream
    elif compression == "xz":
        yield buffered(_unxz(stream))
    else:
        with pa.CompressedInputStream(pa.PythonFile(stream, "r"), compression) as raw:
            yield cast(BinaryIO, io.BufferedReader(raw, BUFFER_BYTES))


def _utf8(stored: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Yield the bytes of a text, converted from `encoding` to UTF-8.

    Raises:
        PipelineError: the decoder refuses the text, for example UTF-16 without a byte order mark.
    """
    decode, data = codecs.getincrementaldecoder(encoding)(NOT_UTF8).decode, b" "
    while data:
        data = stored.read(BUFFER_BYTES)
        try:
            yield decode(data, not data).encode("utf-8", NOT_UTF8)
        except UnicodeError as error:
            raise PipelineError(
                f"`encoding` {encoding}: {error}: name the encoding of the files, e.g. utf-16-le"
            ) from None


def transcoded(stream: BinaryIO, encoding: str | None) -> BinaryIO:
    """Return a stream of a text, converted from `encoding` to UTF-8; if `encoding` is None, return `stream`.

    Bytes that are invalid in the encoding become bytes that are invalid in UTF-8, so that a reader finds them.
    """
    return buffered(_utf8(stream, encoding)) if encoding else stream


@contextlib.contextmanager
def opened(path: str, compression: str | None) -> Iterator[BinaryIO]:
    """Open a file and yield a stream of its decompressed content.

    Args:
        compression: the compression of the file; None if it is not compressed.
    """
    with storage.open_input(path) as stream, decompressed(stream, compression) as content:
        yield content


@contextlib.contextmanager
def naming_damage(name: str, kind: str | None) -> Iterator[None]:
    """Turn an exception that a damaged file causes within the context into a PipelineError that names the file.

    Errors of the disk pass unchanged.

    Args:
        name: name of the file.
        kind: name of the file's compression, or of its binary format such as tar, for the message. None if the file is
            an uncompressed text: only a DamagedFileError is then turned into a PipelineError.
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
            "smaller window, e.g. zstd without --long"
        )
    if kind == "zstd" and DICTIONARY in reason:
        raise PipelineError(
            f"{name}: compressed with a dictionary of zstd's, or damaged: unpack it first, with zstd -d -D DICTIONARY"
        )
    raise PipelineError(f"{name}: damaged or cut short ({f'{kind}: ' if kind else ''}{reason}): fetch or make it again")
