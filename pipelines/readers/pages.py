"""Finds where a parquet file's row groups and pages are, and how large, from its footer and the headers of pages.

Arrow takes a page's memory before it looks at it, and its own view of a damaged footer can end the process: both are
read here, as far as they are numbers, in Thrift's compact protocol. What field of which struct is what: parquet.thrift.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from clearspan.pipelines.readers.streams import DamagedError
from clearspan.shards import storage

HEADER_BYTES = 1 << 10
LONGEST_BYTES = 1 << 24
"""A page's header may hold the column's least and greatest text."""
END = b"PAR1"
DICTIONARY_PAGE = 2
DELTA_BYTE_ARRAY = 7
ENCODINGS = {5: 2, 8: 4}
"""Where a page's header has its encoding: in the field of its version, in which field."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a row group: where its first page is, and its bytes as stored."""

    start: int
    stored: int


@dataclasses.dataclass(frozen=True)
class Page:
    """A page's decompressed bytes, and whether what is in it once may be in every row: it is a dictionary, or its texts
    begin as those before them do.
    """

    bytes: int
    repeats: bool


@dataclasses.dataclass(frozen=True)
class RowGroup:
    num_rows: int
    columns: dict[str, Column]

    @property
    def start(self) -> int:
        return min((column.start for column in self.columns.values()), default=0)


def row_groups(stream: BinaryIO) -> list[RowGroup]:
    """A file's row groups, in order; leaves the stream somewhere.

    Raises:
        DamagedError: there is no footer that tells them.
    """
    stream.seek(max(0, stream.seek(0, os.SEEK_END) - 8))
    tail = stream.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != END or length > stream.tell() - 8:
        raise DamagedError("no footer at its end")
    stream.seek(-8 - length, os.SEEK_END)
    try:
        footer = _Thrift(stream.read(length)).struct()
        groups = [RowGroup(group[3], dict(map(_column, group[1]))) for group in footer[4]]
    except (IndexError, KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise DamagedError("its footer is not readable") from None
    if footer.get(3) != sum(group.num_rows for group in groups):
        raise DamagedError("its row groups do not add up to its rows")
    return groups


def _column(chunk: dict[int, Any]) -> tuple[str, Column]:
    values = chunk[3]
    start = values.get(11) or values[9]
    return b".".join(values[3]).decode(), Column(start, values[7])


def pages(stream: BinaryIO, column: Column) -> Iterator[Page]:
    """Each page of a column, in order.

    Raises:
        DamagedError: what is there is no page.
    """
    at = column.start
    while at < column.start + column.stored:
        page, length = _page(stream, at)
        yield page
        at += length


def _page(stream: BinaryIO, at: int) -> tuple[Page, int]:
    """The page at a place, and the bytes of it and its header as stored."""
    num_bytes = HEADER_BYTES
    while at >= 0 and num_bytes <= LONGEST_BYTES:
        header = _Thrift(storage.read_at(stream, at, num_bytes))
        try:
            fields = header.struct()
            kind, size, stored = fields[1], fields[2], fields[3]
            if size >= 0 and stored >= 0:
                repeats = kind == DICTIONARY_PAGE or any(
                    fields[number][encoding] == DELTA_BYTE_ARRAY
                    for number, encoding in ENCODINGS.items()
                    if number in fields
                )
                return Page(size, repeats), header.at + stored
        except (IndexError, KeyError, TypeError, RecursionError):
            pass  # perhaps it is longer
        num_bytes *= 16
    raise DamagedError(f"no page at byte {at:,}")


class _Thrift:
    """Values of Thrift's compact protocol, one after another. Raises IndexError where the data end before they do."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self) -> dict[int, Any]:
        """A struct's fields by their numbers."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = head & 15 if head & 15 in (1, 2) else self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (1, 2, 3):  # in a list a truth is a byte
            return self._byte()
        if kind in (4, 5, 6):
            return self._number()
        if kind == 7:
            return self._bytes(8)
        if kind == 8:
            return self._bytes(self._varint())
        if kind in (9, 10):
            head = self._byte()
            return [self._value(head & 15) for _ in range(self._varint() if head >> 4 == 15 else head >> 4)]
        if kind == 12:
            return self.struct()
        raise TypeError(kind)

    def _byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def _bytes(self, size: int) -> bytes:
        self.at += size
        if self.at > len(self.data):
            raise IndexError
        return self.data[self.at - size : self.at]

    def _varint(self) -> int:
        value = shift = 0
        while (byte := self._byte()) >= 128:
            value |= (byte & 127) << shift
            shift += 7
        return value | byte << shift

    def _number(self) -> int:
        value = self._varint()
        return value >> 1 ^ -(value & 1)
