"""Lines of JSON objects. A line belongs to the piece in which it starts; blank lines are no records."""

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import orjson

from pipelines.readers.streams import BOM, BUFFER_BYTES
from pipelines.records import Piece, Record


def read(stream: BinaryIO, piece: Piece, max_bytes: int) -> Iterator[Record]:
    """The piece's records, at their offsets in the decompressed file."""
    offset = piece.start
    if offset:
        stream.seek(offset - 1)
        offset += _skip_line(stream) - 1
    while piece.end is None or offset < piece.end:
        line = stream.readline(max_bytes + 1)
        if not line:
            return
        if len(line) > max_bytes and not line.endswith(b"\n"):
            size = len(line) + _skip_line(stream)
            yield Record(piece.input.name, offset, None, line, f"longer than {max_bytes:,} bytes: {size:,}")
        else:
            size = len(line)
            if offset == 0:
                line = line.removeprefix(BOM)
            if not line.isspace() and line:
                value, problem = parse(line)
                yield Record(piece.input.name, offset, value, line, problem)
        offset += size


def _skip_line(stream: BinaryIO) -> int:
    """Bytes up to the end of the line, in bounded memory."""
    size = 0
    while part := stream.readline(BUFFER_BYTES):
        size += len(part)
        if part.endswith(b"\n"):
            break
    return size


def parse(line: bytes) -> tuple[dict[str, Any] | None, str]:
    """A line's object, or what is wrong with it."""
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        # Python's own json writes NaN, and reads it; orjson is strict.
        try:
            value = json.loads(line.decode("utf-8"))
        except UnicodeDecodeError as utf8:
            return None, f"invalid UTF-8 at byte {utf8.start} of the line"
        except (ValueError, RecursionError):
            return None, f"broken JSON: {error}"
    if not isinstance(value, dict):
        return None, f"not a JSON object but {json_name(value)}"
    return value, ""


def json_name(value: Any) -> str:
    """What JSON calls a value that is no object."""
    names = {dict: "an object", list: "an array", str: "a string", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")
