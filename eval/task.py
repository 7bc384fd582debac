"""What a task is: the contract between the command line and the files that score.

    Family.load(data folder) ──> Loaded: tasks whose data is there, and a reason for each that is not
    Task.score(embedder)     ──> TaskScores

Loading comes first for all tasks, so that a malformed file is found before any time goes into embedding.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from eval.embed import Embedder
from eval.report import Section

Scores = Mapping[str, Mapping[str, float]]


@dataclass(frozen=True)
class TaskScores:
    """The figures of one task.

    Attributes:
        scores: metric -> value in percent, unrounded; NaN where it is undefined (a constant has no correlation).
        main: the key of `scores` that stands for the task in charts.
        headline: the keys of `scores` that the summary table shows.
        counts: what the figures were computed over, such as {"pairs": 3108}.
        section: the task's part of the report.
        subsets: subset -> metric -> value in percent, or a count where the metric's name begins with `num_`.
    """

    scores: dict[str, float]
    main: str
    headline: tuple[str, ...]
    counts: dict[str, int]
    section: Section
    subsets: dict[str, dict[str, float]] = field(default_factory=dict)


class Task(Protocol):
    """One task with its data read and checked."""

    @property
    def name(self) -> str:
        """The key in `results.json`."""

    def score(self, embedder: Embedder, progress: bool = False) -> TaskScores:
        """Embed the task's texts and compute its figures; `progress` allows a bar for other work than embedding."""


@dataclass(frozen=True)
class Loaded:
    """What a data folder offers a family: tasks ready to score, and for each missing one the reason."""

    tasks: list[Task]
    missing: dict[str, str]


def no_averages(scores: Scores) -> dict[str, dict[str, Any]]:
    """For families whose papers give no average."""
    return {}


@dataclass(frozen=True)
class Family:
    """One word of `--tasks`.

    Attributes:
        load: reads and checks the data; raises DataError for malformed files, lists missing ones.
        averages: scores of all tasks -> name -> {"value": percent, "tasks": [...], "missing": [...]}.
    """

    load: Callable[[Path], Loaded]
    averages: Callable[[Scores], dict[str, dict[str, Any]]] = no_averages
