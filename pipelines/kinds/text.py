"""The text of a record, and its id: what every kind of text dataset begins with."""

import hashlib
from typing import Any

from pipelines.readers.jsonl import json_name
from pipelines.records import Record
from pipelines.tally import MissingFieldError, RecordError


def text_of(record: Record, field: str | None = None) -> tuple[str, bytes]:
    """A record's text, and the same as UTF-8; of a JSON object the text is its `field` (None: "text").

    Raises:
        RecordError: there is none, or it is no text.
    """
    if record.problem:
        raise RecordError(record.problem)
    text: Any = record.value
    if isinstance(text, dict):
        field = field or "text"
        if field not in text:
            raise MissingFieldError(
                f'no field "{field}"', list(text), "name the one that holds the text with --text-field"
            )
        text = text[field]
        if not isinstance(text, str):
            raise RecordError(f'"{field}" is not a string but {json_name(text)}')
    try:
        return text, text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise RecordError(f"half of a surrogate pair at character {error.start} of the text") from None


def text_id(data: bytes) -> int:
    """The first 63 bits of blake2b over a text's UTF-8 bytes."""
    return int.from_bytes(hashlib.blake2b(data).digest()[:8], "big") >> 1
