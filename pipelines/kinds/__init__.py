"""What a kind of dataset takes of the inputs, and what it makes of them.

    Kind    its options: which of the inputs' content are records (`reading`), what is made once and lies beside the
            shards (`resources`: a tokenizer, synonyms, a table of classes)
    Worker  the kind at work in a process, made from its resources: a unit's records -> batches of examples

A new kind is one file here, whose class the command finds, and a line in `shards.schema`, which says what its examples
hold. The plan, the graph and the readers serve all kinds alike.
"""

import argparse
import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar, Protocol, Self

import pyarrow as pa

from clearspan.pipelines.records import MAX_BYTES, Inputs, Reading, Record
from clearspan.pipelines.stopwatch import Stopwatch
from clearspan.pipelines.tally import Counts, Tally
from clearspan.shards.manifest import FILES_FOLDER


def flag(name: str) -> str:
    """An option by the name of its argument, as the user writes it."""
    return f"--{name.replace('_', '-')}"


class Worker(Protocol):
    """A kind at work, with all that it builds once a process."""

    def examples(self, records: Iterable[Record], tally: Tally, watch: Stopwatch) -> Iterator[pa.RecordBatch]:
        """The examples among a unit's records, in order, as record batches of the kind's columns.

        Every record is counted in `tally`: read, and kept, filtered for one of the kind's reasons, or bad.
        """


@dataclasses.dataclass(frozen=True)
class Kind(ABC):
    """A kind of dataset with its options; a subclass is a frozen dataclass of those that it adds."""

    name: ClassVar[str]
    """The kind's name in `shards.schema`, which is its command's too, and says what its examples are, in the plural."""
    summary: ClassVar[str]
    """What the command's help says of it."""
    example: ClassVar[str]
    """A command line that makes such a dataset."""
    max_bytes: ClassVar[int] = MAX_BYTES
    """A longer record is bad, unless the user says otherwise."""

    @classmethod
    def add_arguments(cls, parser: argparse.ArgumentParser) -> None:
        """Adds the kind's options to its command's."""
        return  # it may have none

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> Self:
        """The kind with the options given: each field's is the argument of its name.

        Raises:
            ValueError: a value makes no sense.
        """
        return cls(**{field.name: getattr(arguments, field.name) for field in dataclasses.fields(cls)})

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a good record may be filtered out: the keys of the manifest's counts."""
        return ()

    @property
    def drops_duplicates(self) -> bool:
        """Whether of equal examples the first alone is kept."""
        return False

    @property
    def shares_texts(self) -> bool:
        """True where examples of different ids may hold the same text. The held-out part is then chosen by texts."""
        return False

    @property
    def bytes_per_s(self) -> float:
        """About what one process reads: by this the number of processes is chosen."""
        return 50e6

    def options(self) -> dict[str, Any]:
        """The options that shape the dataset, for its fingerprint."""
        return dataclasses.asdict(self)

    @abstractmethod
    def reading(self) -> Reading:
        """Tells readers which of the inputs' content are records, and in which form."""

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        """What shapes the examples beside the options: files that workers and readers find in the dataset's folder.

        Returns:
            Their contents by path: `_files/NAME`, or `tokenizer/NAME` of a tokenizer's.

        Raises:
            PipelineError: a file that the options name is not there, or not what it should be.
        """
        return {}

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        """What of the kind shapes the dataset: its options, and the sha256 of its files."""
        options, folder = self.options(), f"{FILES_FOLDER}/"
        files = {path.removeprefix(folder): data for path, data in resources.items() if path.startswith(folder)}
        if files:
            options["files"] = {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
        return {"options": options}

    @abstractmethod
    def worker(self, resources: Mapping[str, bytes]) -> Worker:
        """The kind at work.

        Raises:
            PipelineError: a resource cannot be used.
        """

    def nothing_kept(self, counts: Counts) -> str:
        """Why none of the records was kept, and what to do."""
        reasons = "".join(f", {number:,} {reason}" for reason, number in counts.filtered.items() if number)
        return f"none of {counts.read:,} {self.name} is kept: {counts.bad:,} bad{reasons}"

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        """What the summary says of the fingerprint, and of the sums over all units."""
        return []
