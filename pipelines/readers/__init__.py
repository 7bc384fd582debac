"""Readers: pieces of input files -> records, with one module per format.

    file -> decompressed as it is read (`streams`) -> READERS[format] -> Record(name, offset, value, raw, problem)

A record that cannot be read is a Record with a `problem`. A file that cannot be read, that has changed since planning,
or that is not read to its last byte, is a PipelineError that names the file. `formats` adds formats from outside.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, cast

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers import arrays, arrow, files, jsonl, lines, parquet, sniff, tables, tars, text, web
from clearspan.pipelines.readers.formats import own_format
from clearspan.pipelines.readers.streams import decompressed, naming
from clearspan.pipelines.records import Piece, Reading, Record
from clearspan.shards import storage
from clearspan.shards.sealed import HashingFile

Reader = Callable[[BinaryIO, Piece, Reading], Iterator[Record]]


def _whole(records: Callable[[BinaryIO, str, Reading], Iterator[Record]]) -> Reader:
    """Return the reader of a format whose files are never cut."""
    return lambda stream, piece, reading: records(stream, piece.input.name, reading)


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
    "warc": web.read,
}
CONTAINERS = ("arrow", "parquet", "tar", "warc")
"""Formats in which damage shows even without compression."""
MEND = "put back the file it was, or begin again with another --output"
CHANGED = f"has changed since the run was planned: {MEND}"


def read_pieces(
    root: str, pieces: Iterable[Piece], reading: Reading, hashes: list[str] | None = None
) -> Iterator[Record]:
    """Yield all records of the pieces, in order. A record longer than allowed has a `problem`; memory stays bounded.

    Args:
        hashes: receives the sha256 of each file that planning did not open, in order.

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
            hashing = None if entry.sample else HashingFile(stored)
            try:
                source = cast(BinaryIO, hashing) if hashing else stored
                resume = sniff.WARC if entry.format == "warc" else None
                with naming(path, container), decompressed(source, entry.compression, resume) as stream:
                    read = READERS.get(entry.format) or own_format(entry.format).read
                    yield from read(stream, piece, reading)
                    num_read = stored.tell()
                    if hashing and hashes is not None:
                        hashes.append(hashing.info.sha256)
            except PipelineError:
                if (size := storage.size(path)) < entry.bytes:
                    raise PipelineError(_changed(path, "shortened", size, entry.bytes)) from None
                raise
            if piece.end is None and num_read < entry.bytes and entry.format != "parquet":
                if entry.format not in READERS and storage.size(path) == entry.bytes:
                    raise PipelineError(f"{path}: {entry.format} read {num_read:,} of {entry.bytes:,} bytes, not all")
                raise PipelineError(_changed(path, "shortened", num_read, entry.bytes))
            if num_read > entry.bytes:
                raise PipelineError(_changed(path, "lengthened", num_read, entry.bytes))


def _changed(path: str, how: str, num_bytes: int, planned: int) -> str:
    return f"{path}: was {how} while it was read ({num_bytes:,} bytes, {planned:,} planned): {MEND}"
