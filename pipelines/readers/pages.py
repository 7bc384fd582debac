"""Places and sizes of a parquet file's row groups and pages, from the footer and the page headers.

Arrow allocates a page's memory before it looks at the page, and a damaged footer can crash its process. This module
therefore reads the numbers in both, in Thrift's compact protocol. The field numbers are those of parquet.thrift.
"""

import dataclasses
import os
from collections.abc import Iterator
from typing import Any, BinaryIO

from clearspan.pipelines.readers.streams import DamagedError
from clearspan.shards import storage

HEADER_BYTES = 1 << 10
LONGEST_BYTES = 1 << 24
"""Longest page header: it may hold the smallest and the largest text of the column."""
END = b"PAR1"
DICTIONARY_PAGE = 2
DELTA_BYTE_ARRAY = 7
ENCODINGS = {5: 2, 8: 4}
"""Place of the encoding in a page header: the field of the page's version, and the field within it."""


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of a row group: the offset of its first page, and its bytes as stored."""

    start: int
    stored: int


@dataclasses.dataclass(frozen=True)
class Page:
    """A page: its decompressed bytes, and whether a value may repeat in every row (a dictionary, shared prefixes)."""

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
    """Return a file's row groups, in order; the stream is left at any position.

    Raises:
        DamagedError: the footer is missing or not readable.
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
    """Yield the pages of a column, in order.

    Raises:
        DamagedError: there is no page where one should be.
    """
    at = column.start
    while at < column.start + column.stored:
        page, length = _page(stream, at)
        yield page
        at += length


def _page(stream: BinaryIO, at: int) -> tuple[Page, int]:
    """Return the page at an offset, and the stored bytes of the page and its header."""
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
            pass  # the header may be longer
        num_bytes *= 16
    raise DamagedError(f"no page at byte {at:,}")


class _Thrift:
    """Reader of Thrift's compact protocol. Raises IndexError if the data end too early."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def struct(self) -> dict[int, Any]:
        """Return a struct's fields by number."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._number()
            fields[number] = head & 15 if head & 15 in (1, 2) else self._value(head & 15)
        return fields

    def _value(self, kind: int) -> Any:
        if kind in (1, 2, 3):  # a boolean in a list is a byte
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
