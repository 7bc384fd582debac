"""Readers: pieces of input files to records, one file per format.

    file -> decompressed as it is read (`streams`) -> READERS[format] -> Record(name, offset, value, raw, problem)

A record that cannot be read is a Record with a `problem`; a file that cannot be read, that is not the one that was
planned, or of which not all bytes are found, is a PipelineError that names it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, cast

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers import arrays, arrow, files, jsonl, lines, parquet, tables, tars, text
from clearspan.pipelines.readers.formats import own_format
from clearspan.pipelines.readers.sniff import sample
from clearspan.pipelines.readers.streams import decompressed, naming
from clearspan.pipelines.records import Piece, Reading, Record
from clearspan.shards import storage
from clearspan.shards.sealed import HashingFile

READERS: dict[str, Callable[[BinaryIO, Piece, Reading], Iterator[Record]]] = {
    "arrow": arrow.read,
    "csv": tables.read,
    "file": files.read,
    "json": arrays.read,
    "jsonl": jsonl.read,
    "lines": lines.read,
    "parquet": parquet.read,
    "tar": tars.read,
    "text": text.read,
}
CONTAINERS = ("arrow", "parquet", "tar")
"""Formats that can be damaged without being compressed."""
MEND = "put back the file it was, or begin again with another --output"
CHANGED = f"has changed since the run was planned: {MEND}"


def read_pieces(
    root: str, pieces: Iterable[Piece], reading: Reading, hashes: list[str] | None = None
) -> Iterator[Record]:
    """Every record of the pieces, in order; one longer than allowed is a problem, not a memory error. Of files that
    planning did not look at `hashes` receives the sha256, in order.

    Raises:
        PipelineError: a file is damaged, or is not the one that was planned.
    """
    for piece in pieces:
        entry, path = piece.input, storage.join(root, piece.input.name)
        container = entry.compression or (entry.format if entry.format in CONTAINERS else None)
        with storage.open_input(path) as stored:
            known = not entry.sample or sample(stored, entry.bytes) == entry.sample
            if storage.size(path) != entry.bytes or not known:
                raise PipelineError(f"{path}: {CHANGED}")
            hashing = None if entry.sample else HashingFile(stored)
            try:
                source = cast(BinaryIO, hashing) if hashing else stored
                with naming(path, container), decompressed(source, entry.compression) as stream:
                    read = READERS.get(entry.format) or own_format(entry.format).read
                    yield from read(stream, piece, reading)
                    found = stored.tell()
                    if hashing and hashes is not None:
                        hashes.append(hashing.info.sha256)
            except PipelineError:
                if (size := storage.size(path)) < entry.bytes:
                    raise PipelineError(_changed(path, "shortened", size, entry.bytes)) from None
                raise
            if piece.end is None and found < entry.bytes and entry.format != "parquet":
                if entry.format not in READERS and storage.size(path) == entry.bytes:
                    raise PipelineError(f"{path}: {entry.format} read {found:,} of {entry.bytes:,} bytes, not all")
                raise PipelineError(_changed(path, "shortened", found, entry.bytes))
            if found > entry.bytes:
                raise PipelineError(_changed(path, "lengthened", found, entry.bytes))


def _changed(path: str, how: str, found: int, planned: int) -> str:
    return f"{path}: was {how} while it was read ({found:,} bytes, {planned:,} planned): {MEND}"
