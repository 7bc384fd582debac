"""JSON lines, one object each. A line belongs to the piece of a file in which it begins. Blank lines are skipped."""

import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from clearspan.pipelines.readers.formats import FirstBytes
from clearspan.pipelines.readers.lines import LineFormat, lines
from clearspan.pipelines.readers.streams import BOM
from clearspan.pipelines.records import Piece, Reading, Record, invalid_utf8
from clearspan.pipelines.suffixes import suffixes_of

_OPENING = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*"\s*:|\}|$)')
"""Pattern of the first bytes of a JSON object, which may be incomplete."""


class JsonlFiles(LineFormat):
    """Format of JSON lines: one JSON object per line."""

    name = "jsonl"
    described = "JSON lines or an array"
    suffixes = (".jsonl", ".ndjson")
    by_name = has_fields = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        return bool(set(self.suffixes) & set(suffixes_of(path))) or _starts_with_object(head)

    def read(self, stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
        """Yield the lines of a piece as records. A record's offset is the line's offset in the decompressed file."""
        name = piece.input.name
        for number, offset, line, problem in lines(stream, reading.max_bytes, piece.start, piece.end, piece.lines):
            value, problem, is_not_utf8 = (None, problem, False) if problem else parse(line)
            yield Record(name, offset, value, line, problem, number=number, is_not_utf8=is_not_utf8)


def _starts_with_object(head: FirstBytes) -> bool:
    """Return whether a text begins like JSON lines.

    Its first line must begin like a JSON object. If there are complete lines, at least one of them must be an object.

    Args:
        head: the first bytes of the text, which may end within a line.
    """
    text = head.removeprefix(BOM).lstrip()
    if not text.startswith(b"{"):
        return False
    first, *others = text.split(b"\n")
    complete = [first, *others] if head.is_whole else [first, *others][:-1]
    is_object = (parse(line)[0] is not None for line in complete)
    return bool(_OPENING.match(first)) and (not complete or any(is_object))


Parsed = tuple[Any, str, bool]
"""The JSON value of a line, None if the line cannot be used; the reason why it cannot, "" if it can; and whether the
reason is that the line is not UTF-8."""


def parse(line: bytes) -> Parsed:
    """Parse a line that must be a JSON object."""
    parsed = parse_any(line)
    if not parsed[1] and not isinstance(parsed[0], dict):
        return None, f"not a JSON object but {json_name(parsed[0])}", False
    return parsed


def parse_any(line: bytes) -> Parsed:
    """Parse a line of JSON."""
    try:
        return orjson.loads(line), "", False
    except orjson.JSONDecodeError as error:
        # Python's json writes and reads NaN; orjson is strict.
        try:
            return json.loads(line.decode("utf-8")), "", False
        except UnicodeDecodeError as utf8:
            return None, invalid_utf8(utf8.start, "line"), True
        except (ValueError, RecursionError):
            return None, f"broken JSON: {error}", False


def json_name(value: Any) -> str:
    """Return the JSON type of a parsed value with an article, e.g. "an object", for error messages."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
