"""Arrow tables in the IPC format, such as those that Hugging Face's save_to_disk writes: one record per row.

    stream form     messages with one record batch each, then an end mark
    file form       "ARROW1", then the stream form, then a footer and "ARROW1"

Both are read as streams. A stream without an end mark counts as damaged, because batches may have been lost. A message
is read as a whole, so the largest message determines the memory. A message of more than 128 MiB (MESSAGE_BYTES), and of
more than twice `ReadOptions.max_bytes`, is an error.
"""

import io
import json
from collections.abc import Collection, Iterator
from typing import BinaryIO

import pyarrow as pa

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers.columns import ROWS, arrow_columns, arrow_records, kept_arrow_columns, with_columns
from clearspan.pipelines.readers.formats import FirstBytes, Format
from clearspan.pipelines.readers.streams import BUFFER_BYTES, DamagedFileError
from clearspan.pipelines.records import ReadOptions, Record, Split
from clearspan.shards import storage

STREAM = b"\xff\xff\xff\xff"
"""First bytes of an Arrow stream. No text begins with them."""
FILE = b"ARROW1\0\0"
STATE = "state.json"
BESIDE = (STATE, "dataset_info.json")
ABOVE = "dataset_dict.json"
"""Files that Hugging Face's save_to_disk writes beside its tables (BESIDE), and in the folder above the folders of
several splits (ABOVE).
"""
MESSAGE_BYTES = 1 << 27
END = STREAM + bytes(4)


class ArrowTables(Format):
    """Format of files that hold an Arrow table."""

    name = "arrow"
    described = "Arrow"
    suffixes = (".arrow",)
    has_fields = is_container = is_numbered = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        """Return whether a file begins like an Arrow stream or an Arrow file.

        Args:
            head: the first bytes of the file.
            path: not used here; the path of the file.
        """
        length = int.from_bytes(head[4:8], "little")
        return head.startswith(FILE) or (head.startswith(STREAM) and 0 < length < 1 << 30 and length % 8 == 0)

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield the file's rows as records. The offset of a record is the index of its row, from 0.

        Args:
            stream: the whole file, decompressed.
            split: the whole file: Arrow tables are not cut into splits.
            reading: the rules for finding records, such as the names of the columns to read.

        Raises:
            PipelineError: a column to read is missing or ambiguous, or a message is too large.
            DamagedFileError: a part of the file is missing.
        """
        name = split.input.name
        messages = _Messages(stream, max(MESSAGE_BYTES, 2 * reading.max_bytes), name)
        with pa.ipc.open_stream(pa.PythonFile(messages, "r")) as table:
            columns = arrow_columns(table.schema, name, reading)
            kept = kept_arrow_columns(table.schema, name, reading) if reading.keep else None
            first = 0
            while True:
                try:
                    batch = table.read_next_batch()
                except StopIteration:
                    break
                beside = None if kept is None else with_columns(batch, kept)
                batch = with_columns(batch, columns)
                for read in (batch, beside):
                    if read is not None:
                        read.validate(full=True)
                for start in range(0, batch.num_rows, ROWS):
                    part = None if beside is None else beside.slice(start, ROWS)
                    yield from arrow_records(batch.slice(start, ROWS), name, reading, first + start, part)
                first += batch.num_rows
        messages.check_end()

    def descriptions(self, files: Collection[str]) -> set[str]:
        """Return the names of files that save_to_disk of the library `datasets` writes in addition to tables, e.g.
        state.json.

        They lie in the folder of a table, or in the folder above. All names are returned, even if the files do not
        exist.

        Args:
            files: the names of all input files, which include the tables.
        """
        folders = {name.rpartition("/")[0] for name in files if name.lower().endswith(self.suffixes)}
        beside = {f"{folder}/{name}".lstrip("/") for folder in folders for name in BESIDE}
        return beside | {f"{folder.rpartition('/')[0]}/{ABOVE}".lstrip("/") for folder in folders}

    def check_description(self, path: str, name: str, files: Collection[str]) -> None:
        """Check that the input files include all tables of a dataset that save_to_disk of the library `datasets` wrote.

        The file state.json names these tables.

        Args:
            path: path of a file that save_to_disk wrote in addition to the tables. If its name is not state.json,
                nothing is checked.
            name: the same path, relative to the common folder of all inputs.
            files: the names of all input files, as paths relative to their common folder.

        Raises:
            PipelineError: a table that state.json names is missing in `files`; or state.json names a file of indices,
                because the dataset has only some rows of the tables.
        """
        folder, _, last = name.rpartition("/")
        if last != STATE:
            return
        try:
            state = json.loads(storage.read_bytes(path))
            tables = [entry["filename"] for entry in state["_data_files"]]
        except (ValueError, LookupError, TypeError):
            return  # a file of this name from another program
        if state.get("_indices_data_files"):
            raise PipelineError(f"{path}: an index selects its rows: save it again after flatten_indices()")
        if missing := [name for name in tables if f"{folder}/{name}".lstrip("/") not in files]:
            raise PipelineError(
                f"{path}: {len(missing):,} of its {len(tables):,} tables are missing, e.g. {missing[0]}"
            )


class _Messages(io.RawIOBase):
    """File object for pyarrow that reads an Arrow stream. It raises PipelineError for a message above the size limit.

    It keeps the last bytes that were read, so that `check_end` can find out whether the stream is complete.
    """

    def __init__(self, stream: BinaryIO, limit: int, name: str) -> None:
        self.stream, self.limit, self.name = stream, limit, name
        self.tail = b""
        start = stream.read(len(FILE))
        self.is_file = start == FILE
        self._start = b"" if self.is_file else start

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if size > self.limit:
            raise PipelineError(
                f"{self.name}: a batch of rows has {size:,} bytes, more than {self.limit:,}: write fewer rows "
                f"per batch, or raise `max_document_bytes`"
            )
        data = self._start[:size]
        self._start = self._start[size:]
        while len(data) < size and (part := self.stream.read(size - len(data))):
            data += part
        self.tail = (self.tail + data[-len(END) :])[-len(END) :]
        return data

    def check_end(self) -> None:
        """Raise DamagedFileError if the bytes read so far do not end with the end mark of an Arrow stream.

        Raise it also if other bytes follow the mark, or, in the file form of Arrow, if the footer does not follow.
        """
        if self.tail != END:
            raise DamagedFileError("the end-of-stream marker is missing: batches may be missing, too")
        rest = b""
        while part := self.stream.read(BUFFER_BYTES):
            rest = (rest + part)[-BUFFER_BYTES:]
        if self.is_file and not rest.endswith(FILE.rstrip(b"\0")):
            raise DamagedFileError("no footer at its end")
        if rest and not self.is_file:
            raise DamagedFileError("data follows its end")
