"""Record fields that are stored with the vectors: `--keep-fields id,title,meta.year`.

    first records of the inputs -> a type for each field -> every record's values -> columns `field_NAME`

A field has one type in the whole dataset: the type of its values in the first records, or the type that the user writes
after its name (`year:int64`). Cells of csv are texts. A text field also takes numbers and booleans, as JSON writes
them, and a number field also takes texts that can be parsed as a number. Numbers that neither int64 nor double holds
exactly make a text field; a number field refuses them, except that a field for which the user writes `double` rounds
fractions. A value of any other type makes the record bad, so that nothing is changed or lost silently. Null is stored
if the record lacks the field, if the field is null or NaN, or if a number field is an empty cell.
"""

import contextlib
import dataclasses
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import orjson
import pyarrow as pa

from clearspan.common.errors import PipelineError
from clearspan.common.field_names import matching_name
from clearspan.common.parsing import did_you_mean, exact_number, whole_number
from clearspan.pipelines.builders.text_inputs import MAX_FIELDS
from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.readers.columns import names_in
from clearspan.pipelines.readers.jsonl import json_name
from clearspan.pipelines.records import Record
from clearspan.shards.schema import FIELD, FIELD_TYPES

INT64 = 1 << 63
Plain = str | int | float | bool | None
Number = int | float | Decimal


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
        raise ValueError(f"`keep_fields` names {twice} twice: leave one out")
    if odd := next((name for name in names if not name or not name.isprintable()), None):
        raise ValueError(f"`keep_fields`: {odd!r} is not the name of a field")


def types_of(words: Sequence[str], records: Sequence[Record], option: str = "keep_fields") -> dict[str, str]:
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
        return f'`{option}`: the inputs have no field "{name}": they are plain text: leave the option out'
    listed = ", ".join(known[:MAX_FIELDS])
    where = f"the first {num_records:,} records have only {listed}"
    return f'`{option}`: no field "{name}": {where}{did_you_mean(name, known)}'


def _type_of(name: str, values: Sequence[Any], option: str) -> str:
    if other := [value for value in values if not isinstance(value, (str, Real, Decimal))]:
        held = json_name(other[0])
        raise PipelineError(f'`{option}`: "{name}" holds {held}: name fields of texts, numbers or booleans')
    if values and all(isinstance(value, bool) for value in values):
        return "bool"
    if not values or any(isinstance(value, (str, bool)) for value in values):
        return "string"
    numbers = [_number(value) for value in values]
    if all(isinstance(number, int) and -INT64 <= number < INT64 for number in numbers):
        return "int64"
    return "double" if all(isinstance(number, float) or _is_double(number) for number in numbers) else "string"


def _is_double(number: Number | None) -> bool:
    """Return whether a double holds a number exactly; an infinity does not count as a number."""
    if isinstance(number, int):
        with contextlib.suppress(OverflowError):
            return int(float(number)) == number
    return isinstance(number, float) and math.isfinite(number)


@dataclasses.dataclass(frozen=True)
class KeptFields:
    """The fields of records that are stored with the vectors.

    Attributes:
        types: the type of each field ("string", "int64", "double" or "bool"), by name and in the order of the columns.
        rounded: the names of the fields whose fractions are rounded to double, since the user has chosen this type.
        update: whether a finished dataset is updated, so that the types can only change in a new one.
    """

    types: Mapping[str, str]
    rounded: Collection[str] = ()
    update: bool = False

    def of(self, record: Record) -> tuple[Plain, ...]:
        """Return the values of a record's fields, in the order of `types`; None for a field that the record lacks.

        Raises:
            FieldError: a value does not have the type of its field.
        """
        if not isinstance(record.value, dict):
            return (None,) * len(self.types)
        place = ", in a new `output`" if self.update else ""
        return tuple(_value(record.value, name, kind, name in self.rounded, place) for name, kind in self.types.items())

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


def _value(record: Mapping[str, Any], name: str, type_name: str, is_rounded: bool, place: str) -> Plain:
    """Return the value of a record's field, converted to a type.

    The result is None if the record lacks the field, if the value is null or NaN, or if a number is expected and the
    value is an empty text.

    Args:
        record: the record.
        name: the name of the field.
        type_name: the type: "string", "int64", "double" or "bool".
        is_rounded: whether a fraction of more digits than a double has is rounded.
        place: where another type can be chosen, for the message; "" for this run.

    Raises:
        FieldError: the value cannot be converted.
    """
    key = matching_name(record, name)
    value = None if key is None else record[key]
    if value is None:
        return None
    if type_name == "string" and isinstance(value, str):
        _check_utf8(value, name)
        return value
    number = _number(value)
    if number is not None and number != number:  # tables write NaN for a missing number
        return None
    if type_name == "string":
        if (text := number_text(value)) is not None:
            return text
    elif type_name == "bool":
        if isinstance(value, bool):
            return value
    elif number is None:
        if isinstance(value, str) and not value.strip():
            return None
    elif type_name == "double":
        is_fraction = isinstance(number, Decimal) and number != number.to_integral_value()
        if _is_double(number) or (is_rounded and is_fraction):
            return float(number)
    elif -INT64 <= number < INT64 and int(number) == number:
        return int(number)
    shown = json_name(value) if number is None or isinstance(value, str) else str(value)
    raise FieldError(
        name,
        f'its "{name}" is {shown}, not {type_name} as in the first records: write {name}:string to keep all values as '
        f"text{place}",
    )


def number_text(value: object) -> str | None:
    """Return a number or a boolean as a text, with all of its digits, as JSON writes it; None for any other value."""
    if isinstance(value, bool):
        return str(value).lower()
    number = None if isinstance(value, str) else _number(value)
    if isinstance(number, float):
        return orjson.dumps(number).decode() if math.isfinite(number) else json.dumps(number)
    return None if number is None else str(number)


def _number(value: object) -> Number | None:
    """Return a value as a number, parsed if it is a text; None if it is neither a number nor the text of a number."""
    if isinstance(value, str):
        for parse in (whole_number, exact_number):
            with contextlib.suppress(ValueError):
                return parse(value.strip())
        return None
    if isinstance(value, (bool, Decimal)):
        return None if isinstance(value, bool) else value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else None


def _check_utf8(value: str, name: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise FieldError(name, f'half of a surrogate pair at character {error.start} of the field "{name}"') from None
