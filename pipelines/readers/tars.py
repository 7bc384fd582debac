"""Tars of texts, and of packed tars of texts as OpenWebText comes: streamed, nothing unpacked to disk.

    urlsf_subset00.tar -> urlsf_subset00-1_data.xz -> (xz) tar -> 0000000-….txt -> one document each

A member is a text, or a (compressed) tar of texts; what its bytes are decides, not its name. A tar must be whole: its
end marked, nothing after it. Python's own reader takes a cut or damaged one for a shorter one.
"""

import io
import tarfile
from collections.abc import Iterator
from typing import BinaryIO, Self, cast

from pipelines.readers.streams import BUFFER_BYTES, MAGIC_BYTES, compression_of, decompressed, is_tar, naming
from pipelines.readers.text import document
from pipelines.records import Piece, Reading, Record

PEEK_BYTES = 1 << 14


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """The documents of the members that start in the piece, named file/member or file/member/member."""
    if piece.start:
        stream.seek(piece.start)
    length = None if piece.end is None else piece.end - piece.start
    for name, member in _members(stream, length):
        name = f"{piece.input.name}/{name}"
        if member is None:
            yield Record(name, None, None, b"", "a link or a device, not a file")
        else:
            yield from unpack(member, name, reading.max_bytes)


def unpack(stream: BinaryIO, name: str, max_bytes: int) -> Iterator[Record]:
    """The documents of one member: those of the (compressed) tar that it is, or itself."""
    buffered = io.BufferedReader(cast(io.RawIOBase, stream), PEEK_BYTES)
    compression = compression_of(buffered.peek(MAGIC_BYTES))
    with naming(name, compression or "tar"), decompressed(cast(BinaryIO, buffered), compression) as content:
        head = cast(io.BufferedReader, content).peek(tarfile.BLOCKSIZE)
        if not is_tar(head):
            yield document(content, name, max_bytes)
            return
        for inner, member in _members(content):
            if member is None:
                yield Record(f"{name}/{inner}", None, None, b"", "a link or a device, not a file")
            else:
                yield document(member, f"{name}/{inner}", max_bytes)


def cuts(stream: BinaryIO, size: int) -> list[int]:
    """Where members start, about every `size` bytes, the first at 0: a seekable tar's pieces.

    Raises:
        tarfile.TarError: the tar is damaged or cut short.
    """
    starts = [0]
    with tarfile.open(fileobj=stream, mode="r:", tarinfo=_Header) as archive:
        while (info := archive.next()) is not None:
            archive.members.clear()  # type: ignore[attr-defined]
            if info.offset - starts[-1] >= size:
                starts.append(info.offset)
    return starts


class _Header(tarfile.TarInfo):
    """A member's header; one that is not whole is an error, where tarfile would take it for the end."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        try:
            return super().fromtarfile(archive)
        except tarfile.EOFHeaderError:  # type: ignore[attr-defined]
            raise
        except tarfile.HeaderError as error:
            raise tarfile.ReadError(f"no whole member at byte {archive.offset}: {error}") from None


def _members(stream: BinaryIO, length: int | None = None) -> Iterator[tuple[str, BinaryIO | None]]:
    """Printable name and content of each member; None for what is no file. `length` None: to the end of the tar."""
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Header) as archive:
        while (info := archive.next()) is not None:
            if length is not None and info.offset >= length:
                return
            archive.members.clear()  # type: ignore[attr-defined]
            name = info.name if info.name.isprintable() else ascii(info.name)[1:-1]
            if info.isfile():
                yield name, cast(BinaryIO, archive.extractfile(info))
            elif not info.isdir():
                yield name, None
        rest = cast(BinaryIO, archive.fileobj)
        while data := rest.read(BUFFER_BYTES):
            if data.strip(b"\0"):
                raise tarfile.ReadError("it goes on after its end: two tars joined, or damage")
