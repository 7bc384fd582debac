"""JSON arrays of objects or texts: one record per element, at its offset, with one element in memory at a time.

The ends of elements are found by brackets and strings alone. An element is then parsed like a JSON line, so that a
broken element is bad and the next ones are read.
"""

import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO

from clearspan.pipelines.readers.jsonl import json_name, parse_any
from clearspan.pipelines.readers.streams import BOM, Bounded, DamagedError, chunks
from clearspan.pipelines.records import HEAD_BYTES, Reading, Record

SPACE = b" \t\r\n"
_MARK = re.compile(rb'["\[\]{},]')
_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
"""A string up to its closing quote, or up to the end of the data."""


def records(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Record]:
    """Yield the elements of the array in a stream, at their offsets in the decompressed file; `name` names the stream.

    Raises:
        DamagedError: the array is not closed, something follows it, or there is a hole in it.
    """
    for offset, data, size in _elements(stream, reading.max_bytes):
        if size > reading.max_bytes:
            yield Record(name, offset, None, data[:HEAD_BYTES], f"longer than {reading.max_bytes:,} bytes: {size:,}")
            continue
        value, problem = parse_any(data)
        if not problem and not isinstance(value, (dict, str)):
            value, problem = None, f"neither a JSON object nor a string but {json_name(value)}"
        yield Record(name, offset, value, data, problem.replace("of the line", "of the element"))


class _Element(Bounded):
    """The part of an element that has been read."""

    def add(self, part: bytes) -> None:
        if not self.size:
            self.start += len(part) - len(part := part.lstrip(SPACE))
        super().add(part)

    def taken(self) -> tuple[int, bytes, int]:
        """Return (offset, bytes, number of bytes) of the element, without whitespace around it."""
        data = bytes(self.data)
        if self.size <= self.limit + 1:
            data = data.rstrip(SPACE)
            return self.start, data, len(data)
        return self.start, data, self.size


def _elements(stream: BinaryIO, limit: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield (offset, bytes, number of bytes) of each element; only the head of an element above the limit."""
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
                string = _STRING.match(data, at)
                at = string.end() if string else at
                if at == len(data) or data[at] != ord('"'):
                    break  # the string continues; a backslash at the end escapes what follows
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
