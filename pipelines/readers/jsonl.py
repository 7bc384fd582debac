"""JSON lines, one object each. A line belongs to the piece of a file in which it begins. Blank lines are skipped."""

import contextlib
import json
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from numbers import Number
from typing import Any, BinaryIO

import orjson

from clearspan.common.line_ends import end_with_cr, with_lf
from clearspan.common.parsing import exact_number
from clearspan.pipelines.readers.formats import FirstBytes
from clearspan.pipelines.readers.lines import LineFormat, lines
from clearspan.pipelines.readers.streams import BOM
from clearspan.pipelines.records import Piece, Reading, Record, invalid_utf8
from clearspan.pipelines.suffixes import suffixes_of

_OPENING = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*"\s*:|\}|$)')
"""Pattern of the first bytes of a JSON object, which may be incomplete."""
_MANY_DIGITS = re.compile(rb":[ \t]*+(-?+[0-9][0-9.]{15,}+(?:[eE][+-]?[0-9]+)?)")
"""Pattern of a number, in a field, of so many digits that a float might not hold it exactly."""
_MAY_BE_ROUNDED = {float, type(None)}
"""Types of a field's value that may be a rounded number; None if the field is absent, nested or written differently."""
UINT64 = 1 << 64


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
            value, problem, is_not_utf8 = (None, problem, False) if problem else parse(line, reading.keep)
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
    text = with_lf(text) if end_with_cr(text) else text
    first, *others = text.split(b"\n")
    complete = [first, *others] if head.is_whole else [first, *others][:-1]
    is_object = (parse(line)[0] is not None for line in complete)
    return bool(_OPENING.match(first)) and (not complete or any(is_object))


Parsed = tuple[Any, str, bool]
"""The JSON value of a line, None if the line cannot be used; the reason why it cannot, "" if it can; and whether the
reason is that the line is not UTF-8."""


def parse(line: bytes, exact_fields: Sequence[str] = ()) -> Parsed:
    """Parse a line that must be a JSON object.

    Args:
        exact_fields: names of fields whose numbers must be exact: if neither an int nor a float holds the number
            exactly, it is a Decimal (`exact_number`). Numbers in other fields may be rounded to floats.
    """
    parsed = parse_any(line, exact_fields)
    if not parsed[1] and not isinstance(parsed[0], dict):
        return None, f"not a JSON object but {json_name(parsed[0])}", False
    return parsed


def parse_any(line: bytes, exact_fields: Sequence[str] = ()) -> Parsed:
    """Parse a line of JSON.

    Args:
        exact_fields: names of fields whose numbers must be exact, as in `parse`.
    """
    try:
        value = orjson.loads(line)
        if not (exact_fields and _may_be_rounded(value, line, exact_fields)):
            return value, "", False
        problem = "a number has too many digits"
    except orjson.JSONDecodeError as error:
        problem = str(error)
    # Python's json is slower than orjson, but reads NaN, which it also writes, and numbers of many digits.
    try:
        return json.loads(line.decode("utf-8"), parse_float=exact_number if exact_fields else None), "", False
    except UnicodeDecodeError as utf8:
        return None, invalid_utf8(utf8.start, "line"), True
    except (ValueError, RecursionError):
        return None, f"broken JSON: {problem}", False


def _may_be_rounded(value: Any, line: bytes, names: Sequence[str]) -> bool:
    """Return whether orjson may have rounded a number in one of the named fields of a JSON object to a float."""
    if type(value) is not dict or _MAY_BE_ROUNDED.isdisjoint(map(type, map(value.get, names))):
        return False
    numbers = _MANY_DIGITS.findall(line)
    return bool(numbers) and any(map(_is_rounded, numbers))


def _is_rounded(number: bytes) -> bool:
    """Return whether orjson rounds a number: an integer of more than 64 bits, or a fraction of too many digits.

    Return False for a part of a text that only resembles a number, such as 10.0.0.1.
    """
    with contextlib.suppress(ValueError):
        if repr(float(number)).encode() == number:  # almost all fractions
            return False
        if number.removeprefix(b"-").isdigit():
            return not -(UINT64 >> 1) <= int(number) < UINT64
        return isinstance(exact_number(number.decode()), Decimal)
    return False


def json_name(value: Any) -> str:
    """Return the JSON type of a parsed value with an article, e.g. "an object", for error messages.

    For a value that JSON does not have, return the name of its Python type.
    """
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value)) or ("a number" if isinstance(value, Number) else f"a {type(value).__name__}")
