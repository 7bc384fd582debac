"""JSON lines, one object each. A line belongs to the split of a file in which it begins. Blank lines are skipped."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from numbers import Number
from typing import Any, BinaryIO

import orjson

from clearspan.common.line_ends import end_with_cr, with_lf
from clearspan.common.parsing import exact_number
from clearspan.pipelines.readers.formats import FirstBytes
from clearspan.pipelines.readers.lines import LineFormat, lines
from clearspan.pipelines.readers.streams import BOM
from clearspan.pipelines.records import ReadOptions, Record, Split, invalid_utf8
from clearspan.pipelines.suffixes import suffixes_of

_OPENING = re.compile(rb'\{\s*("(?:[^"\\]|\\.)*"\s*:|\}|$)')
"""Pattern of the first bytes of a JSON object, which may be incomplete."""
_MANY_DIGITS = re.compile(rb":[ \t]*+(-?+[0-9](?:[0-9.]{15,}+(?:[eE][+-]?[0-9]+)?|[0-9.]{0,14}[eE][+-]?[0-9]{3,}))")
"""Pattern of a number, in a field, of so many digits or so large an exponent that a float might not hold it exactly."""
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

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield the lines of a split as records. A record's offset is the line's offset in the decompressed file."""
        name, keep = split.input.name, reading.keep
        for number, offset, line, problem in lines(stream, reading.max_bytes, split.start, split.end, split.lines):
            value, problem, is_not_utf8 = (None, problem, False) if problem else parse(line)
            if keep and value is not None and _may_be_rounded(value, line, keep):
                value, problem, is_not_utf8 = parse_exactly(line)
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


def parse(line: bytes) -> Parsed:
    """Parse a line that must be a JSON object. A number of too many digits may be rounded to a float."""
    parsed = parse_any(line)
    if not parsed[1] and not isinstance(parsed[0], dict):
        return None, f"not a JSON object but {json_name(parsed[0])}", False
    return parsed


def parse_any(line: bytes) -> Parsed:
    """Parse a line of JSON. A number of too many digits may be rounded to a float."""
    try:
        return orjson.loads(line), "", False
    except orjson.JSONDecodeError as error:
        # Python's json writes and reads NaN; orjson is strict.
        return _parse_slowly(line, str(error), float)


def parse_exactly(line: bytes) -> Parsed:
    """Parse a line of JSON. A number that neither an int nor a float holds exactly is a Decimal (`exact_number`)."""
    return _parse_slowly(line, "a number has too many digits", exact_number)


def _parse_slowly(line: bytes, problem: str, fraction: Callable[[str], float | Decimal]) -> Parsed:
    """Parse a line of JSON, which may hold NaN and integers of any size.

    Args:
        problem: the reason to state if the line is no JSON.
        fraction: function that parses numbers with a decimal point or an exponent.
    """
    try:
        return json.loads(line.decode("utf-8"), parse_float=fraction), "", False
    except UnicodeDecodeError as utf8:
        return None, invalid_utf8(utf8.start, "line"), True
    except (ValueError, RecursionError):
        return None, f"broken JSON: {problem}", False


def _may_be_rounded(value: dict[str, Any], line: bytes, names: Sequence[str]) -> bool:
    """Return whether a number in one of the named fields of a JSON object may have been rounded to a float."""
    if _MAY_BE_ROUNDED.isdisjoint(map(type, map(value.get, names))):
        return False
    return any(map(_is_rounded, _MANY_DIGITS.findall(line)))


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
