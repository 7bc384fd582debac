"""What a task is: the contract between the command line and the files that score.

    Family.load(data folder) ──> Loaded: tasks whose data is there, and a reason for each that is not
    Task.score(run)          ──> TaskScores

Loading comes first for all tasks, so that a malformed file is found before any time goes into embedding.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from clearspan.eval.models.embed import Embedder
from clearspan.eval.scores import TaskScores

ProtocolName = Literal["full", "fast"]


@dataclass(frozen=True)
class Run:
    """What a task is scored with.

    Attributes:
        embedder: the model, as texts -> arrays.
        protocol: `full`, the papers' (SentEval's defaults), or `fast`, SentEval's own for prototyping.
        seed: of folds, starting weights and orders; SentEval's is 1111.
        device: where classifiers are trained, as torch names it.
        progress: whether bars may be shown for other work than embedding.
        folder: the model's folder, for what is fine-tuned; None for word vectors and functions.
    """

    embedder: Embedder
    protocol: ProtocolName = "full"
    seed: int = 1111
    device: str = "cpu"
    progress: bool = False
    folder: Path | None = None


class UnscoredError(Exception):
    """The task cannot be scored with this model or on this device; the message says why, in one line. The rest runs."""


class Task(Protocol):
    """One task with its data read and checked."""

    @property
    def name(self) -> str:
        """The key in `results.json`."""

    @property
    def files(self) -> tuple[Path, ...]:
        """The data files that it was read from, whose checksums go into `results.json`."""

    def score(self, run: Run) -> TaskScores:
        """Embed the task's texts and compute its figures.

        Raises:
            UnscoredError: the task is not for such a model or device.
        """


@dataclass(frozen=True)
class Loaded:
    """What a data folder offers a family: tasks ready to score, and for each missing one the reason."""

    tasks: list[Task]
    missing: dict[str, str]


@dataclass(frozen=True)
class Family:
    """One word of `--tasks`.

    Attributes:
        load: reads and checks the data; raises DataError for malformed files, lists missing ones.
        description: where its data lies, for `--help`.
    """

    load: Callable[[Path], Loaded]
    description: str
