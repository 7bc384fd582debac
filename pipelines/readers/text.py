"""Plain text, one document per file: all of its characters, line ends and blanks included."""

from collections.abc import Iterator
from typing import BinaryIO

from pipelines.readers.streams import BOM
from pipelines.records import Piece, Record


def read(stream: BinaryIO, piece: Piece, max_bytes: int) -> Iterator[Record]:
    """The file's one record."""
    data = stream.read(max_bytes + 1)
    name = piece.input.name
    if len(data) > max_bytes:
        yield Record(name, None, None, data, f"longer than {max_bytes:,} bytes")
        return
    try:
        text = data.removeprefix(BOM).decode("utf-8")
    except UnicodeDecodeError as error:
        yield Record(name, None, None, data, f"invalid UTF-8 at byte {error.start} of the file")
    else:
        yield Record(name, None, text, data)
