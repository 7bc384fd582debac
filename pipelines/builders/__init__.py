"""The contract of a builder of datasets: how it reads the inputs, and the examples that it makes.

    Builder  the options, the rules for finding records in the inputs (`reading`), and the files that are made once and
             stored in the dataset's folder beside the shards (`resources`: a tokenizer, synonyms, class names)
    Worker   the part of a builder that runs in a worker process: records of a work unit -> batches of examples

To add a kind, add a file with its class to this folder, where its command is found without further registration, and an
entry with its columns to `shards.schema`. On the command line, a kind from outside this package is named
`module:Class`. Planning, the Beam graph and the readers are the same for all kinds.
"""

import contextlib
import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Annotated, Any, ClassVar, Protocol, Self

import pyarrow as pa
from annotated_types import Ge, Le

from clearspan.common.options import Flag, Json, Options, Quiet
from clearspan.pipelines.counter import Counts, RecordCounter, RecordError
from clearspan.pipelines.records import MAX_BYTES, Inputs, ReadOptions, Record
from clearspan.shards.manifest import FILES_FOLDER, numbered


@dataclasses.dataclass(frozen=True, kw_only=True)
class CorpusOptions(Options):
    """Options of every command that reads a corpus: its input, its output, the faults that it tolerates, and what it
    prints.
    """

    inputs: Annotated[tuple[str, ...], Flag("GLOB", name="--input", many=True, path=True)]
    """Input files, folders, or globs in quotes."""
    output: Annotated[str, Flag("DIR", output=True)]
    """Folder to write: a new or empty one, or the folder of an unfinished run, which is continued."""
    max_bad_fraction: Annotated[float, Flag("X"), Ge(0), Le(1)] = 0.001
    """Fail if a larger fraction of the records is bad, 0 to 1."""
    skip_unknown: Annotated[bool, Flag()] = False
    """Skip files of unknown types in folders and globs, instead of failing."""
    quiet: Quiet = False
    """Show no progress bar."""
    json: Json = False
    """Print JSON instead of text."""


def advice_for(reason: str) -> str:
    """Return advice for the user of a run that dropped all of its records; "" if there is no advice.

    Args:
        reason: the reason for which most of the records were dropped, such as "short_tokens".
    """
    advice = {
        "short_bytes": "lower `min_tokens`",
        "short_tokens": "lower `min_tokens`",
        "long_tokens": ("raise `max_tokens`; for a text file with a text per line add `text_per` line"),
        "few_words": "lower `min_words`",
        "language": "name other languages, or lower `language_threshold`",
        "equal_texts": "name another pair with `fields`",
        "no_pair": "choose another `structure`",
        "unpaired": "a premise needs an entailed and a contradicting hypothesis in one file",
    }
    return advice.get(reason, "")


