"""Plain text: a document a file, all of its characters, line ends and blanks included; or one between two separators.

A part between separators that is blank is no record, and is found in bounded memory however long it is.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO

from clearspan.pipelines.readers.streams import BOM, BUFFER_BYTES, check_holes, chunks
from clearspan.pipelines.records import HEAD_BYTES, Piece, Reading, Record

_ESCAPE = re.compile(r"\\(?:[ntrf0\\]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")


def unescaped(separator: str) -> str:
    r"""A separator as a user writes it, with \n, \t, \f, \x1e and the like for what they stand for."""
    return _ESCAPE.sub(lambda found: found[0].encode("ascii").decode("unicode_escape"), separator)


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """The file's one record, or its parts."""
    return records(stream, piece.input.name, reading)


def records(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Record]:
    """The text, or the parts, of a stream of this name.

    Raises:
        DamagedError: there is a hole in it.
    """
    if reading.separator is not None:
        for offset, data, size in _parts(stream, reading.separator.encode(), reading.max_bytes):
            yield _record(name, offset, data, size, reading.max_bytes)
        return
    data = stream.read(reading.max_bytes + 1)
    check_holes(data)
    yield _record(name, None, data, None, reading.max_bytes)
    while stream.read(BUFFER_BYTES):
        pass  # of one too long, the rest must be there, whole


def _record(name: str, offset: int | None, data: bytes, size: int | None, max_bytes: int) -> Record:
    """A text of these bytes; `size` where they are but the head."""
    of = "file" if offset is None else "document"
    if (size or len(data)) > max_bytes:
        known = f": {size:,}" if size else ""
        return Record(name, offset, None, data[:HEAD_BYTES], f"longer than {max_bytes:,} bytes{known}")
    try:
        text = (data if offset else data.removeprefix(BOM)).decode("utf-8")
    except UnicodeDecodeError as error:
        return Record(name, offset, None, data[:HEAD_BYTES], f"invalid UTF-8 at byte {error.start} of the {of}")
    return Record(name, offset, text, data)


def _parts(stream: BinaryIO, separator: bytes, limit: int) -> Iterator[tuple[int, bytes, int]]:
    """(offset, bytes, their number) of what is between separators and not blank; of a part above the limit, a head."""
    data, base = b"", 0
    part = _Part(0, limit)
    for more in itertools.chain(chunks(stream), [b""]):
        data, at = data + more, 0
        while (end := data.find(separator, at)) >= 0:
            part.add(data[at:end])
            yield from part.taken()
            at = end + len(separator)
            part = _Part(base + at, limit)
        kept = min(len(separator) - 1, len(data) - at) if more else 0
        rest = len(data) - kept
        part.add(data[at:rest])
        base, data = base + rest, data[rest:]
    yield from part.taken()


@dataclasses.dataclass
class _Part:
    """A part as far as it is read: where it starts, its bytes up to the limit, and all its bytes' number."""

    start: int
    limit: int
    data: bytearray = dataclasses.field(default_factory=bytearray)
    size: int = 0
    is_blank: bool = True

    def add(self, more: bytes) -> None:
        self.size += len(more)
        self.data += more[: max(0, self.limit + 1 - len(self.data))]
        self.is_blank = self.is_blank and not (more if self.start else more.removeprefix(BOM)).strip()

    def taken(self) -> Iterator[tuple[int, bytes, int]]:
        if not self.is_blank:
            yield self.start, bytes(self.data), self.size
