"""Readers: pieces of input files -> records, with one module per format.

    file -> decompressed as it is read (`streams`) -> READERS[format] -> Record(name, offset, value, raw, problem)

A record that cannot be read is a Record with a `problem`. A file that cannot be read, that has changed since planning,
or that is not read to its last byte, is a PipelineError that names the file. `formats` adds formats from outside.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers import (
    arrays,
    arrow,
    columns,
    files,
    jsonl,
    lines,
    parquet,
    sniff,
    tables,
    tars,
    text,
)
from clearspan.pipelines.readers.formats import own_format
from clearspan.pipelines.readers.streams import decompressed, naming, opened, transcoded
from clearspan.pipelines.records import Input, Piece, Reading, Record
from clearspan.shards import storage

Reader = Callable[[BinaryIO, Piece, Reading], Iterator[Record]]


def _whole(records: Callable[[BinaryIO, str, Reading], Iterator[Record]]) -> Reader:
    """Return the reader of a format whose files are never cut."""
    return lambda stream, piece, reading: records(stream, piece.input.name, reading)


WEB = "clearspan.plugins.web:WebArchives"
READERS: dict[str, Reader] = {
    "arrow": arrow.read,
    "csv": _whole(tables.records),
    "file": files.read,
    "json": _whole(arrays.records),
    "jsonl": jsonl.read,
    "lines": lines.read,
    "parquet": parquet.read,
    "tar": tars.read,
    "text": _whole(text.records),
    "warc": lambda stream, piece, reading: own_format(WEB).read(stream, piece, reading),
}
COLUMNS: dict[str, Callable[[BinaryIO, str, Reading], tuple[list[str], list[str]]]] = {
    "arrow": arrow.columns,
    "csv": tables.columns,
    "json": lambda stream, name, reading: columns.fields(arrays.records(stream, name, reading), reading),
    "jsonl": lambda stream, name, reading: columns.fields(jsonl.records(stream, name, reading.max_bytes), reading),
    "parquet": parquet.columns,
}
"""By format, a function that returns the names of a file's columns, or of the fields of its first object, and of those
that are read.
"""
TEXTS = ("csv", "json", "jsonl", "lines", "text")
"""Formats whose files may have another encoding than UTF-8."""
MOST_NAMED = 20
"""Most columns that a message names."""
CONTAINERS = ("arrow", "parquet", "tar", "warc")
"""Formats in which damage shows even without compression."""
CHANGED = "has changed since the run was planned: put back the file it was, or begin again with another --output"


def read_pieces(root: str, pieces: Iterable[Piece], reading: Reading) -> Iterator[Record]:
    """Yield all records of the pieces, in order. A record longer than allowed has a `problem`; memory stays bounded.

    Raises:
        PipelineError: a file is damaged, or has changed since planning.
    """
    for piece in pieces:
        entry, path = piece.input, storage.join(root, piece.input.name)
        container = entry.compression or (entry.format if entry.format in CONTAINERS else None)
        with storage.open_input(path) as stored:
            is_planned = not entry.sample or sniff.sample(stored, entry.bytes) == entry.sample
            if storage.size(path) != entry.bytes or not is_planned:
                raise PipelineError(f"{path}: {CHANGED}")
            try:
                with naming(path, container), decompressed(stored, entry.compression) as stream:
                    read = READERS.get(entry.format) or own_format(entry.format).read
                    yield from read(_as_utf8(stream, entry, reading), piece, reading)
                    num_read = stored.tell()
            except PipelineError:
                if storage.size(path) < entry.bytes:
                    raise PipelineError(f"{path}: {CHANGED}") from None
                raise
            if num_read != entry.bytes == storage.size(path) and entry.format not in READERS:
                raise PipelineError(f"{path}: {entry.format} read {num_read:,} of {entry.bytes:,} bytes, not all")
            is_cut = piece.end is None and num_read < entry.bytes and entry.format != "parquet"
            if is_cut or num_read > entry.bytes:
                raise PipelineError(f"{path}: {CHANGED}")


def first_records(root: str, entries: Iterable[Input], reading: Reading, number: int) -> list[Record]:
    """Return the first records of the first input that has columns or fields; none if no input has any."""
    entry = next((entry for entry in entries if entry.format in COLUMNS), None)
    if entry is None:
        return []
    with opened(storage.join(root, entry.name), entry.compression) as stream:
        records = READERS[entry.format](_as_utf8(stream, entry, reading), Piece(entry, 0, None), reading)
        return list(itertools.islice(records, number))


def columns_read(root: str, entries: Iterable[Input], reading: Reading) -> str | None:
    """Return a line on the first input that has columns or fields: which of them are read, and which are not."""
    entry = next((entry for entry in entries if entry.format in COLUMNS), None)
    if entry is None:
        return None
    with opened(storage.join(root, entry.name), entry.compression) as stream:
        names, read = COLUMNS[entry.format](_as_utf8(stream, entry, reading), entry.name, reading)
    others = [name for name in names if name not in read]
    more = f" and {len(others) - MOST_NAMED:,} more" if len(others) > MOST_NAMED else ""
    not_read = f"{', '.join(others[:MOST_NAMED])}{more}" if others else "none"
    return f"read from {entry.name}: {', '.join(read)}; not read: {not_read}" if read else None


def _as_utf8(stream: BinaryIO, entry: Input, reading: Reading) -> BinaryIO:
    return transcoded(stream, reading.encoding) if entry.format in TEXTS else stream
