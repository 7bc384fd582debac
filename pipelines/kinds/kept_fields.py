"""Record fields that are stored with the vectors: `--keep-fields id,title,meta.year`.

    first records of the inputs -> a type for each field -> every record's values -> columns `field_NAME`

A field has one type in the whole dataset: the type of its values in the first records, or the type that the user writes
after its name (`year:int64`). Cells of csv are texts. A text field also takes numbers and booleans, as JSON writes
them, and a number field also takes texts that can be parsed as a number. A value of any other type makes the record
bad, so that nothing is changed or lost silently. Null is stored if the record lacks the field, if the field is null, or
if a number field is an empty cell.
"""

import contextlib
import dataclasses
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from clearspan.common.flags import flag
from clearspan.common.parsing import did_you_mean, finite_number, whole_number
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.kinds.text_inputs import MOST_FIELDS
from clearspan.pipelines.readers.columns import matching_name, names_in
from clearspan.pipelines.readers.jsonl import json_name
from clearspan.pipelines.records import Record
from clearspan.pipelines.tally import RecordError
from clearspan.shards.schema import FIELD, FIELD_TYPES

INT64 = 1 << 63
Plain = str | int | float | bool | None


class FieldError(RecordError):
    """The value of a field cannot be stored, so that its record is bad.

    Attributes:
        field: the name of the field, as the user gives it.
    """

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def split(word: str) -> tuple[str, str | None]:
    """Split an entry of --keep-fields, e.g. "year:int64", into (name, type). The type is None if the entry has none."""
    name, colon, kind = word.rpartition(":")
    return (name, kind) if colon and kind in FIELD_TYPES else (word, None)


def check_names(words: Sequence[str]) -> None:
    """Raise ValueError if two entries of --keep-fields name the same field, or if a name is empty or not printable."""
    names = [split(word)[0] for word in words]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"{flag('--keep-fields')} names {twice} twice: leave one out")
    if odd := next((name for name in names if not name or not name.isprintable()), None):
        raise ValueError(f"{flag('--keep-fields')}: {odd!r} is not the name of a field")


def types_of(words: Sequence[str], records: Sequence[Record], option: str = "--keep-fields") -> dict[str, str]:
    """Return the type of each field: the type that the user writes, or else the type inferred from the first records.

    A type is "string", "int64", "double" or "bool".

    Args:
        words: the fields, as in --keep-fields.
        records: the first records.
        option: the option that names the fields, for error messages.

    Raises:
        PipelineError: a field whose type must be inferred is missing in all of the first records, or holds lists or
            objects.
    """
    objects = [record.value for record in records if isinstance(record.value, dict)]
    types = {}
    for name, kind in map(split, words):
        if kind is None:
            found = [value[key] for value in objects if (key := matching_name(value, name)) is not None]
            if not found:
                raise PipelineError(_missing(name, objects, len(records), option))
            kind = _type_of(name, [value for value in found if value is not None], option)
        types[name] = kind
    return types


def _missing(name: str, objects: Sequence[Mapping[str, Any]], num_records: int, option: str) -> str:
    known = list(dict.fromkeys(field for value in objects for field in names_in(value)))
    if not known:
        return f'{flag(option)}: the inputs have no field "{name}": they are plain text: leave the option out'
    listed = ", ".join(known[:MOST_FIELDS])
    where = f"the first {num_records:,} records have only {listed}"
    return f'{flag(option)}: no field "{name}": {where}{did_you_mean(name, known)}'


def _type_of(name: str, values: Sequence[Any], option: str) -> str:
    kinds = {type(value) for value in values}
    if other := [value for value in values if not isinstance(value, (str, int, float))]:
        held = json_name(other[0])
        raise PipelineError(f'{flag(option)}: "{name}" holds {held}: name fields of texts, numbers or booleans')
    if kinds == {bool}:
        return "bool"
    if kinds == {int} and all(-INT64 <= value < INT64 for value in values):
        return "int64"
    return "double" if kinds and kinds <= {int, float} else "string"


@dataclasses.dataclass(frozen=True)
class KeptFields:
    """The fields of records that are stored with the vectors.

    Attributes:
        types: the type of each field ("string", "int64", "double" or "bool"), by name and in the order of the columns.
        update: whether a finished dataset is updated, so that the types can only change in a new one.
    """

    types: Mapping[str, str]
    update: bool = False

    def of(self, record: Record) -> tuple[Plain, ...]:
        """Return the values of a record's fields, in the order of `types`; None for a field that the record lacks.

        Raises:
            FieldError: a value does not have the type of its field.
        """
        if not isinstance(record.value, dict):
            return (None,) * len(self.types)
        place = f", in a new {flag('--output')}" if self.update else ""
        return tuple(_value(record.value, name, kind, place) for name, kind in self.types.items())

    def columns(self, rows: Iterable[tuple[Plain, ...]]) -> dict[str, pa.Array]:
        """Return an Arrow column for each field, by the name of the column: `field_NAME`.

        Args:
            rows: for each record, the values of all fields, as the method `of` returns them.
        """
        if not self.types:
            return {}
        values = zip(*rows, strict=True)
        return {
            f"{FIELD}{name}": pa.array(column, FIELD_TYPES[kind])
            for (name, kind), column in zip(self.types.items(), values, strict=True)
        }


def _value(record: Mapping[str, Any], name: str, type_name: str, place: str = "") -> Plain:
    """Return the value of a record's field, converted to a type.

    The result is None if the record lacks the field, if the value is null, or if a number is expected and the value is
    an empty text or NaN.

    Args:
        record: the record.
        name: the name of the field.
        type_name: the type: "string", "int64", "double" or "bool".
        place: where another type can be chosen, for the message; "" for this run.

    Raises:
        FieldError: the value cannot be converted.
    """
    key = matching_name(record, name)
    value = None if key is None else record[key]
    if value is None:
        return None
    if type_name == "string":
        if isinstance(value, str):
            _check_utf8(value, name)
            return value
        if isinstance(value, (bool, int, float)):
            return orjson.dumps(value).decode() if not isinstance(value, int) else str(value).lower()
    elif type_name == "bool":
        if isinstance(value, bool):
            return value
    else:
        number = _number(value)
        if number is None and isinstance(value, str) and not value.strip():
            return None
        if number is not None and math.isnan(number):
            return None  # tables write NaN for a missing number
        if number is not None and type_name == "double" and math.isfinite(number):
            return float(number)
        if number is not None and -INT64 <= number < INT64 and int(number) == number:
            return int(number)
    shown = json_name(value) if not isinstance(value, (int, float)) or isinstance(value, bool) else str(value)
    raise FieldError(
        name,
        f'its "{name}" is {shown}, not {type_name} as in the first records: write {name}:string to keep all values as '
        f"text{place}",
    )


def _number(value: Any) -> int | float | None:
    """Return a value as a number, parsed if it is a text; None if it is neither a number nor the text of a number."""
    if isinstance(value, str):
        for parse in (whole_number, finite_number):
            with contextlib.suppress(ValueError, OverflowError):
                number = parse(value)
                float(number)  # raises OverflowError for a number that no float can hold
                return number
        return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _check_utf8(value: str, name: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FieldError(name, f'half of a surrogate pair at character {error.start} of the field "{name}"') from None
