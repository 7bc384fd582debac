"""Readers: pieces of input files to records, one file per format.

    file -> decompressed as it is read (`streams`) -> READERS[format] -> Record(name, offset, value, raw, problem)

A record that cannot be read is a Record with a `problem`; a file that cannot be read is a PipelineError that names it.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO

from pipelines.errors import PipelineError
from pipelines.readers import jsonl, lines, parquet, tars, text
from pipelines.readers.streams import naming, opened
from pipelines.records import Piece, Reading, Record
from shards import storage

READERS: dict[str, Callable[[BinaryIO, Piece, Reading], Iterator[Record]]] = {
    "jsonl": jsonl.read,
    "lines": lines.read,
    "parquet": parquet.read,
    "tar": tars.read,
    "text": text.read,
}
CONTAINERS = ("parquet", "tar")
"""Formats that can be damaged without being compressed."""


def read_pieces(root: str, pieces: Iterable[Piece], reading: Reading) -> Iterator[Record]:
    """Every record of the pieces, in order; one longer than allowed is a problem, not a memory error.

    Raises:
        PipelineError: a file is damaged, or is not the one that was planned.
    """
    for piece in pieces:
        path, compression = storage.join(root, piece.input.name), piece.input.compression
        if storage.size(path) != piece.input.bytes:
            raise PipelineError(f"{path}: has changed since the run was planned: run again")
        kind = piece.input.format
        container = compression or (kind if kind in CONTAINERS else None)
        with naming(path, container), opened(path, compression) as stream:
            yield from READERS[kind](stream, piece, reading)
