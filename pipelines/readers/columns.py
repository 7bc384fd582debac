"""Choose the columns of a table to read, and turn its rows into records. Parquet, Arrow and csv share this module.

The choice depends on the attributes of `ReadOptions`:

    set in ReadOptions             a record is
    `field` (--text-field)     the text in the column of this name
    nothing                    the text in the column "text"; if there is none, in the only column of texts
    `columns`                  a dict with the largest of these sets of columns that the table has completely
    `columns` and `by_order`   the same, or if a table of two or three columns has no such set, a dict with all columns

A name with dots, such as meta.text, means the column or field with this full name. If there is none, it means the field
`text` of the object `meta` (`nested`).
"""

import dataclasses
import functools
import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from clearspan.common.errors import PipelineError
from clearspan.common.field_names import matching_name, similar
from clearspan.common.parsing import normalized_name
from clearspan.pipelines.readers.streams import check_holes
from clearspan.pipelines.records import HEAD_BYTES, ReadOptions, Record

DEFAULT = "text"
ROWS = 256
"""Number of Arrow rows that are turned into records at a time."""
ROWS_OF = (2, 3)
"""Numbers of columns that a table may have to be read in the order of its columns, whatever their names."""
MAX_SETS = 4
EXTENSION = b"ARROW:extension:name"
UUID, JSON = "arrow.uuid", "arrow.json"
"""Names of the extension types of Arrow whose values can be stored as texts."""


def chosen(names: Sequence[str], reading: ReadOptions) -> list[str] | None:
    """Return the columns that make up a row, as the table names them; None if the table does not have such columns.

    They are the columns of the largest set in `reading.columns` that the table has completely. If it has none of the
    sets completely and `reading.by_order` is true, they are all columns of the table except those in `reading.keep`,
    provided that two or three columns are left.

    Args:
        names: names of all columns of the table.
        reading: the rules for finding records.
    """
    columns = _first_set(tuple(names), reading.columns)
    if columns is None and reading.by_order:
        beside = set(map(normalized_name, reading.keep))
        others = [name for name in names if normalized_name(name) not in beside] if beside else list(names)
        return others if len(others) in ROWS_OF else None
    return None if columns is None else list(columns)


@functools.lru_cache(maxsize=1024)
def _first_set(names: tuple[str, ...], sets: tuple[tuple[str, ...], ...]) -> tuple[str, ...] | None:
    """Return the largest set of column names that a table has completely, with the names as the table writes them.

    Of several equally large sets, return the first. Return None if the table has none of the sets completely.

    Args:
        names: names of all columns of the table.
        sets: the sets of column names to look for.
    """
    best: tuple[str, ...] | None = None
    for columns in sets:
        found = tuple(name for name in (matching_name(names, column) for column in columns) if name is not None)
        if len(set(found)) == len(columns) > len(best or ()):
            best = found
    return best


def shown_sets(sets: Sequence[Sequence[str]]) -> str:
    """Return sets of column names as a text for error messages, such as "anchor,positive or query,answer"."""
    more = " or the like" if len(sets) > MAX_SETS else ""
    return " or ".join(map(",".join, sets[:MAX_SETS])) + more


def dotted(reading: ReadOptions) -> list[str]:
    """Return the names that contain a dot, such as meta.text, among the names of fields and columns to read.

    Args:
        reading: the rules for finding records, which hold these names.
    """
    of_rows = (name for names in reading.columns for name in names)
    names = [*([reading.field] if reading.field else []), *of_rows, *reading.keep]
    return [name for name in dict.fromkeys(names) if "." in name]


def with_nested(records: Iterator[Record], names: Sequence[str]) -> Iterator[Record]:
    """Yield the records, with nested fields added to the records that hold an object.

    For example, the name meta.text adds a field "meta.text", whose value is that of the field `text` in the object
    `meta`. An object that has no such nested field does not get it.

    Args:
        names: the names of the fields to add, with dots.
    """
    for record in records:
        if isinstance(record.value, dict):
            found = {name: path for name in names if (path := nested(record.value, name)) is not None}
            value = {name: _at(record.value, path) for name, path in found.items()}
            yield dataclasses.replace(record, value={**record.value, **value}) if value else record
        else:
            yield record


