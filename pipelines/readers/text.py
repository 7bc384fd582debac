"""Plain text, one document per file: all of its characters, line ends and blanks included."""

from collections.abc import Iterator
from typing import BinaryIO

from pipelines.readers.streams import BOM, BUFFER_BYTES, check_holes
from pipelines.records import HEAD_BYTES, Piece, Reading, Record


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """The file's one record."""
    yield document(stream, piece.input.name, reading.max_bytes)
    while stream.read(BUFFER_BYTES):
        pass  # of one too long, the rest must be there, whole


def document(stream: BinaryIO, name: str, max_bytes: int) -> Record:
    """The text that is the whole of a stream, as one record.

    Raises:
        DamagedError: there is a hole in it.
    """
    data = stream.read(max_bytes + 1)
    check_holes(data)
    if len(data) > max_bytes:
        return Record(name, None, None, data[:HEAD_BYTES], f"longer than {max_bytes:,} bytes")
    try:
        return Record(name, None, data.removeprefix(BOM).decode("utf-8"), data)
    except UnicodeDecodeError as error:
        return Record(name, None, None, data[:HEAD_BYTES], f"invalid UTF-8 at byte {error.start} of the file")
