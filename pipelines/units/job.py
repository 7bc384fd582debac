"""Description of a run for its workers, and the names of the files that a run writes to its output folder.

    plan.json                         the plan of the run
    tokenizer/, _files/               resources: the tokenizer, and other files such as synonyms
    documents-00003-001.tar           a shard of unit 3
    _done/00003.json                  the result of unit 3
    _rejected/00003.jsonl.zst         bad records of unit 3
    _excluded/00003.jsonl.zst         examples that contain a text which the user excludes, e.g. of a test set
    _near_duplicates/00003.jsonl.zst  near-duplicates, each with the id of the earlier example that it resembles
    _curated/                         marks of the examples, such as KEEP or DUPLICATE (`curation`)
    validation/                       the held-out part, which is itself a dataset
    manifest.json                     written last

All of these files stay in a finished dataset. They are the same whether or not the run was interrupted. If a shard is
lost later, a run repeats only the unit of the shard. The folder `.clearspan/` is not part of the dataset; it records
what the units read (`changes`).
"""

import dataclasses
import re
from enum import StrEnum
from typing import Any

from clearspan.common.checksummed import build, dump_checksummed, load_checksummed
from clearspan.pipelines.builders import Builder, Worker
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.records import ReadOptions
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
"""The folders for the lists of records and examples that a unit may write. They stay in a finished dataset."""
Entries = StrEnum(
    "Entries",
    "HEADS KEYS TEXTS BANDS SKETCHES SIDES DUPLICATES CANDIDATES CODES SIMILAR NAMES SENT REPLIES SIZES ROWS ELIGIBLE "
    "GROUPS TOGETHER NEAR LIMIT",
)
"""Types of entries (`exchange`), and beginnings of their files' names. Units write the first six about their examples;
the others are decisions. NAMES, SENT and REPLIES exist for each iteration of `linking`: sent0, sent1, ..."""
LASTING = (Entries.TOGETHER, Entries.NEAR, Entries.LIMIT)
"""The decisions that stay in a finished dataset."""
RECORDS = ".clearspan"
FOLDERS = (DONE, STAGED, CURATED, *LISTS, RECORDS, TOKENIZER_FOLDER, FILES_FOLDER)
"""The folders in an output folder to which a run writes, apart from the held-out part."""
STOPPED = "_stopped.json"
RESULT_NAME = re.compile(r"\d{5}\.json")
ROWS = rf"({'|'.join(Entries)})\d*-(?P<number>\d{{5}})\.rows"
"""Regular expression for the names of files of entries; `number` is that of the unit or slice that writes the file."""


@dataclasses.dataclass(frozen=True)
class Job:
    """Description of a run for its workers.

    Attributes:
        folder: the output folder.
        plan: the SHA-256 of plan.json.
        root: the common folder of the inputs.
        builder: the builder of the dataset, with its options.
        fingerprint: the fingerprint in the plan.
        num_units: the number of work units.
        reading: the rules for reading records from the inputs.
        max_bad_fraction: the fraction of the records that may be bad.
        beam: the user's options for Beam, as command-line arguments.
        curation: the options that drop or hold out examples.
        first_shard: the number in the names of the first unit's shards. It is 0, unless the run updates an existing
            dataset (`units.update`).
    """

    folder: str
    plan: str
    root: str
    builder: Builder
    fingerprint: dict[str, Any]
    num_units: int
    reading: ReadOptions
    max_bad_fraction: float
    beam: tuple[str, ...] = ()
    curation: Curation = dataclasses.field(default_factory=Curation)
    first_shard: int = 0

    def worker(self) -> Worker:
        """Return an object that makes examples of this kind of dataset, with the resources in the output folder.

        Raises:
            ShardError: a resource is missing, or its hash is not the hash in the plan.
        """
        named = resources(self.fingerprint)
        return self.builder.worker({path: read_resource(self.folder, path, sha256) for path, sha256 in named.items()})

    @property
    def reasons(self) -> tuple[str, ...]:
        """The reasons for which the kind of dataset, or an option of curation, may drop a record that is not bad."""
        return (*self.builder.reasons, *self.curation.reasons.values())

    @property
    def validation_folder(self) -> str:
        """The folder of the held-out part."""
        return held_out.folder_of(self.folder)

    @property
    def datasets(self) -> list[str]:
        """The folders of the datasets that the run makes: the output folder, and the held-out part if there is one."""
        if self.curation.holdout_fraction:
            return [self.folder, self.validation_folder]
        return [self.folder]

    @property
    def staged_folder(self) -> str:
        """The folder to which work units write their files in the first of two stages.

        A run has two stages if examples of different units are compared.
        """
        return storage.join(self.folder, STAGED)

    @staticmethod
    def entries_name(entries: str, number: int) -> str:
        """Return the name, relative to the output folder, of a file by which work units exchange entries.

        An entry is a fixed-size record about an example (`units.exchange`).

        Args:
            entries: the type of the entries in the file, a value of `Entries`, such as KEYS. For entries that are
                written in several iterations (`linking`), the number of the iteration is appended, e.g. `sent0`.
            number: the number of the work unit or slice that writes the file.
        """
        return f"{CURATED if entries in LASTING else STAGED}/{entries}-{number:05d}.rows"

    def entries_path(self, entries: str, number: int) -> str:
        """Return the path of a file by which work units exchange entries, which are fixed-size records about examples.

        Args:
            entries: the type of the entries in the file, a value of `Entries`, such as KEYS. For entries that are
                written in several iterations (`linking`), the number of the iteration is appended, e.g. `sent0`.
            number: the number of the work unit or slice that writes the file.
        """
        return self.path(self.entries_name(entries, number))

    def path(self, name: str) -> str:
        """Return the path of a file in the output folder.

        Args:
            name: the path of the file relative to the output folder, with `/` between folders.
        """
        return storage.join(self.folder, *name.split("/"))

    def marks_path(self, unit: int) -> str:
        """Return the path of the file with the marks (KEEP, DUPLICATE, ...) of the examples of a work unit."""
        return storage.join(self.folder, CURATED, f"{unit:05d}.zst")

    def result_path(self, unit: int, stage: str = DONE) -> str:
        """Return the path of the file with the result of a work unit.

        Args:
            unit: the number of the unit.
            stage: DONE for the final result; STAGED for the result of the first of two stages.
        """
        return storage.join(self.folder, stage, f"{unit:05d}.json")

    @staticmethod
    def list_name(folder: str, unit: int) -> str:
        """Return the name, relative to the output folder, of a file in which a work unit lists records or examples.

        Args:
            folder: the name of the folder of such lists, one of LISTS, such as `_rejected` for bad records.
            unit: the number of the unit.
        """
        return f"{folder}/{unit:05d}.jsonl.zst"

    @property
    def stopped_path(self) -> str:
        """The path of the file in which a worker reports an error that makes the other workers stop."""
        return storage.join(self.folder, STOPPED)


