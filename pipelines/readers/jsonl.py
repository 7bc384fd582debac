"""JSON lines: one object per line. A line belongs to the piece in which it starts; blank lines are skipped."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from clearspan.pipelines.readers.lines import lines
from clearspan.pipelines.records import Piece, Reading, Record


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """Yield the piece's records, at their offsets in the decompressed file."""
    return records(stream, piece.input.name, reading.max_bytes, piece.start, piece.end, piece.lines)


def records(
    stream: BinaryIO, name: str, max_bytes: int, start: int = 0, end: int | None = None, before: int = 0
) -> Iterator[Record]:
    """Yield the records of a stream between two offsets, behind `before` line ends; `name` names the stream."""
    for number, offset, line, problem in lines(stream, max_bytes, start, end, before):
        value = None
        if not problem:
            value, problem = parse(line)
        yield Record(name, offset, value, line, problem, number=number)


def parse(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """Return the object in a line and "", or None and the problem."""
    value, problem = parse_any(line)
    if not problem and not isinstance(value, dict):
        return None, f"not a JSON object but {json_name(value)}"
    return value, problem


def parse_any(line: bytes) -> tuple[Any, str]:
    """Return the JSON value in a line and "", or None and the problem."""
    try:
        return orjson.loads(line), ""
    except orjson.JSONDecodeError as error:
        # Python's json writes and reads NaN; orjson is strict.
        try:
            return json.loads(line.decode("utf-8")), ""
        except UnicodeDecodeError as utf8:
            return None, f"invalid UTF-8 at byte {utf8.start} of the line"
        except (ValueError, RecursionError):
            return None, f"broken JSON: {error}"


def json_name(value: Any) -> str:
    """Return the JSON type of a value, with its article, for messages."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
