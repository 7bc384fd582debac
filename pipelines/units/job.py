"""What every worker needs to know of a run, and what it leaves behind of a unit.

    DIR/plan.json  tokenizer/  documents-00003-001.tar ...  _done/00003.json  manifest.json
        _rejected/00003.jsonl.zst   its bad records       _excluded/00003.jsonl.zst what held an excluded text
        validation/ the held-out part, a dataset too      _curated/ verdicts (`curation`)
        _files/     the kind's other resources, such as synonyms

All of it stays in a finished dataset, and all of it is the same whatever interrupted the run: `_done` is the result
of each unit, and lets a run after damage redo only the units whose shards are gone.
"""

import dataclasses
import re
from typing import Any

from clearspan.pipelines.kinds import Kind, Worker
from clearspan.pipelines.records import Reading
from clearspan.pipelines.tally import Counts
from clearspan.pipelines.units.curation import Curation
from clearspan.shards import ShardInfo, storage
from clearspan.shards.manifest import resources
from clearspan.shards.reader import read_resource
from clearspan.shards.sealed import build, seal, unseal

DONE = "_done"
STAGED = "_staged"
CURATED = "_curated"
VALIDATION = "validation"
REJECTED = "_rejected"
EXCLUDED = "_excluded"
STOPPED = "_stopped.json"
RESULT_NAME = re.compile(r"\d{5}\.json")
_STAGED_NAME = re.compile(r"(?:(?P<kind>[a-z]+)-)?(?P<unit>\d{5})(?(kind)-\d{3}\.tar|\.(?:json|keys|links))")


@dataclasses.dataclass(frozen=True)
class Job:
    """A run as its workers see it: `plan` is the hash of its plan, `root` the inputs' common folder, `reading` what of
    them the kind takes, `beam` Beam's options.
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

    def reach_stores(self) -> None:
        """Sets up Beam's filesystems in this process where they are used; not every runner does it for its workers."""
        if storage.is_remote(self.folder) or storage.is_remote(self.root):
            storage.use_options(self.beam)

    def worker(self) -> Worker:
        """The kind at work, with its resources from the folder.

        Raises:
            ShardError: one of them is missing, or not the one of the plan.
        """
        named = resources(self.fingerprint)
        return self.kind.worker({path: read_resource(self.folder, path, sha256) for path, sha256 in named.items()})

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

    def stages(self, name: str) -> bool:
        """Return whether a run of this plan writes a file of this name to `_staged`."""
        match = _STAGED_NAME.fullmatch(name)
        return match is not None and match["kind"] in (None, self.kind.name) and int(match["unit"]) < self.num_units

    def staged_path(self, unit: int) -> str:
        return storage.join(self.staged_folder, f"{unit:05d}.json")

    @staticmethod
    def keys_name(unit: int) -> str:
        """Names the file of the keys of the unit's documents, in the folder."""
        return f"{STAGED}/{unit:05d}.keys"

    @staticmethod
    def links_name(unit: int) -> str:
        """Return the path, in the folder, of the file with the keys of all texts of a unit's examples."""
        return f"{STAGED}/{unit:05d}.links"

    def path(self, name: str) -> str:
        """Gives the whole path of something in the folder."""
        return storage.join(self.folder, *name.split("/"))

    def verdicts_path(self, unit: int) -> str:
        return storage.join(self.folder, CURATED, f"{unit:05d}.zst")

    def done_path(self, unit: int) -> str:
        return storage.join(self.folder, DONE, f"{unit:05d}.json")

    @staticmethod
    def rejected_name(unit: int) -> str:
        """Names the file of the unit's bad records, in the folder."""
        return f"{REJECTED}/{unit:05d}.jsonl.zst"

    @staticmethod
    def excluded_name(unit: int) -> str:
        """Names the file of what held an excluded text in the unit, in the folder."""
        return f"{EXCLUDED}/{unit:05d}.jsonl.zst"

    @classmethod
    def lasting_names(cls, unit: int) -> tuple[str, ...]:
        """Names what a unit leaves beside its shards, where there is any of it, and a finished dataset keeps."""
        return cls.rejected_name(unit), cls.excluded_name(unit)

    @property
    def stopped_path(self) -> str:
        return storage.join(self.folder, STOPPED)


@dataclasses.dataclass(frozen=True)
class UnitResult:
    """The result of a finished unit of a plan; the `seconds` it took, by stage, are not part of what is written.

    `held` are the shards of its held-out part, whose documents `counts` counts as kept too; `files` the sha256 of what
    else the unit left, by path in the folder; `inputs` those of the files that it read and planning did not, in order.
    """

    shards: list[ShardInfo]
    counts: Counts
    held: list[ShardInfo] = dataclasses.field(default_factory=list)
    files: dict[str, str] = dataclasses.field(default_factory=dict)
    inputs: list[str] = dataclasses.field(default_factory=list)
    seconds: dict[str, float] = dataclasses.field(default_factory=dict, compare=False)

    def to_json(self, plan: str, unit: int) -> bytes:
        """Gives the file's bytes, for that unit of the plan with that hash."""
        record = dataclasses.asdict(self)
        del record["seconds"]
        return seal({"plan": plan, "unit": unit, **record})

    @classmethod
    def from_json(cls, data: bytes, plan: str, unit: int) -> "UnitResult":
        """Raises ValueError where the bytes are no result, not as they were written, or another unit's or plan's."""
        record = unseal(data)
        if (record.get("plan"), record.get("unit")) != (plan, unit):
            raise ValueError("the result of another unit, or of another plan's")
        try:
            shards, held = ([build(ShardInfo, shard) for shard in record[name]] for name in ("shards", "held"))
            inputs = list(map(str, record["inputs"]))
            return cls(shards, build(Counts, record["counts"]), held, dict(record["files"]), inputs)
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a result: {error}") from None


def done_units(folder: str, stage: str = DONE) -> set[int]:
    """The units that have a result."""
    names = storage.list_files(storage.join(folder, stage))
    return {int(name[:5]) for name in names if RESULT_NAME.fullmatch(name)}


def load_result(path: str, plan: str, unit: int) -> UnitResult | None:
    """A unit's result; None for one that is damaged or another's: it says nothing of the unit."""
    try:
        return UnitResult.from_json(storage.read_bytes(path), plan, unit)
    except ValueError:
        return None