@dataclasses.dataclass(frozen=True)
class UnitResult:
    """Result of a work unit, or of the first stage of a work unit.

    Attributes:
        shards: the descriptions of the unit's shards, for the manifest; the shards of the held-out part are not
            included.
        counts: the counts of the unit's records (kept, filtered, bad); held-out examples count as kept.
        held: the descriptions of the unit's shards of the held-out part, for its manifest.
        files: the other files that the unit wrote: path relative to the output folder -> SHA-256.
    """

    shards: list[ShardInfo]
    counts: Counts
    held: list[ShardInfo] = dataclasses.field(default_factory=list)
    files: dict[str, str] = dataclasses.field(default_factory=dict)

    def to_json(self, plan: str, unit: int) -> bytes:
        """Return the result as the content of its file in the output folder.

        Args:
            plan: the SHA-256 of plan.json.
            unit: the number of the unit.
        """
        return dump_checksummed({"plan": plan, "unit": unit, **dataclasses.asdict(self)})

    @classmethod
    def from_json(cls, data: bytes, plan: str, unit: int) -> "UnitResult":
        """Parse the content of the file of a result.

        Args:
            data: the content.
            plan: the SHA-256 of plan.json; the result must come from a run with this plan.
            unit: the number of the unit; the result must be from this unit.

        Raises:
            ValueError: the content is damaged, or belongs to a different unit or plan.
        """
        record = load_checksummed(data)
        if (record.get("plan"), record.get("unit")) != (plan, unit):
            raise ValueError("the result of another unit or plan")
        try:
            shards, held = ([build(ShardInfo, shard) for shard in record[name]] for name in ("shards", "held"))
            return cls(shards, build(Counts, record["counts"]), held, dict(record["files"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"not a result: {error}") from None


def done_units(folder: str, stage: str = DONE) -> set[int]:
    """Return the numbers of the work units whose result has a file. The content of the file is not checked.

    Args:
        folder: the output folder.
        stage: the folder of the results: DONE for the final results; STAGED for the results of the first of two stages.
    """
    names = storage.list_files(storage.join(folder, stage))
    return {int(name[:5]) for name in names if RESULT_NAME.fullmatch(name)}


def load_result(path: str, plan: str, unit: int) -> UnitResult | None:
    """Read the result of a work unit; return None if the file is damaged, or belongs to a different unit or plan.

    Args:
        path: the path of the file of the result, which must exist.
        plan: the SHA-256 of plan.json.
        unit: the number of the unit.
    """
    try:
        return UnitResult.from_json(storage.read_bytes(path), plan, unit)
    except ValueError:
        return None
