"""What every worker needs to know of a run, and what it leaves behind of a unit.

    DIR/plan.json  tokenizer/  documents-00003-001.tar ...  _done/00003.json  _rejected/00003.jsonl.zst  manifest.json
        validation/ the held-out part, a dataset too      _curated/ verdicts, excluded texts' hashes  (`curation`)
        _files/     what the kind's workers need besides, such as synonyms

All of it stays in a finished dataset, and all of it is the same whatever interrupted the run: `_done` is the account
of each unit, and lets a run after damage redo only the units whose shards are gone.
"""

import argparse
import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from pipelines.records import Record
from pipelines.tally import Counts, Tally
from pipelines.text.exclude import Excluded
from pipelines.text.tokenization import Encoder
from pipelines.units.curation import Curation
from shards import ShardInfo, storage
from shards.manifest import SHARD_NAME
from shards.reader import FILES_FOLDER
from shards.sealed import build, seal, unseal

DONE = "_done"
STAGED = "_staged"
CURATED = "_curated"
EXCLUDED = "excluded.u64"
VALIDATION = "validation"
REJECTED = "_rejected"
STOPPED = "_stopped.json"
ACCOUNT = re.compile(r"\d{5}\.json")
STAGED_NAME = re.compile(rf"\d{{5}}\.(json|keys)|{SHARD_NAME.pattern}")


class Maker(Protocol):
    """A kind at work in a worker, with all that it builds once."""

    def batches(
        self, records: Iterable[Record], encoder: Encoder, tally: Tally, excluded: Excluded | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The examples among a unit's records, in order, as record batches; every record is counted in `tally`."""


class Kind(Protocol):
    """What a kind of dataset does with its records; a frozen dataclass of the options that shape it."""

    name: ClassVar[str]
    """Of the kind, of its command, and of its examples in the plural."""
    summary: ClassVar[str]
    example: ClassVar[str]
    drops_duplicates: ClassVar[bool] = False
    """Whether it does unless told otherwise."""
    of_sentences: ClassVar[bool] = False
    """Whether an example is one sentence: of excluded texts each short sentence is then looked for by itself."""

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a good record may be filtered out: the keys of the manifest's counts."""

    @property
    def bytes_per_s(self) -> float:
        """About what one process reads of it: by this the number of processes is chosen."""

    @property
    def text_field(self) -> str | None:
        """Of a JSON object or a table, the field that holds the text."""

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """What the tokenizer must have, and is given where it lacks it."""
        return ()

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        """Adds its options."""

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        """Raises ValueError where a value makes no sense."""

    def options(self) -> dict[str, Any]:
        """What shapes the dataset, for its fingerprint."""

    def files(self) -> dict[str, bytes]:
        """What its workers need beside the tokenizer, by name: they find it in the output folder.

        Raises:
            PipelineError: a file that the options name is not there, or not what it should be.
        """
        return {}

    def maker(self, encoder: Encoder, files: Mapping[str, bytes]) -> Maker:
        """What does the work."""

    def nothing_kept(self, counts: Counts) -> str:
        """Why no record was kept."""

    def remarks(self, sums: Mapping[str, int]) -> list[str]:
        """What the summary says of all units' sums."""
        return []


@dataclasses.dataclass(frozen=True)
class Job:
    """A run as its workers see it: `plan` is the hash of its plan, `root` the inputs' common folder, `beam` Beam's
    options, `files` the names of what the kind's workers need.
    """

    folder: str
    plan: str
    root: str
    kind: Kind
    fingerprint: dict[str, Any]
    num_units: int
    max_document_bytes: int
    max_bad_fraction: float
    encoder: str
    beam: tuple[str, ...] = ()
    curation: Curation = dataclasses.field(default_factory=Curation)
    files: Sequence[str] = ()

    def reach_stores(self) -> None:
        """Sets up Beam's filesystems in this process where they are used; not every runner does it for its workers."""
        if storage.is_remote(self.folder) or storage.is_remote(self.root):
            storage.use_options(self.beam)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a good record may be left out."""
        return (*self.kind.reasons, *self.curation.reasons)

    @property
    def validation_folder(self) -> str:
        return storage.join(self.folder, VALIDATION)

    @property
    def staged_folder(self) -> str:
        return storage.join(self.folder, STAGED)

    def staged_path(self, unit: int) -> str:
        return storage.join(self.staged_folder, f"{unit:05d}.json")

    @staticmethod
    def keys_name(unit: int) -> str:
        """Where the keys of the unit's documents are, in the folder."""
        return f"{STAGED}/{unit:05d}.keys"

    def path(self, name: str) -> str:
        """Of something in the folder."""
        return storage.join(self.folder, *name.split("/"))

    def verdicts_path(self, unit: int) -> str:
        return storage.join(self.folder, CURATED, f"{unit:05d}.zst")

    @property
    def excluded_path(self) -> str:
        return storage.join(self.folder, CURATED, EXCLUDED)

    def done_path(self, unit: int) -> str:
        return storage.join(self.folder, DONE, f"{unit:05d}.json")

    @staticmethod
    def rejected_name(unit: int) -> str:
        """Where the unit's bad records are, in the folder."""
        return f"{REJECTED}/{unit:05d}.jsonl.zst"

    def file_path(self, name: str) -> str:
        return storage.join(self.folder, FILES_FOLDER, name)

    @property
    def stopped_path(self) -> str:
        return storage.join(self.folder, STOPPED)


@dataclasses.dataclass(frozen=True)
class Done:
    """The account of a finished unit of a plan; the `seconds` it took, by stage, are not part of what is written.

    `held` are the shards of its held-out part, whose documents `counts` counts as kept too; `files` the sha256 of what
    else the unit left, by path in the folder.
    """

    shards: list[ShardInfo]
    counts: Counts
    held: list[ShardInfo] = dataclasses.field(default_factory=list)
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict, compare=False)

    def to_json(self, plan: str, unit: int) -> bytes:
        """The account of that unit of the plan with that hash."""
        record = dataclasses.asdict(self)
        del record["seconds"]
        return seal({"plan": plan, "unit": unit, **record})

    @classmethod
    def from_json(cls, data: bytes, plan: str, unit: int) -> "Done":
        """Raises ValueError where the bytes are no account, not as they were written, or another unit's or plan's."""
        record = unseal(data)
        if (record.get("plan"), record.get("unit")) != (plan, unit):
            raise ValueError("the account of another unit, or of another plan's")
        try:
            shards, held = ([build(ShardInfo, shard) for shard in record[name]] for name in ("shards", "held"))
            return cls(shards, build(Counts, record["counts"]), held, dict(record["files"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not an account: {error}") from None


def done_units(folder: str, stage: str = DONE) -> set[int]:
    """The units that have an account."""
    names = storage.list_files(storage.join(folder, stage))
    return {int(name[:5]) for name in names if ACCOUNT.fullmatch(name)}


def load_account(path: str, plan: str, unit: int) -> Done | None:
    """A unit's account; None for one that is damaged or another's: it says nothing of the unit."""
    try:
        return Done.from_json(storage.read_bytes(path), plan, unit)
    except ValueError:
        return None
