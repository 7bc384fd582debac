"""JSON arrays of objects or of texts: one record an element, at its offset; streamed, one element in memory at a time.

Where elements end is found by their brackets and strings alone; what is between is then parsed as a JSON line is, so
that a broken element is bad and the next are read.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO

from clearspan.pipelines.readers.jsonl import json_name, parse_any
from clearspan.pipelines.readers.streams import BOM, DamagedError, chunks
from clearspan.pipelines.records import HEAD_BYTES, Piece, Reading, Record

SPACE = b" \t\r\n"
_MARK = re.compile(rb'["\[\]{},]')
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""A string up to its closing quote, or as far as it is there."""


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """The file's elements, at their offsets in the decompressed file."""
    return records(stream, piece.input.name, reading)


def records(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Record]:
    """The elements of the array in a stream of this name.

    Raises:
        DamagedError: the array does not end, something follows it, or there is a hole in it.
    """
    for offset, data, size in _elements(stream, reading.max_bytes):
        if size > reading.max_bytes:
            yield Record(name, offset, None, data[:HEAD_BYTES], f"longer than {reading.max_bytes:,} bytes: {size:,}")
            continue
        value, problem = parse_any(data)
        if not problem and not isinstance(value, (dict, str)):
            value, problem = None, f"neither a JSON object nor a string but {json_name(value)}"
        yield Record(name, offset, value, data, problem.replace("of the line", "of the element"))


@dataclasses.dataclass
class _Element:
    """An element as far as it is read: where it starts, its bytes up to the limit, and all its bytes' number."""

    start: int
    limit: int
    data: bytearray = dataclasses.field(default_factory=bytearray)
    size: int = 0

    def add(self, part: bytes) -> None:
        if not self.size:
            self.start += len(part) - len(part := part.lstrip(SPACE))
        self.size += len(part)
        self.data += part[: max(0, self.limit + 1 - len(self.data))]

    def taken(self) -> tuple[int, bytes, int]:
        data = bytes(self.data)
        if self.size <= self.limit + 1:
            data = data.rstrip(SPACE)
            return self.start, data, len(data)
        return self.start, data, self.size


def _elements(stream: BinaryIO, limit: int) -> Iterator[tuple[int, bytes, int]]:
    """(offset, bytes, their number) of each element; of one above the limit, its head."""
    parts = chunks(stream)
    data = next(parts, b"")
    opening = data.removeprefix(BOM).lstrip(SPACE)
    at = len(data) - len(opening) + 1
    if not opening.startswith(b"["):
        raise DamagedError("it does not begin as an array")
    base, depth, in_string, is_first = 0, 0, False, True
    element = _Element(at, limit)
    while True:
        start = at
        while at < len(data):
            if in_string:
                found = _STRING.match(data, at)
                at = found.end() if found else at
                if at == len(data) or data[at] != ord('"'):
                    break  # it goes on; a backslash at the end belongs to what follows
                in_string, at = False, at + 1
                continue
            mark = _MARK.search(data, at)
            if not mark:
                at = len(data)
                break
            at = mark.end()
            if mark[0] == b'"':
                in_string = True
            elif mark[0] in b"[{":
                depth += 1
            elif depth:
                depth -= mark[0] in b"]}"
            elif mark[0] != b"}":
                element.add(data[start : at - 1])
                is_last = mark[0] == b"]"
                if element.size or not (is_first and is_last):
                    yield element.taken()
                if is_last:
                    _check_end(parts, data[at:], base + at)
                    return
                element, start, is_first = _Element(base + at, limit), at, False
        element.add(data[start:at])
        rest = data[at:]
        base, data, at = base + at, rest + next(parts, b""), 0
        if data == rest:
            raise DamagedError(f"the array is not closed at its end, byte {base + len(rest):,}")
        if not element.size:
            element.start = base


def _check_end(parts: Iterator[bytes], rest: bytes, offset: int) -> None:
    for part in itertools.chain([rest], parts):
        if part.strip(SPACE):
            raise DamagedError(f"it goes on after the array's end at byte {offset:,}")
        offset += len(part)
