"""Description of a run for its workers, and the files that a run writes to its output folder.

    DIR/plan.json  tokenizer/  documents-00003-001.tar ...  _done/00003.json  manifest.json
        _rejected/00003.jsonl.zst   bad records            _excluded/00003.jsonl.zst   examples with an excluded text
        _near_duplicates/00003.jsonl.zst   dropped examples, and the examples that they resemble
        validation/ the held-out part, a dataset itself    _curated/ verdicts (`curation`)
        _files/     other resources of the kind, such as synonyms

All of these stay in a finished dataset, and none depends on interruptions of the run. `_done` holds the result of each
unit: after damage, a run repeats only the units whose shards are missing. `.clearspan/`, which is no part of the
dataset, says what units read (`changes`).
"""

import dataclasses
import re
from enum import StrEnum
from typing import Any

from clearspan.common.sealed import build, seal, unseal
from clearspan.pipelines.kinds import Kind, Worker
from clearspan.pipelines.records import Reading
from clearspan.pipelines.tally import Counts
from clearspan.pipelines.units.curation import Curation
from clearspan.shards import ShardInfo, held_out, storage
from clearspan.shards.manifest import FILES_FOLDER, TOKENIZER_FOLDER, resources
from clearspan.shards.reader import read_resource

DONE = "_done"
STAGED = "_staged"
CURATED = "_curated"
REJECTED = "_rejected"
EXCLUDED = "_excluded"
NEAR_DUPLICATES = "_near_duplicates"
LISTS = (REJECTED, EXCLUDED, NEAR_DUPLICATES)
"""The folders for lists of examples that a unit may write in addition to shards; a finished dataset keeps them."""
Entries = StrEnum(
    "Entries",
    "HEADS KEYS TEXTS BANDS SKETCHES SIDES DUPLICATES CANDIDATES CODES SIMILAR NAMES SENT REPLIES SIZES ROWS ELIGIBLE "
    "GROUPS TOGETHER NEAR LIMIT",
)
"""The entries that units write about their examples (the first six), and decisions. NAMES, SENT and REPLIES exist for
each iteration: sent0, sent1, ..."""
LASTING = (Entries.TOGETHER, Entries.NEAR, Entries.LIMIT)
"""Decisions that a finished dataset keeps."""
RECORDS = ".clearspan"
FOLDERS = (DONE, STAGED, CURATED, *LISTS, RECORDS, TOKENIZER_FOLDER, FILES_FOLDER)
"""The folders in an output folder to which a run writes, apart from the held-out part."""
STOPPED = "_stopped.json"
RESULT_NAME = re.compile(r"\d{5}\.json")
ROWS = rf"({'|'.join(Entries)})\d*-\d{{5}}\.rows"
"""The form of the names of files of entries."""
OWN_STAGED = re.compile(rf"\d{{5}}\.json|{ROWS}|[a-z]+-\d{{5}}-\d{{3}}\.tar")
"""The names of files that a run writes to STAGED."""


@dataclasses.dataclass(frozen=True)
class Job:
    """Description of a run for its workers.

    Attributes:
        folder: output folder.
        plan: hash of the plan.
        root: common folder of the inputs.
        reading: how records are read from the inputs.
        first_shard: number of the first unit's shards (`units.update`).
        beam: the user's options for Beam.
    """

    folder: str
    plan: str
    root: str
    kind: Kind
    fingerprint: dict[str, Any]
    num_units: int
    reading: Reading
    max_bad_fraction: float
    beam: tuple[str, ...] = ()
    curation: Curation = dataclasses.field(default_factory=Curation)
    first_shard: int = 0

    def worker(self) -> Worker:
        """Return the kind's worker, with its resources read from the output folder.

        Raises:
            ShardError: a resource is missing, or differs from the plan.
        """
        named = resources(self.fingerprint)
        return self.kind.worker({path: read_resource(self.folder, path, sha256) for path, sha256 in named.items()})

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons for which a good record may be dropped."""
        return (*self.kind.reasons, *self.curation.reasons.values())

    @property
    def validation_folder(self) -> str:
        """Folder of the held-out part."""
        return held_out.folder_of(self.folder)

    @property
    def datasets(self) -> list[str]:
        """Folders of the datasets that the run makes: the output, and the held-out part if there is one."""
        if self.curation.holdout_fraction:
            return [self.folder, self.validation_folder]
        return [self.folder]

    @property
    def staged_folder(self) -> str:
        """Folder of the files of the first stage."""
        return storage.join(self.folder, STAGED)

    @staticmethod
    def entries_name(entries: str, number: int) -> str:
        """Return the name of the file with this kind of entries, for a unit or for a slice of the key space."""
        return f"{CURATED if entries in LASTING else STAGED}/{entries}-{number:05d}.rows"

    def entries_path(self, entries: str, number: int) -> str:
        """Return the path of the file with this kind of entries, for a unit or for a slice of the key space."""
        return self.path(self.entries_name(entries, number))

    def path(self, name: str) -> str:
        """Return the path of a name in the output folder."""
        return storage.join(self.folder, *name.split("/"))

    def verdicts_path(self, unit: int) -> str:
        """Return the path of a unit's verdicts."""
        return storage.join(self.folder, CURATED, f"{unit:05d}.zst")

    def result_path(self, unit: int, stage: str = DONE) -> str:
        """Return the path of a unit's final result, or of the result of its first stage (STAGED)."""
        return storage.join(self.folder, stage, f"{unit:05d}.json")

    @staticmethod
    def list_name(folder: str, unit: int) -> str:
        """Return the name of a unit's file in one of LISTS."""
        return f"{folder}/{unit:05d}.jsonl.zst"

    @property
    def stopped_path(self) -> str:
        """Path of the message with which a worker stops the others."""
        return storage.join(self.folder, STOPPED)


@dataclasses.dataclass(frozen=True)
class UnitResult:
    """Result of a finished unit.

    Attributes:
        counts: counts of its records; held-out documents count as kept.
        held: shards of its held-out part.
        files: sha256 of the other files that the unit wrote, by name in the output folder.
    """

    shards: list[ShardInfo]
    counts: Counts
    held: list[ShardInfo] = dataclasses.field(default_factory=list)
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self, plan: str, unit: int) -> bytes:
        """Return the content of the result file, for a unit of the plan with this hash."""
        return seal({"plan": plan, "unit": unit, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, data: bytes, plan: str, unit: int) -> "UnitResult":
        """Read a result; raise ValueError if it is damaged, or belongs to a different unit or plan."""
        record = unseal(data)
        if (record.get("plan"), record.get("unit")) != (plan, unit):
            raise ValueError("the result of another unit or plan")
        try:
            shards, held = ([build(ShardInfo, shard) for shard in record[name]] for name in ("shards", "held"))
            return cls(shards, build(Counts, record["counts"]), held, dict(record["files"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a result: {error}") from None


def done_units(folder: str, stage: str = DONE) -> set[int]:
    """Return the units that have a result."""
    names = storage.list_files(storage.join(folder, stage))
    return {int(name[:5]) for name in names if RESULT_NAME.fullmatch(name)}


def load_result(path: str, plan: str, unit: int) -> UnitResult | None:
    """Return a unit's result; None if it is damaged, or belongs to a different unit or plan."""
    try:
        return UnitResult.from_json(storage.read_bytes(path), plan, unit)
    except ValueError:
        return None
