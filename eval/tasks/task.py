"""The contract of a task, between the command line and the modules that score.

    Family.load(data folder) ──> Loaded: the tasks whose data is there, and a reason for each missing one
    Task.score(run)          ──> TaskScores

All tasks are loaded before any is scored, so that a malformed file ends the run before time goes into embedding.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from clearspan.common.records import MissingDataError
from clearspan.eval.models.similarity import Similarity
from clearspan.eval.models.similarity import UnscoredError as UnscoredError  # tasks import it from here
from clearspan.eval.scores import TaskScores

ProtocolName = Literal["full", "fast"]


@dataclass(frozen=True)
class TaskContext:
    """The model and the settings that a task is scored with.

    Attributes:
        embedder: the model: `embed` maps texts to arrays; `ranking` and `pairs` compare texts, which baselines do too.
        protocol: `full`, the papers' protocol (SentEval's defaults), or `fast`, SentEval's settings for prototyping.
        seed: seed of folds, initial weights and orders; SentEval's is 1111.
        device: torch device on which classifiers are trained.
        progress: whether to show progress bars for work other than embedding.
        folder: the model's folder, for tasks that fine-tune; None for word vectors and functions.
    """

    embedder: Similarity
    protocol: ProtocolName = "full"
    seed: int = 1111
    device: str = "cpu"
    progress: bool = False
    folder: Path | None = None


class Task(Protocol):
    """An evaluation task whose data has already been loaded and validated."""

    @property
    def name(self) -> str:
        """Return the task's key in `results.json`."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the task's data files, whose checksums go into `results.json`."""

    def score(self, run: TaskContext) -> TaskScores:
        """Embed the task's texts and compute its scores.

        Raises:
            UnscoredError: the task does not support this model or device.
        """


@dataclass(frozen=True)
class Loaded:
    """A family's tasks in a data folder: the tasks that are ready to score, and the reason for each missing task."""

    tasks: list[Task]
    missing: dict[str, str]

    def joined(self, others: "Iterable[Loaded]") -> "Loaded":
        """Return these tasks together with the tasks of all `others`."""
        every = [self, *others]
        missing = {name: reason for each in every for name, reason in each.missing.items()}
        return Loaded([task for each in every for task in each.tasks], missing)


@dataclass(frozen=True)
class Family:
    """A family of tasks, which a word of `--tasks` names.

    Attributes:
        load: function that reads and checks the data; it raises DataError for malformed files and lists missing ones.
        description: the place of its data, for `--help`.
    """

    load: Callable[[Path], Loaded]
    description: str


def load_each(readers: Mapping[str, Callable[[], Task]]) -> Loaded:
    """Read each task by its reader; list those whose files are missing, with the reason.

    Raises:
        DataError: a file is malformed.
    """
    tasks: list[Task] = []
    missing: dict[str, str] = {}
    for name, read in readers.items():
        try:
            tasks.append(read())
        except MissingDataError as error:
            missing[name] = str(error)
    return Loaded(tasks, missing)
