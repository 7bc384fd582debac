"""Parquet: one document a row of the text column. A row group belongs to the piece in which it starts.

columns                a row is
--text-field NAME      the text in it
none named             the text in "text", or in the only column of text
__key__, xz            OpenWebText's members as one revision of it holds them: each an xz-compressed tar of .txt
"""

import io
from collections.abc import Iterator
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import PipelineError
from pipelines.readers.streams import BUFFER_BYTES
from pipelines.readers.tars import unpack
from pipelines.records import HEAD_BYTES, Piece, Reading, Record

ROWS = 256
PACKED_ROWS = 4
DEFAULT = "text"


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """The piece's rows, at their numbers in the file.

    Raises:
        PipelineError: there is no such column, or it cannot be told which one is meant.
    """
    with pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False) as table:
        packed = reading.column is None and {"__key__", "xz"} <= set(table.schema_arrow.names)
        columns = ["__key__", "xz"] if packed else [_column(table.schema_arrow, piece.input.name, reading.column)]
        row = 0
        for group in range(table.num_row_groups):
            metadata = table.metadata.row_group(group)
            if piece.start <= _start(metadata) and (piece.end is None or _start(metadata) < piece.end):
                first = row
                rows = PACKED_ROWS if packed else ROWS
                for batch in table.iter_batches(rows, row_groups=[group], columns=columns, use_threads=False):
                    if packed:
                        yield from _packed(batch, piece, reading.max_bytes, first)
                    else:
                        yield from _texts(batch.column(0), piece, reading.max_bytes, first)
                    first += batch.num_rows
            row += metadata.num_rows


def _start(group: pq.RowGroupMetaData) -> int:
    """Where a row group's first page is."""
    columns = (group.column(index) for index in range(group.num_columns))
    return int(min(column.dictionary_page_offset or column.data_page_offset for column in columns))


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _column(schema: pa.Schema, name: str, wanted: str | None) -> str:
    texts = [field.name for field in schema if _is_text(field.type)]
    column = wanted or DEFAULT
    if column in schema.names:
        kind = schema.field(column).type
        if not (_is_text(kind) or _is_bytes(kind)):
            raise PipelineError(f'{name}: its column "{column}" holds {kind}, not text: name another with --text-field')
        return column
    if wanted is None and len(texts) == 1:
        return texts[0]
    found = f"columns of text: {', '.join(texts) or 'none'}; all: {', '.join(schema.names)}"
    raise PipelineError(f'{name}: no column "{column}" ({found}): name the one that holds the text with --text-field')


def _texts(column: pa.Array, piece: Piece, max_bytes: int, first: int) -> Iterator[Record]:
    name = piece.input.name
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    for row, value in enumerate(column.cast(pa.large_binary()), first):
        buffer = value.as_buffer()
        if buffer is None:
            yield Record(name, row, None, b"", "the text is null")
        elif buffer.size > max_bytes:
            head = buffer.slice(0, HEAD_BYTES).to_pybytes()
            yield Record(name, row, None, head, f"longer than {max_bytes:,} bytes: {buffer.size:,}")
        else:
            data = buffer.to_pybytes()
            try:
                yield Record(name, row, data.decode("utf-8"), data)
            except UnicodeDecodeError as error:
                problem = f"invalid UTF-8 at byte {error.start} of the text"
                yield Record(name, row, None, data[:HEAD_BYTES], problem)


def _packed(batch: pa.RecordBatch, piece: Piece, max_bytes: int, first: int) -> Iterator[Record]:
    keys = batch.column("__key__").to_pylist()
    for row, (key, value) in enumerate(zip(keys, batch.column("xz"), strict=True), first):
        buffer = value.as_buffer()
        if buffer is None:
            yield Record(piece.input.name, row, None, b"", "the packed texts are null")
            continue
        name = f"{piece.input.name}/{str(key).removeprefix('./')}.xz"
        yield from unpack(cast(BinaryIO, io.BytesIO(buffer.to_pybytes())), name, max_bytes)
