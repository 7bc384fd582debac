"""Lines of JSON objects. A line belongs to the piece in which it starts; blank lines are no records."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from clearspan.pipelines.readers.lines import lines
from clearspan.pipelines.records import Piece, Reading, Record


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """The piece's records, at their offsets in the decompressed file."""
    return records(stream, piece.input.name, reading.max_bytes, piece.start, piece.end)


def records(stream: BinaryIO, name: str, max_bytes: int, start: int = 0, end: int | None = None) -> Iterator[Record]:
    """Reads the records of a stream of this name, between two offsets."""
    for offset, line, problem in lines(stream, max_bytes, start, end):
        value = None
        if not problem:
            value, problem = parse(line)
        yield Record(name, offset, value, line, problem)


def parse(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """A line's object, or what is wrong with it."""
    value, problem = parse_any(line)
    if not problem and not isinstance(value, dict):
        return None, f"not a JSON object but {json_name(value)}"
    return value, problem


def parse_any(line: bytes) -> tuple[Any, str]:
    """A line's value, whatever it is, or what is wrong with it."""
    try:
        return orjson.loads(line), ""
    except orjson.JSONDecodeError as error:
        # Python's own json writes NaN, and reads it; orjson is strict.
        try:
            return json.loads(line.decode("utf-8")), ""
        except UnicodeDecodeError as utf8:
            return None, f"invalid UTF-8 at byte {utf8.start} of the line"
        except (ValueError, RecursionError):
            return None, f"broken JSON: {error}"


def json_name(value: Any) -> str:
    """What JSON calls a value that is no object."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
