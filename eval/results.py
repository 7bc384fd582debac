"""Results of an evaluation and their files, which `eval.saved` reads back.

Results ──> results.json     scores, intervals, and the settings behind them
Examples ─> examples.npz     the examples that the scores are computed from, for `clearspan compare`
"""

import io
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from clearspan.eval.files import json_text
from clearspan.eval.scores import Difference, TaskScores, interval

_PACKAGES = ("clearspan", "torch", "transformers", "sentence-transformers", "numpy", "scipy")


@dataclass
class Results:
    """The content of `results.json`.

    Attributes:
        model: the model's name.
        spec: the argument of `--model`: a folder, a file of word vectors, `module:function`.
        scores: task -> metric -> value in percent, unrounded; NaN (null in JSON) where undefined. Alignment,
            uniformity, squared errors (mse) and median ranks (*_medr) are not percentages.
        intervals: task -> metric -> [low, high], 95 % by bootstrap over the task's examples, in percent.
        subsets: task -> subset -> metric -> value in percent, and `num_pairs`.
        counts: task -> sizes of the data behind its scores.
        settings: task -> what its scores depend on besides data and model.
        data: task -> file -> SHA-256 of its bytes.
        averages: name -> {"value": percent, "tasks": the tasks covered, "missing": the tasks not scored}.
        skipped: task -> the reason why it was not scored.
        truncated: task -> its files that have fewer rows than the published ones.
        warnings: problems to know of before trusting the scores.
        environment: versions, device, date and the like.
    """

    model: str
    spec: str = ""
    scores: dict[str, dict[str, float]] = field(default_factory=dict)
    intervals: dict[str, dict[str, tuple[float, float]]] = field(default_factory=dict)
    subsets: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    data: dict[str, dict[str, str]] = field(default_factory=dict)
    averages: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    truncated: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)

    def add(self, task: str, scores: TaskScores) -> None:
        """Add one task's scores."""
        self.scores[task] = scores.scores
        self.counts[task] = scores.counts
        self.intervals[task] = {metric: interval(examples) for metric, examples in scores.examples.items()}
        if scores.settings:
            self.settings[task] = scores.settings
        if scores.subsets:
            self.subsets[task] = scores.subsets

    def to_json(self) -> str:
        """Return strict JSON in ASCII, which any terminal can show, with one trailing newline."""
        return json_text(asdict(self))


@dataclass(frozen=True)
class Scored:
    """One model's evaluation.

    Attributes:
        tasks: task -> its scores, in the order of `--tasks`.
        families: task -> its word of `--tasks`.
        differences: task -> the difference of its main score from the first model's of the same evaluation.
    """

    results: Results
    tasks: dict[str, TaskScores]
    families: dict[str, str] = field(default_factory=dict)
    differences: dict[str, Difference] = field(default_factory=dict)


def examples_bytes(tasks: Mapping[str, TaskScores]) -> bytes:
    """Return the content of `examples.npz`: arrays named `<task>/<metric>/<column>`, which load without pickle."""
    buffer = io.BytesIO()
    columns: dict[str, Any] = {}
    for task, scores in tasks.items():
        for key, examples in scores.examples.items():
            for column, value in vars(examples).items():
                # A folder's name may hold a lone surrogate, which a name in a zip file cannot.
                name = f"{task}/{key}/{column}".encode("unicode_escape").decode("ascii")
                columns[name] = np.asarray(value)
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def environment(device: str, **more: object) -> dict[str, Any]:
    """Return versions of Python and of packages that affect the scores, platform, device and date (UTC, ISO 8601)."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "platform": platform.platform(),
        "versions": versions,
        **more,
    }
