"""Which columns of a table are read, and their cells as records: the same for parquet, Arrow and csv.

reading                 a record is
--text-field NAME       the text in that column
nothing named           the text in "text", or in the only column of texts
`columns`               an object of the first set of columns that is there, or of all where they are two or three
"""

import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.streams import check_holes
from clearspan.pipelines.records import HEAD_BYTES, Reading, Record

DEFAULT = "text"
ROWS_OF = (2, 3)
"""A table of so many columns is read in its own order, whatever they are called."""
EXTENSION = b"ARROW:extension:name"


def chosen(names: Sequence[str], sets: Sequence[Sequence[str]]) -> list[str] | None:
    """The columns of a row among these names; None where it cannot be told which they are."""
    found = next((list(one) for one in sets if set(one) <= set(names)), None)
    if found is None and len(sets) != 1 and len(names) in ROWS_OF:
        return list(names)
    return found


def wanted(sets: Sequence[Sequence[str]]) -> str:
    """What `chosen` looks for, to be said where it is not found."""
    return " or ".join(",".join(one) for one in sets)


def text_column(names: Sequence[str], texts: Sequence[str], name: str, field: str | None) -> str:
    """The column that holds the text, of these names, of which `texts` hold texts.

    Raises:
        PipelineError: there is no such column, or it cannot be told which one is meant.
    """
    column = field or DEFAULT
    _check_once(names, [column], name)
    if column in names:
        return column
    if field is None and len(texts) == 1:
        return texts[0]
    found = f"columns of text: {', '.join(texts) or 'none'}; all: {', '.join(names)}"
    raise PipelineError(f'{name}: no column "{column}" ({found}): name the one that holds the text with --text-field')


def row_columns(names: Sequence[str], name: str, sets: Sequence[Sequence[str]]) -> list[str]:
    """The columns of a table's rows.

    Raises:
        PipelineError: they are not there, or it cannot be told which ones are meant.
    """
    columns = chosen(names, sets)
    if columns is None:
        raise PipelineError(
            f"{name}: no columns {wanted(sets)}; there are {', '.join(names) or 'none'}: name them in order with "
            "--columns"
        )
    _check_once(names, columns, name)
    return columns


def _check_once(names: Sequence[str], columns: Sequence[str], name: str) -> None:
    for column in columns:
        if (times := names.count(column)) > 1:
            raise PipelineError(f'{name}: {times} columns are named "{column}": keep one, or rename the others')


def arrow_columns(schema: pa.Schema, name: str, reading: Reading) -> list[str]:
    """The columns of an Arrow table that are read.

    Raises:
        PipelineError: they are not there, it cannot be told which ones are meant, or they hold no texts.
    """
    texts = [field.name for field in schema if _is_text(field.type)]
    if reading.columns:
        columns = row_columns(schema.names, name, reading.columns)
    else:
        columns = [text_column(schema.names, texts, name, reading.field)]
    for column in columns:
        field = schema.field(column)
        is_label = bool(reading.columns) and pa.types.is_integer(field.type)
        extended = isinstance(field.type, pa.BaseExtensionType) or EXTENSION in (field.metadata or {})
        if extended or not (_is_text(field.type) or _is_bytes(field.type) or is_label):
            option = "--columns" if reading.columns else "--text-field"
            raise PipelineError(
                f'{name}: its column "{column}" holds {field.type}, not text: name another with {option}'
            )
    return columns


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_bytes(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def arrow_records(batch: pa.RecordBatch, name: str, reading: Reading, first: int) -> Iterator[Record]:
    """The records of a batch of the columns that are read, at their row numbers from `first`.

    Raises:
        DamagedError: there is a hole in a text.
    """
    columns = [_as_bytes(column) for column in batch.columns]
    if not reading.columns:
        for row, value in enumerate(columns[0], first):
            yield cell(name, row, value.as_buffer(), reading.max_bytes)
        return
    for row, values in enumerate(zip(*columns, strict=True), first):
        cells = [cell(name, row, value.as_buffer(), reading.max_bytes) for value in values]
        yield row_of(batch.schema.names, cells, reading.max_bytes)


def _as_bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    return column.cast(pa.large_binary())


def cell(name: str, row: int, buffer: pa.Buffer | None, max_bytes: int) -> Record:
    """One cell's text as a record."""
    if buffer is None:
        return Record(name, row, None, b"", "the text is null")
    if buffer.size > max_bytes:
        head = buffer.slice(0, HEAD_BYTES).to_pybytes()
        return Record(name, row, None, head, f"longer than {max_bytes:,} bytes: {buffer.size:,}")
    data = buffer.to_pybytes()
    check_holes(data, of=f" of row {row:,}")
    try:
        return Record(name, row, data.decode("utf-8"), data)
    except UnicodeDecodeError as error:
        return Record(name, row, None, data[:HEAD_BYTES], f"invalid UTF-8 at byte {error.start} of the text")


def row_of(columns: Sequence[str], cells: Sequence[Record], max_bytes: int) -> Record:
    """A row's cells as one record: an object of texts by column, or the first problem among them."""
    for column, one in zip(columns, cells, strict=True):
        if one.problem:
            return Record(one.name, one.offset, None, one.raw, f'"{column}": {one.problem}')
    first = cells[0]
    if (size := sum(len(one.raw) for one in cells)) > max_bytes:
        return Record(first.name, first.offset, None, first.raw, f"longer than {max_bytes:,} bytes: {size:,}")
    value = {column: one.value for column, one in zip(columns, cells, strict=True)}
    return Record(first.name, first.offset, value, json.dumps(value, ensure_ascii=False)[:HEAD_BYTES].encode())