def nested(fields: Mapping[str, Any], name: str) -> list[str] | None:
    """Return the path to a nested field, e.g. ["meta", "text"] for meta.text, with the names as the object writes them.

    Return None if there is no such field, or if `fields` itself has a field whose name is the whole of `name`, dots
    included. If an object on the path is null, the path ends with this object, because all of its fields count as null.

    Args:
        fields: the fields of a JSON object, name -> value; or the columns of a table, name -> type, where the type of a
            struct is a dict of its fields (`types_by_name`).
        name: the name with dots.
    """
    if matching_name(fields, name) is not None:
        return None
    path: list[str] = []
    rest, inner = name, fields
    while True:
        heads = [rest[:place] for place, character in enumerate(rest) if character == "."]
        found = ((head, matching_name(inner, head)) for head in [rest, *reversed(heads)])
        head, step = next((pair for pair in found if pair[1] is not None), ("", None))
        if step is None:
            return None
        path.append(step)
        if head == rest:
            return path
        rest, value = rest[len(head) + 1 :], inner[step]
        if value is None:
            return path
        if not isinstance(value, Mapping):
            return None
        inner = value


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value[name]
    return value


def names_in(fields: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the names of an object's fields, for error messages.

    If a field holds an object, the names of that object's fields are yielded instead, with dots: meta.text.

    Args:
        fields: the object.
        prefix: text to put before each name, such as "meta." if the object is the field `meta` of another object.
    """
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            yield from names_in(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def types_by_name(kinds: Iterable[pa.Field]) -> dict[str, Any]:
    """Return a dict from the name of each Arrow field to its type. For a struct, the value is such a dict of its
    fields.

    Args:
        kinds: the fields: a schema, or the type of a struct.
    """
    return {kind.name: types_by_name(kind.type) if pa.types.is_struct(kind.type) else kind.type for kind in kinds}


def text_column(
    names: Sequence[str], texts: Sequence[str], name: str, field: str | None, shown: Iterable[str] | None = None
) -> str:
    """Return the name of the column that holds the texts of a table.

    It is the column `field`. If that is None, it is the column "text", or, if there is none, the only column of texts.

    Args:
        names: the names of all columns.
        texts: the names of the columns that hold texts.
        name: the name of the file, for error messages.
        field: the name of the column, as the user gives it; None if the user gives none.
        shown: the names of columns to show in error messages; None to show `names`.

    Raises:
        PipelineError: there is no such column, or more than one.
    """
    sought = field or DEFAULT
    _check_once(names, similar(names, sought), name)
    column = sought if sought in names else matching_name(texts if field is None else names, sought)
    if column is not None:
        return column
    if field is None and len(texts) == 1:
        return texts[0]
    existing = f"columns of text: {', '.join(texts) or 'none'}; all: {', '.join(shown or names)}"
    raise PipelineError(f'{name}: no column "{sought}" ({existing}): name the column of the text with `text_field`')


def row_columns(names: Sequence[str], name: str, reading: ReadOptions, shown: Iterable[str] | None = None) -> list[str]:
    """Return the names of the columns of a table that make up a record, which is a row with several columns.

    Args:
        names: the names of all columns.
        name: the name of the file, for error messages.
        reading: the rules for finding records. Its `columns`, the sets of column names to look for, must not be empty.
        shown: the names of columns to show in error messages; None to show `names`.

    Raises:
        PipelineError: the table has none of the sets of columns, or a column of the row has the same name as another
            column.
    """
    columns = chosen(names, reading)
    if columns is None:
        raise PipelineError(
            f"{name}: no columns {shown_sets(reading.columns)}; there are {', '.join(shown or names) or 'none'}: name "
            f"them in order with `{reading.option}`"
        )
    _check_once(names, columns, name)
    return columns


def kept_columns(names: Sequence[str], name: str, reading: ReadOptions) -> dict[str, str]:
    """Return the columns to read in addition to the text or row: name that the user gives -> name in the table.

    Columns that the table does not have are left out.

    Args:
        names: the names of all columns.
        name: the name of the file, for error messages.
        reading: the rules for finding records. Its `keep` holds the names that the user gives.

    Raises:
        PipelineError: a column to read has the same name as another column of the table.
    """
    found = {wanted: column for wanted in reading.keep if (column := matching_name(names, wanted)) is not None}
    _check_once(names, list(found.values()), name)
    return found


def _check_once(names: Sequence[str], columns: Sequence[str], name: str) -> None:
    for column in columns:
        if (times := names.count(column)) > 1:
            raise PipelineError(f'{name}: {times} columns are named "{column}": keep one, or rename the others')


def arrow_columns(schema: pa.Schema, name: str, reading: ReadOptions) -> dict[str, list[str]]:
    """Return the columns of an Arrow table that hold the text or the row: name -> path.

    A path is a list: the name of a column and, if the text is in a struct, the names of the struct fields that lead to
    it. The name before the path is that of the column; for a text in a struct, it is the user's name with dots, such as
    meta.text.

    Args:
        schema: the schema of the table.
        name: the name of the file, for error messages.
        reading: the rules for finding records, with the names of columns that the user gives.

    Raises:
        PipelineError: the columns are missing or ambiguous, or do not hold texts. In a row, columns may also hold
            integers or lists of texts.
    """
    kinds = types_by_name(schema)
    paths = {column: [column] for column in schema.names}
    inner = {column: path for column in dotted(reading) if (path := nested(kinds, column)) is not None}
    names = [*schema.names, *inner]
    if reading.columns:
        columns = row_columns(names, name, reading, names_in(kinds))
    else:
        texts = [field.name for field in schema if _is_type(field.type, "string")]
        columns = [text_column(names, [*texts, *inner], name, reading.field, names_in(kinds))]
    paths |= inner
    for column in columns:
        field = schema.field(paths[column][0])
        for step in paths[column][1:]:
            field = field.type.field(step)
        is_label = bool(reading.columns) and pa.types.is_integer(field.type)
        extended = isinstance(field.type, pa.BaseExtensionType) or EXTENSION in (field.metadata or {})
        is_several = bool(reading.columns) and _is_list(field.type)
        if extended or not (_is_type(field.type, "string") or _is_type(field.type, "binary") or is_label or is_several):
            option = reading.option if reading.columns else "text_field"
            held = f"{field.type}, not text"
            if pa.types.is_struct(field.type):
                held = f"fields, not text: name one of them, e.g. {column}.{field.type.field(0).name}"
            raise PipelineError(f'{name}: its column "{column}" holds {held}: name another column with `{option}`')
    return {column: paths[column] for column in columns}


def kept_arrow_columns(schema: pa.Schema, name: str, reading: ReadOptions) -> dict[str, list[str]]:
    """Return the columns of an Arrow table to read in addition to the text or row: name that the user gives -> path.

    A path is a list: the name of a column and, if the value is in a struct, the names of the struct fields that lead to
    it. Columns that the table does not have are left out.

    Args:
        schema: the schema of the table.
        name: the name of the file, for error messages.
        reading: the rules for finding records. Its `keep` holds the names that the user gives.

    Raises:
        PipelineError: a column to read has the same name as another column, or does not hold texts, numbers, booleans
            or times.
    """
    kinds = types_by_name(schema)
    paths = {wanted: [column] for wanted, column in kept_columns(schema.names, name, reading).items()}
    paths |= {wanted: path for wanted in reading.keep if (path := nested(kinds, wanted)) is not None}
    for wanted, path in paths.items():
        held = schema.field(path[0]).type
        for step in path[1:]:
            held = held.field(step).type
        if not is_plain(held):
            raise PipelineError(
                f'{name}: its column "{wanted}" holds {held}: `keep_fields` and `group_field` '
                "take texts, numbers, booleans, times and UUIDs"
            )
    return paths


def is_plain(kind: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are texts, numbers, booleans, times or UUIDs. Such values can be
    stored with a text.
    """
    if pa.types.is_interval(kind):
        return False
    if isinstance(kind, pa.BaseExtensionType):
        return kind.extension_name in (UUID, JSON)
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    tests = (pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating)
    return _is_type(kind, "string") or any(test(kind) for test in (*tests, pa.types.is_temporal, pa.types.is_decimal))


def plain_values(column: pa.Array) -> list[Any]:
    """Return the values of a column of texts, numbers, booleans, times or UUIDs; None for a null.

    Times, decimals and UUIDs are returned as texts.
    """
    if isinstance(column.type, pa.BaseExtensionType) and column.type.extension_name == UUID:
        return [None if data is None else str(uuid.UUID(bytes=data)) for data in column.storage.to_pylist()]
    if isinstance(column.type, pa.BaseExtensionType):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_temporal(column.type) or pa.types.is_decimal(column.type):
        column = column.cast(pa.string())
    values: list[Any] = column.to_pylist()
    return values


def with_columns(batch: pa.RecordBatch, columns: Mapping[str, Sequence[str]]) -> pa.RecordBatch:
    """Return a batch with only some columns of a batch, under new names. A field of a struct becomes a column.

    Args:
        columns: new name -> path: the name of a column, and the names of the struct fields that lead to the value, if
            it is in a struct.
    """
    from pyarrow.compute import struct_field  # imported late: commands that read no table start sooner

    arrays = []
    for path in columns.values():
        array = batch.column(path[0])
        for name in path[1:]:
            array = struct_field(array, name)  # a field of a null struct is null
        arrays.append(array)
    return pa.record_batch(arrays, names=list(columns))


def _is_type(kind: pa.DataType, name: str) -> bool:
    """Return whether an Arrow type is text or binary, in any variant (such as large_string or a dictionary of strings).

    Args:
        name: "string" to test for text; "binary" to test for binary.
    """
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return str(kind) in (name, f"large_{name}", f"{name}_view")


def _is_list(kind: pa.DataType) -> bool:
    """Return whether an Arrow type is a list of texts."""
    return (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_type(kind.value_type, "string")


def arrow_records(
    batch: pa.RecordBatch, name: str, reading: ReadOptions, first: int, kept: pa.RecordBatch | None = None
) -> Iterator[Record]:
    """Yield the rows of a batch as records. The offset of a record is the index of its row in the file.

    Args:
        batch: the columns that hold the text or the row.
        name: the name of the file, for the records.
        reading: the rules for finding records. If it has `columns`, the value of a record is a dict, otherwise a text.
        first: index of the batch's first row in the file, from 0.
        kept: further columns to add to the records, which are then dicts; None if there are none.

    Raises:
        DamagedFileError: there is a hole (a long run of zero bytes) in a text.
    """
    columns = [_as_bytes(column) for column in batch.columns]
    if not reading.columns:
        texts = (cell(name, row, value.as_buffer(), reading.max_bytes) for row, value in enumerate(columns[0], first))
        yield from texts if kept is None else _with_kept(texts, kept, reading.field or DEFAULT)
        return
    rows = _arrow_rows(batch, columns, name, reading, first)
    yield from rows if kept is None else _with_kept(rows, kept)


def _arrow_rows(
    batch: pa.RecordBatch, columns: Sequence[pa.Array], name: str, reading: ReadOptions, first: int
) -> Iterator[Record]:
    """Yield the rows of a batch as records. The value of a record is a dict: name of a column -> text, or list of
    texts.

    Args:
        batch: the rows, for the names of the columns.
        columns: the contents of the columns, with texts as bytes.
        name: the name of the file, for the records.
        reading: the rules for finding records. A row of more than `reading.max_bytes` bytes is a bad record.
        first: index of the batch's first row in the file, from 0.

    Raises:
        DamagedFileError: there is a hole (a long run of zero bytes) in a text.
    """
    are_lists = [_is_list(column.type) for column in columns]
    for row, values in enumerate(zip(*columns, strict=True), first):
        cells = {
            column: _texts(name, row, value) if is_list else cell(name, row, value.as_buffer(), reading.max_bytes)
            for column, value, is_list in zip(batch.schema.names, values, are_lists, strict=True)
        }
        yield row_of(name, row, cells, reading.max_bytes)


def _texts(name: str, row: int, value: pa.Scalar) -> Record:
    """Return a record whose value is the list of texts in a cell, or None if the cell is null.

    Args:
        name: the name of the file.
        row: index of the row in the file, from 0.
        value: the cell.
    """
    texts = value.as_py()
    return Record(name, row, texts, "\n".join(filter(None, texts or [])).encode("utf-8", "surrogatepass"))


def _with_kept(records: Iterator[Record], kept: pa.RecordBatch, key: str | None = None) -> Iterator[Record]:
    """Yield the records with the contents of further columns added. Their values are then dicts: name -> content.

    A record with a problem is yielded unchanged.

    Args:
        kept: the columns to add; row i belongs to record i.
        key: if the values of `records` are texts, the key of the text in the dict; None if they are dicts already.
    """
    values = {name: plain_values(column) for name, column in zip(kept.schema.names, kept.columns, strict=True)}
    for place, record in enumerate(records):
        fields = {name: column[place] for name, column in values.items()}
        own = {key: record.value} if key is not None else record.value
        yield record if record.problem else dataclasses.replace(record, value={**own, **fields})


def _as_bytes(column: pa.Array) -> pa.Array:
    if _is_list(column.type):
        return column
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.large_binary())


def cell(name: str, row: int, buffer: pa.Buffer | None, max_bytes: int) -> Record:
    """Return the text of a cell as a record, which is bad if the text is too long or not UTF-8. The value of a null is
    None.

    Args:
        name: the name of the file.
        row: index of the row in the file, from 0.
        buffer: the bytes of the text; None for a null.
        max_bytes: the maximum number of bytes of a text.

    Raises:
        DamagedFileError: there is a hole (a long run of zero bytes) in the text.
    """
    if buffer is None:
        return Record(name, row, None, b"", number=row + 1)
    data = buffer.slice(0, min(buffer.size, max_bytes + 1)).to_pybytes()
    check_holes(data, place=f" of row {row:,}")
    return Record.of_text(name, row, data, max_bytes, "text", row + 1)


def row_of(name: str, row: int, cells: Mapping[str, Record], max_bytes: int) -> Record:
    """Return the cells of a row as one record. Its value is a dict: name of a column -> text, list of texts, or None
    for null.

    If a cell is bad, or the row is longer than `max_bytes`, the record is bad too.

    Args:
        name: the name of the file.
        row: index of the row in the file, from 0.
        cells: column name -> record of the cell.
        max_bytes: the maximum number of bytes of all texts of the row.
    """
    for column, text in cells.items():
        if text.problem:
            problem = f'"{column}": {text.problem}'
            return Record(name, row, None, text.raw, problem, number=row + 1, is_not_utf8=text.is_not_utf8)
    if (size := sum(len(text.raw) for text in cells.values())) > max_bytes:
        raw = next(text.raw for text in cells.values())
        return Record(name, row, None, raw, f"longer than {max_bytes:,} bytes: {size:,}", number=row + 1)
    value = {column: text.value for column, text in cells.items()}
    head = json.dumps(value, ensure_ascii=False)[:HEAD_BYTES].encode()
    return Record(name, row, value, head, number=row + 1)