class Worker(Protocol):
    """Object that makes the examples of a kind in a worker process. It is built once per process, for all its work
    units.
    """

    def examples(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a work unit's records, in order, as record batches with the kind's columns.

        Count every record in `counter`: as read, and also as kept, as filtered (for one of the kind's reasons) or as
        bad.
        """


Update = Annotated[bool, Flag()]
Dedup = Annotated[bool, Flag(negatable=True)]


@dataclasses.dataclass(frozen=True)
class BuildPlan:
    """Values that the user's options leave open, found before the work begins. A builder that has more of them derives
    a dataclass.

    Attributes:
        compares: whether the texts of examples are compared, to find duplicates or to hold out equal texts together.
            The worker of a builder of texts then attaches the hashes of the texts to its batches (`units.keys`).
        old: if a dataset is updated, the folder of the dataset before the update, and the file with the index of its
            vectors (`builders.copied`); otherwise None.
    """

    compares: bool = False
    old: tuple[str, str] | None = None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Builder(Options, ABC):
    """Builder of datasets of one kind: its options, and the parts that it has. A subclass is a frozen dataclass whose
    fields with a `Flag` are options of its command. A field whose type is a dataclass of options is a part that other
    builders may have too, such as `FileOptions`.

    Attributes:
        plan: the values that the options leave open. The run sets this field.
        dedup: if True, only the first of equal examples is kept. A builder that has a field `dedup: Dedup` has the
            option.
        near_dedup: Jaccard similarity at which two examples count as similar, so that only the first is kept; None to
            keep similar examples. If it is set, the worker attaches MinHash sketches to its batches (`text.minhash`).
        group_field: the field of the records that names the group of a row; None if there are no groups. The rows of a
            group are all held out or all trained on (`builders.groups`). A builder whose rows share texts may have this
            option. Its worker then attaches the hashes of the groups to its batches.
        update: if True, a finished dataset is brought up to date with changed inputs (`units.update`). A builder that
            has a field `update: Update` has the option.
        name: the name of the kind in `shards.schema`: a noun for the examples, in the plural.
        command: the name of the command; "" if it is the name of the kind.
        summary: a line for the lists of commands.
        description: a line for the help of the command; "" if `summary` is enough.
        example: a command line that makes a dataset of this kind.
        max_bytes: the default of --max-document-bytes. A record with more bytes is bad.
        rate: the default of `bytes_per_s`: the number of input bytes that one process handles per second.
        can_update: whether the builder has the option `update`.
        numbers_records: whether each example holds the number of its record in the input file (`units.numbering`).
        shares_texts: whether different examples may share a text. Examples that share a text are all held out or all
            trained on.
    """

    plan: BuildPlan = BuildPlan()

    name: ClassVar[str]
    command: ClassVar[str] = ""
    summary: ClassVar[str]
    description: ClassVar[str] = ""
    example: ClassVar[str]
    max_bytes: ClassVar[int] = MAX_BYTES
    rate: ClassVar[float] = 50e6
    can_update: ClassVar[bool] = False
    numbers_records: ClassVar[bool] = False
    shares_texts: ClassVar[bool] = False

    @property
    def dedup(self) -> bool:
        return False

    @property
    def near_dedup(self) -> float | None:
        return None

    @property
    def group_field(self) -> str | None:
        return None

    @property
    def update(self) -> bool:
        return False

    def with_plan(self, **changes: Any) -> Self:
        """Return a copy of the builder whose plan has other values.

        Args:
            changes: name of an attribute of `plan` -> its value.
        """
        return dataclasses.replace(self, plan=dataclasses.replace(self.plan, **changes))

    def resolved(self, earlier_options: Mapping[str, Any]) -> Self:
        """Return a copy of the builder whose plan has a definite value for each option that depends on the machine or
        on files: a device instead of `auto`, for example.

        Args:
            earlier_options: if an unfinished run is continued, the options in its fingerprint, whose values are used
                again; otherwise empty.
        """
        return self

    def infer_options(self, inputs: Inputs, reading: ReadOptions) -> Self:
        """Return a copy of the builder whose plan has the values that are inferred from the first records of the
        inputs. The run calls this method before it reads the inputs in full.

        Args:
            inputs: the input files.
            reading: the rules by which the readers find records in the inputs.

        Raises:
            PipelineError: an option does not fit the first records.
        """
        return self

    @property
    def reasons(self) -> tuple[str, ...]:
        """The names of the reasons for which a valid record may be filtered out, such as "short_tokens". The manifest
        counts the filtered records by reason.
        """
        return ()

    @property
    def bytes_per_s(self) -> float:
        """Approximate number of input bytes that one process handles per second. The default number of processes
        follows from it.
        """
        return self.rate

    @property
    def has_chunks(self) -> bool:
        """True if a record can become several consecutive rows, one for each chunk of its text. The rows of a text are
        all kept or all dropped.
        """
        return False

    def unit_bytes(self, inputs: Inputs) -> int | None:
        """Return the number of bytes of input that a work unit should have; None for the default number, which suits
        kinds that spend most of their time on reading.
        """
        return None

    def options(self) -> dict[str, Any]:
        """Return the options that determine the dataset's content, by name. They become a part of its fingerprint."""
        apart = ("plan", "update", "group_field")
        own = {name: value for name, value in dataclasses.asdict(self).items() if name not in apart}
        return {"dedup": self.dedup, "near_dedup": self.near_dedup, "compares": self.plan.compares, **own}

    @abstractmethod
    def reading(self) -> ReadOptions:
        """Return the rules by which the readers find records in the inputs."""

    def check(self, record: Record) -> None:
        """Raise RecordError if a record is bad for a reason that can be seen without making its examples.

        The first records of the inputs are checked in this way before a long run begins.
        """
        if record.problem:
            raise RecordError(record.problem)

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        """Return the files that affect the examples, such as a tokenizer. The run stores them in the dataset's folder.

        Args:
            inputs: the input files.

        Returns:
            The contents of the files, by path: `_files/NAME`, or `tokenizer/NAME` for a tokenizer's files.

        Raises:
            PipelineError: a file that an option names is missing or unusable.
        """
        return {}

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        """Return everything that determines the dataset except its inputs: the kind, its options, and the hashes of its
        resources.

        Args:
            resources: the contents of the files that the method `resources` returns, by path.
        """
        options = self.options()
        folder = f"{FILES_FOLDER}/"
        files = {path.removeprefix(folder): data for path, data in resources.items() if path.startswith(folder)}
        if files:
            options["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        cls = type(self)
        name = self.command or self.name
        is_own = not cls.__module__.startswith(f"{__name__}.")
        return {"kind": f"{cls.__module__}:{cls.__qualname__}" if is_own else name, "options": options}

    @abstractmethod
    def worker(self, resources: Mapping[str, bytes]) -> Worker:
        """Build the object that makes the examples in a worker process.

        Args:
            resources: the contents of the files that the method `resources` returns, by path.

        Raises:
            PipelineError: a resource is unusable.
        """

    def shared_by(self, num_processes: int) -> AbstractContextManager[None]:
        """Return a context manager for a run on this machine. On entry it starts what the worker processes share, such
        as a process that holds the model. On exit, after the workers have ended, it stops what it started.

        Args:
            num_processes: the number of worker processes.

        Raises:
            PipelineError: what the workers share cannot be started.
        """
        return contextlib.nullcontext()

    def nothing_kept(self, counts: Counts) -> str:
        """Return the error message for a run that keeps no record: how many records were dropped for each reason, and
        advice on the most frequent reason.

        Args:
            counts: the counts of the whole run.
        """
        numbers = {reason: number for reason, number in {**counts.filtered, "bad": counts.bad}.items() if number}
        dropped = ", ".join(numbered(numbers))
        sizes = ", ".join(f"{size:,} {unit}" for unit, size in counts.longest.items())
        longest = f"; the longest has {sizes}" if sizes else ""
        main = max(numbers, key=numbers.__getitem__, default="")
        advice = counts.complaint() if main == "bad" else advice_for(main)
        lacking = f"; {counts.lacking}" if counts.lacking else ""
        line = f"none of {counts.read:,} {self.name} is kept: {dropped}{longest}{lacking}"
        return f"{line}: {advice}" if advice else line

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """Return the lines that the kind adds to the summary of a run.

        Args:
            fingerprint: the fingerprint of the dataset.
            sums: further counts that the kind makes, such as `chunks`: name -> count, added up over all work units.
        """
        return []
