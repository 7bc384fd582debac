"""The interface of a task, which `clearspan eval` loads and scores.

    Family.load(data folder)  ──> Loaded: the tasks whose data exists, and the reason for each missing task
    Task.score(TaskContext)   ──> TaskScores

All tasks are loaded before the first is scored, so that a malformed file ends the run before any text is embedded.
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
    """The model and the settings with which a task is scored.

    Attributes:
        embedder: the model, which embeds texts with `embed`, and compares texts with `ranking` and `pairs`. Word-count
            baselines such as BM25, and combinations of a model with BM25, cannot embed: `embed` raises UnscoredError.
        protocol: `full` for SentEval's defaults, which the papers used, or `fast` for SentEval's settings for
            prototyping.
        seed: the seed of folds, initial weights and the order of rows; SentEval uses 1111.
        device: the torch device on which classifiers are trained.
        progress: whether to show progress bars for work other than embedding.
        folder: the folder of the model, for tasks that fine-tune it; None if the model has no folder.
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
        """Return the name of the task, which is its key in `results.json`."""

    @property
    def files(self) -> tuple[Path, ...]:
        """Return the task's data files, whose checksums go into `results.json`."""

    def score(self, run: TaskContext) -> TaskScores:
        """Compute the task's scores for the model and the settings in `run`.

        Raises:
            UnscoredError: the task does not support this model or device.
        """


@dataclass(frozen=True)
class Loaded:
    """The tasks of a family (one word of `--tasks`) that were found in a data folder.

    Attributes:
        tasks: the tasks that are ready to be scored.
        missing: name of a task whose data does not exist -> the reason, in one line.
    """

    tasks: list[Task]
    missing: dict[str, str]

    def joined(self, others: "Iterable[Loaded]") -> "Loaded":
        """Return one `Loaded` with the tasks of this object and of all `others`."""
        every = [self, *others]
        missing = {name: reason for each in every for name, reason in each.missing.items()}
        return Loaded([task for each in every for task in each.tasks], missing)


@dataclass(frozen=True)
class Family:
    """A family of tasks, which one word of `--tasks` selects.

    Attributes:
        load: function that reads and checks the data of all tasks in a data folder. It raises DataError if a file is
            malformed. If a file does not exist, it returns the reason in `Loaded.missing`.
        description: the place of the data in the data folder, for `--help`.
    """

    load: Callable[[Path], Loaded]
    description: str


def load_each(readers: Mapping[str, Callable[[], Task]]) -> Loaded:
    """Call each reader; return the tasks that were read, and the reason for each task whose data does not exist.

    Args:
        readers: name of a task -> function that reads it, or raises MissingDataError if a file does not exist.

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
