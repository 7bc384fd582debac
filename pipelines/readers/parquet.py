"""Parquet: one document a row of the text column. A row group belongs to the piece in which it starts.

columns                a row is
--text-field NAME      the text in it
none named             the text in "text", or in the only column of text
__key__, xz            OpenWebText's members as one revision of it holds them: each an xz-compressed tar of .txt

Checksums of pages are verified where the file has them. Memory is bounded by the largest page, and that by PAGE_BYTES
or twice the longest record allowed.
"""

import io
from collections.abc import Iterator
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.errors import PipelineError
from pipelines.readers.pages import RowGroup, pages, row_groups
from pipelines.readers.streams import BUFFER_BYTES, DamagedError, check_holes
from pipelines.readers.tars import printable, unpack
from pipelines.records import HEAD_BYTES, Piece, Reading, Record

ROWS = 256
PACKED = ("__key__", "xz")
PACKED_ROWS = 4
PAGE_BYTES = 1 << 27
BATCH_BYTES = 1 << 27
DEFAULT = "text"


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """The piece's rows, at their numbers in the file.

    Raises:
        PipelineError: there is no such column, it cannot be told which one is meant, or it would fill the memory.
        DamagedError: not all rows are there.
    """
    name, groups = piece.input.name, row_groups(stream)
    stream.seek(0)
    with pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True) as table:
        schema = table.schema_arrow
        packed = reading.field is None and all(schema.names.count(column) == 1 for column in PACKED)
        columns = list(PACKED) if packed else [_column(schema, name, reading.field)]
        row = 0
        for number, group in enumerate(groups):
            if _is_in(group, piece):
                first = row
                rows = min(PACKED_ROWS if packed else ROWS, _rows_together(stream, group, columns, name, reading))
                for batch in table.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False):
                    if packed:
                        yield from _packed(batch, piece, reading.max_bytes, first)
                    else:
                        yield from _texts(batch.column(0), piece, reading.max_bytes, first)
                    first += batch.num_rows
                if first != row + group.num_rows:
                    raise DamagedError(f"{first - row:,} rows of {group.num_rows:,} in row group {number}")
            row += group.num_rows


def _is_in(group: RowGroup, piece: Piece) -> bool:
    """Whether a row group starts in the piece; the first and the last have those that start nowhere in the file too."""
    after = piece.end is not None and piece.end < piece.input.bytes and group.start >= piece.end
    return not after and (not piece.start or group.start >= piece.start)


def _rows_together(stream: BinaryIO, group: RowGroup, columns: list[str], name: str, reading: Reading) -> int:
    """Tells how many rows of a group can be decoded at once in bounded memory: each may be as large as the largest
    page, but where all pages are within the bound and none has a text that may be in many rows.

    Raises:
        PipelineError: a page is too large.
    """
    limit = max(PAGE_BYTES, 2 * reading.max_bytes)
    largest = 1
    if missing := set(columns) - set(group.columns):
        raise DamagedError(f'a row group without the column "{missing.pop()}"')
    for column in columns:
        found = list(pages(stream, group.columns[column]))
        within = sum(page.bytes for page in found) <= limit
        largest = max([largest, *(page.bytes for page in found if page.repeats or not within)])
    if largest > limit:
        raise PipelineError(
            f"{name}: a page of {largest:,} bytes, above {limit:,}: write it with smaller ones, or raise "
            "--max-document-bytes"
        )
    return max(1, BATCH_BYTES // largest)


def _is_text(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(test(kind) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def _is_bytes(kind: pa.DataType) -> bool:
    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(test(kind) for test in (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_binary_view))


def _column(schema: pa.Schema, name: str, wanted: str | None) -> str:
    texts = [field.name for field in schema if _is_text(field.type)]
    column = wanted or DEFAULT
    if (times := schema.names.count(column)) > 1:
        raise PipelineError(f'{name}: {times} columns are named "{column}": keep one, or rename the others')
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
            check_holes(data, of=f" of row {row:,}")
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
        name = f"{piece.input.name}/{printable(str(key)).removeprefix('./')}.xz"
        yield from unpack(cast(BinaryIO, io.BytesIO(buffer.to_pybytes())), name, max_bytes)
