"""Parquet: one record per row (`columns`). A row group belongs to the piece in which it starts.

The columns __key__ and xz are those of one revision of OpenWebText: each row is an xz-compressed tar of .txt files.

Page checksums are verified where the file has them. Memory is bounded by the largest page, which may have PAGE_BYTES or
twice the longest allowed record.
"""

import io
from collections.abc import Iterator
from typing import BinaryIO, cast

import pyarrow as pa
import pyarrow.parquet as pq

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.columns import arrow_columns, arrow_records
from clearspan.pipelines.readers.pages import RowGroup, pages, row_groups
from clearspan.pipelines.readers.streams import BUFFER_BYTES, DamagedError
from clearspan.pipelines.readers.tars import printable, unpack
from clearspan.pipelines.records import Piece, Reading, Record

ROWS = 256
PACKED = ("__key__", "xz")
PACKED_ROWS = 4
PAGE_BYTES = 1 << 27
BATCH_BYTES = 1 << 27


def read(stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
    """Yield the piece's rows, at their row numbers in the file.

    Raises:
        PipelineError: the column is missing or ambiguous, or a page is too large.
        DamagedError: rows are missing.
    """
    name, groups = piece.input.name, row_groups(stream)
    stream.seek(0)
    with pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True) as table:
        columns = _columns(table, name, reading)
        packed = columns == list(PACKED) and not (reading.field or reading.columns)
        row = 0
        for number, group in enumerate(groups):
            if _is_in(group, piece):
                first = row
                rows = min(PACKED_ROWS if packed else ROWS, _rows_together(stream, group, columns, name, reading))
                for batch in table.iter_batches(rows, row_groups=[number], columns=columns, use_threads=False):
                    if packed:
                        yield from _packed(batch, piece, reading, first)
                    else:
                        yield from arrow_records(batch.select(columns), name, reading, first)
                    first += batch.num_rows
                if first != row + group.num_rows:
                    raise DamagedError(f"{first - row:,} rows of {group.num_rows:,} in row group {number}")
            row += group.num_rows


def columns(stream: BinaryIO, name: str, reading: Reading) -> tuple[list[str], list[str]]:
    """Return the names of all columns, and of those that `read` reads."""
    with pq.ParquetFile(stream, pre_buffer=False) as table:
        return table.schema_arrow.names, _columns(table, name, reading)


def _columns(table: pq.ParquetFile, name: str, reading: Reading) -> list[str]:
    schema = table.schema_arrow
    packed = not (reading.field or reading.columns) and all(schema.names.count(column) == 1 for column in PACKED)
    return list(PACKED) if packed else arrow_columns(schema, name, reading)


def _is_in(group: RowGroup, piece: Piece) -> bool:
    """Return whether a row group belongs to the piece. The first and last pieces also take those with false offsets."""
    after = piece.end is not None and piece.end < piece.input.bytes and group.start >= piece.end
    return not after and (not piece.start or group.start >= piece.start)


def _rows_together(stream: BinaryIO, group: RowGroup, columns: list[str], name: str, reading: Reading) -> int:
    """Return how many rows of a group can be decoded at once in bounded memory.

    Each row may be as large as the largest page, unless all pages together are within the bound and no page has a value
    that may be in many rows.

    Raises:
        PipelineError: a page is too large.
    """
    limit = max(PAGE_BYTES, 2 * reading.max_bytes)
    largest = 1
    if missing := set(columns) - set(group.columns):
        raise DamagedError(f'a row group without the column "{missing.pop()}"')
    for column in columns:
        column_pages = list(pages(stream, group.columns[column]))
        within = sum(page.bytes for page in column_pages) <= limit
        largest = max([largest, *(page.bytes for page in column_pages if page.repeats or not within)])
    if largest > limit:
        raise PipelineError(
            f"{name}: a page of {largest:,} bytes, above {limit:,}: write it with smaller pages, or raise "
            "--max-document-bytes"
        )
    return max(1, BATCH_BYTES // largest)


def _packed(batch: pa.RecordBatch, piece: Piece, reading: Reading, first: int) -> Iterator[Record]:
    keys = batch.column("__key__").to_pylist()
    for row, (key, value) in enumerate(zip(keys, batch.column("xz"), strict=True), first):
        buffer = value.as_buffer()
        if buffer is None:
            yield Record(piece.input.name, row, None, b"", "the packed texts are null")
            continue
        name = f"{piece.input.name}/{printable(str(key)).removeprefix('./')}.xz"
        yield from unpack(cast(BinaryIO, io.BytesIO(buffer.to_pybytes())), name, reading)
