"""JSON arrays of objects or texts: one record per element, with one element in memory at a time.

If something in an array is not JSON, the rest of the file cannot be read, because it is unknown where the next element
begins. (In JSON lines, only the one line is lost.)
"""

import json
import re
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import Any, BinaryIO

from clearspan.common.parsing import exact_number
from clearspan.pipelines.readers.formats import FirstBytes, Format
from clearspan.pipelines.readers.jsonl import json_name
from clearspan.pipelines.readers.streams import BOM, DamagedFileError, chunks
from clearspan.pipelines.records import HEAD_BYTES, MAX_BYTES, ReadOptions, Record, Split
from clearspan.pipelines.suffixes import suffixes_of

_SIGN = re.compile(r"[\ufeff \t\r\n]*(\[[ \t\r\n]*\]|[\[,\]]?)[ \t\r\n]*")
"""Pattern of the bracket or comma before an element, or of the bracket after the last element,
with whitespace around it.
"""
OF_NUMBER = 3
"""A number that is followed by fewer characters, as by ".", "e" or "e+", may continue in the next part of the file."""
_element = json.JSONDecoder().raw_decode
_exact_element = json.JSONDecoder(parse_float=exact_number).raw_decode


class JsonArrays(Format):
    """Format of files that are one JSON array. Each element of the array is a record.

    It has no name in messages (`described`), because the name of JSON lines there is "JSON lines or an array".
    """

    name = "json"
    suffixes = (".json",)
    otherwise = "not one JSON object a line: make it so, e.g. jq -c ."
    is_text = has_fields = is_numbered = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        has_name = bool(set(self.suffixes) & set(suffixes_of(path)))
        return has_name and head.removeprefix(BOM).lstrip().startswith(b"[")

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        return records(stream, split.input.name, reading)


def records(stream: BinaryIO, name: str, reading: ReadOptions) -> Iterator[Record]:
    """Yield the elements of a JSON array as records. A record's offset is the element's offset in the decompressed
    file.

    Args:
        stream: the array, as bytes in UTF-8.
        name: name of the file, for the records.
        reading: the rules for finding records. An element of more than `reading.max_bytes` bytes is a bad record.

    Raises:
        DamagedFileError: the array has no end, is not JSON, or is followed by something else; or an element is too
            large to parse, because it is larger than both `reading.max_bytes` and 64 MB (MAX_BYTES).
    """
    parts, decode = chunks(stream), getincrementaldecoder("utf-8")("surrogateescape").decode
    most, element = max(reading.max_bytes, MAX_BYTES), _exact_element if reading.keep else _element
    text, at, offset, opening, number = "", 0, 0, "[", 0
    while True:
        sign = _SIGN.match(text, at)
        assert sign is not None  # every part of the pattern is optional
        is_last, start, problem = sign[1].endswith("]"), sign.end(), ""
        try:
            value, end = (None, start) if is_last else element(text, start)
        except (ValueError, RecursionError) as error:
            end, problem = len(text), getattr(error, "msg", str(error))
        if len(text) - end < OF_NUMBER and end - at <= most and (part := next(parts, b"")):
            text, at = text[at:] + decode(part), 0
            continue
        if problem or sign[1][:1] not in (opening, "]" if opening == "," else opening):
            reason = problem or f"found {sign[1] or 'an element'!r}, expected {opening!r}"
            raise DamagedFileError(f"the array is not closed at its end, or not JSON at byte {offset:,} ({reason})")
        offset += len(_bytes(text[at:start]))
        if is_last and end < len(text):
            raise DamagedFileError(f"data follows the end of the array at byte {offset:,}")
        if is_last:
            return
        data, number = _bytes(text[start:end]), number + 1
        yield _record(name, offset, value, data, reading.max_bytes, number)
        at, offset, opening = end, offset + len(data), ","


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _record(name: str, offset: int, value: Any, data: bytes, max_bytes: int, number: int) -> Record:
    """Return an element of an array as a record. It is a bad record if the element is too long, is not valid UTF-8, or
    is neither an object nor a string nor null.

    Args:
        name: the name of the file.
        offset: the offset of the element in the decompressed file, in bytes.
        value: the element, parsed.
        data: the bytes of the element.
        max_bytes: the maximum number of bytes of an element.
        number: the number of the element in the array, from 1.
    """
    record = Record.of_text(name, offset, data, max_bytes, "element", number)
    if not record.problem and not isinstance(value, (dict, str, type(None))):
        problem = f"neither a JSON object nor a string but {json_name(value)}"
        return Record(name, offset, None, data[:HEAD_BYTES], problem, number=number)
    return record if record.problem else Record(name, offset, value, data, number=number)
