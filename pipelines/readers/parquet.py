"""Parquet files: one record per row. A row group belongs to the split of the file in which it starts.

Page checksums are verified if the file has them. Rows are decoded in batches of at most 256 rows and about 128 MiB.
"""

from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers.columns import ROWS, arrow_columns, arrow_records, kept_arrow_columns, with_columns
from clearspan.pipelines.readers.formats import FirstBytes, Format, byte_ranges
from clearspan.pipelines.readers.streams import BUFFER_BYTES, DamagedFileError, naming_damage
from clearspan.pipelines.records import ReadOptions, Record, Split

BATCH_BYTES = 1 << 27
TRAILER_BYTES = 8
"""Size of the end of a file: the size of the metadata, and "PAR1"."""


class ParquetTables(Format):
    """Format of Parquet files."""

    name = described = "parquet"
    suffixes = (".parquet",)
    has_fields = is_container = seeks = is_numbered = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        return head.startswith(b"PAR1")

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield the rows of a split as records. The offset of a record is the row's number in the file, from 0.

        Raises:
            PipelineError: a column to read is missing or ambiguous, or the file only describes other files.
            DamagedFileError: a row group has not as many rows as the metadata of the file say.
        """
        name = split.input.name
        with pq.ParquetFile(
            stream, buffer_size=BUFFER_BYTES, pre_buffer=False, page_checksum_verification=True
        ) as table:
            schema = _with_uuids(table)
            columns = arrow_columns(schema, name, reading)
            kept = kept_arrow_columns(schema, name, reading) if reading.keep else None
            row = 0
            for number in range(table.num_row_groups):
                group = table.metadata.row_group(number)
                if _is_elsewhere(group):
                    raise PipelineError(f"{name}: only describes other Parquet files: leave it out")
                if _is_in(group, split):
                    first = row
                    rows = min(ROWS, max(1, BATCH_BYTES * group.num_rows // max(1, group.total_byte_size)))
                    stored = [".".join(path) for path in [*columns.values(), *(kept or {}).values()]]
                    for batch in table.iter_batches(rows, row_groups=[number], columns=stored, use_threads=False):
                        beside = None if kept is None else with_columns(_typed(batch, schema), kept)
                        yield from arrow_records(with_columns(batch, columns), name, reading, first, beside)
                        first += batch.num_rows
                    if first != row + group.num_rows:
                        raise DamagedFileError(f"{first - row:,} rows of {group.num_rows:,} in row group {number}")
                row += group.num_rows

    def cut(self, path: str, num_bytes: int, unit_bytes: int, whole: bool) -> list[tuple[int, int | None]]:
        return [(0, None)] if whole else byte_ranges(num_bytes, unit_bytes)

    def ranges_outside(self, stream: BinaryIO, split: Split) -> list[tuple[int, int]]:
        """Return the byte ranges (start, end) outside a split that `read` also reads.

        They are the rest of the last row group that starts in the split, and the metadata at the end of the file.
        """
        with naming_damage(split.input.name, self.name):
            metadata = pq.read_metadata(stream)
        groups = map(metadata.row_group, range(metadata.num_row_groups))
        end, of_file = split.start + split.bytes, split.input.bytes
        last = max([end, *(_end(group) for group in groups if _is_in(group, split))])
        return [(end, last), (max(0, of_file - metadata.serialized_size - TRAILER_BYTES), of_file)]


def _with_uuids(table: pq.ParquetFile) -> pa.Schema:
    """Return the schema of a file, in which columns of UUIDs have this type; pyarrow before 21 reads them as bytes."""
    stored = map(table.schema.column, range(len(table.schema)))
    uuids = {column.path for column in stored if column.logical_type.type == "UUID"}
    fields = (
        field.with_type(pa.uuid()) if field.name in uuids and field.type == pa.binary(16) else field
        for field in table.schema_arrow
    )
    return pa.schema(fields)


def _typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch in which the columns of UUIDs have this type."""
    kinds = [schema.field(field.name).type if field.type == pa.binary(16) else field.type for field in batch.schema]
    columns = [
        column if column.type == kind else pa.ExtensionArray.from_storage(kind, column)
        for column, kind in zip(batch.columns, kinds, strict=True)
    ]
    return pa.record_batch(columns, names=batch.schema.names)


def _columns(group: pq.RowGroupMetaData) -> list[pq.ColumnChunkMetaData]:
    return [group.column(number) for number in range(group.num_columns)]


def _is_elsewhere(group: pq.RowGroupMetaData) -> bool:
    """Return whether a row group is in another file, as the row groups of a `_metadata` file are."""
    return any(column.file_path for column in _columns(group))


def _start(column: pq.ColumnChunkMetaData) -> int:
    return int(column.dictionary_page_offset or column.data_page_offset)


def _end(group: pq.RowGroupMetaData) -> int:
    """Return the offset in the file at which a row group ends."""
    return max((_start(column) + column.total_compressed_size for column in _columns(group)), default=0)


def _is_in(group: pq.RowGroupMetaData, split: Split) -> bool:
    """Return whether a row group belongs to a split, i.e. whether it starts in the split.

    If the metadata of the file give an offset outside of the file, the group belongs to the first or the last split, so
    that it is not passed over.
    """
    start = min(map(_start, _columns(group)), default=0)
    after = split.end is not None and split.end < split.input.bytes and start >= split.end
    return not after and (not split.start or start >= split.start)
