"""What every worker needs to know of a run, and what it leaves behind of a unit.

    DIR/plan.json  tokenizer/  documents-00003-001.tar ...  _done/00003.json  _rejected/00003.jsonl.zst  manifest.json

All of it stays in a finished dataset, and all of it is the same whatever interrupted the run: `_done` is the account
of each unit, and lets a run after damage redo only the units whose shards are gone.
"""

import argparse
import dataclasses
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from pipelines.records import Record
from pipelines.tally import Counts, Tally
from pipelines.tokenization import Encoder
from shards import ShardInfo, storage

DONE = "_done"
REJECTED = "_rejected"
STOPPED = "_stopped.json"


class Kind(Protocol):
    """What a kind of dataset does with its records; a frozen dataclass of the options that shape it."""

    name: ClassVar[str]
    reasons: ClassVar[tuple[str, ...]]
    """Why a good record may be filtered out: the keys of the manifest's counts."""

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None: ...

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self: ...

    def options(self) -> dict[str, Any]: ...

    def batches(self, records: Iterable[Record], encoder: Encoder, tally: Tally) -> Iterator[pa.RecordBatch]: ...

    def nothing_kept(self, read: int, longest: dict[str, int]) -> str: ...


@dataclasses.dataclass(frozen=True)
class Job:
    """A run as its workers see it; `root` is the inputs' common folder."""

    folder: str
    root: Path
    kind: Kind
    fingerprint: dict[str, Any]
    num_units: int
    max_document_bytes: int
    max_bad_fraction: float
    encoder: str

    def done_path(self, unit: int) -> str:
        return storage.join(self.folder, DONE, f"{unit:05d}.json")

    def rejected_path(self, unit: int) -> str:
        return storage.join(self.folder, REJECTED, f"{unit:05d}.jsonl.zst")

    @property
    def stopped_path(self) -> str:
        return storage.join(self.folder, STOPPED)


@dataclasses.dataclass(frozen=True)
class Done:
    """The account of a finished unit."""

    shards: list[ShardInfo]
    counts: Counts

    def to_json(self) -> bytes:
        return (json.dumps(dataclasses.asdict(self)) + "\n").encode()

    @classmethod
    def from_json(cls, data: bytes) -> "Done":
        record = json.loads(data)
        return cls([ShardInfo(**shard) for shard in record["shards"]], Counts(**record["counts"]))


def done_units(folder: str) -> set[int]:
    """The units that have an account."""
    names = storage.list_files(storage.join(folder, DONE))
    return {int(name[:5]) for name in names if not name.startswith(storage.TEMPORARY)}
