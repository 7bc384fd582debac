"""Readers: pieces of input files to records, one file per format.

    file -> decompressed as it is read (`streams`) -> READERS[format] -> Record(name, offset, value, raw, problem)

A record that cannot be read is a Record with a `problem`; a file that cannot be read is a PipelineError that names it.
"""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from pipelines.errors import PipelineError
from pipelines.readers import jsonl, text
from pipelines.readers.streams import naming, opened
from pipelines.records import Piece, Record

READERS: dict[str, Callable[[BinaryIO, Piece, int], Iterator[Record]]] = {"jsonl": jsonl.read, "text": text.read}


def read_pieces(root: Path, pieces: Iterable[Piece], max_bytes: int) -> Iterator[Record]:
    """Every record of the pieces, in order; one of more than `max_bytes` is a problem, not a memory error.

    Raises:
        PipelineError: a file is damaged, or is not the one that was planned.
    """
    for piece in pieces:
        path, compression = root / piece.input.name, piece.input.compression
        if path.stat().st_size != piece.input.bytes:
            raise PipelineError(f"{path}: has changed since the run was planned: run again")
        with naming(path, compression), opened(path, compression) as stream:
            yield from READERS[piece.input.format](stream, piece, max_bytes)
