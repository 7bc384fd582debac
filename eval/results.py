"""What an evaluation found, as the files that keep it; `eval.saved` reads them again.

Results ──> results.json     figures, intervals, and what they rest on
Examples ─> examples.npz     what the figures were computed of, example by example, for `python -m eval.compare`
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
from clearspan.eval.scores import TaskScores, interval

_PACKAGES = ("clearspan", "torch", "transformers", "sentence-transformers", "numpy", "scipy")


@dataclass
class Results:
    """The content of `results.json`.

    Attributes:
        model: the model's name.
        spec: what `--model` named: a folder, a file of word vectors, `module:function`.
        scores: task -> metric -> value in percent, unrounded; NaN (null in JSON) where undefined. Alignment,
            uniformity, squared errors (mse) and median ranks (*_medr) alone are in units of their own.
        intervals: task -> metric -> [low, high], 95 % by bootstrap over the task's examples, in percent.
        subsets: task -> subset -> metric -> value in percent, and `num_pairs`.
        counts: task -> what its scores were computed over.
        settings: task -> what its scores rest on beside data and model.
        data: task -> file -> SHA-256 of its bytes.
        averages: name -> {"value": percent, "tasks": what it covers, "missing": what it should cover and does not}.
        skipped: task -> why it was not scored.
        warnings: what a reader should know before trusting the scores.
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
    warnings: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)

    def add(self, task: str, scores: TaskScores) -> None:
        """Enter one task's figures."""
        self.scores[task] = scores.scores
        self.counts[task] = scores.counts
        self.intervals[task] = {metric: interval(examples) for metric, examples in scores.examples.items()}
        if scores.settings:
            self.settings[task] = scores.settings
        if scores.subsets:
            self.subsets[task] = scores.subsets

    def to_json(self) -> str:
        """Strict JSON in ASCII, which any terminal shows and any name fits in; one trailing newline."""
        return json_text(asdict(self))


@dataclass(frozen=True)
class Scored:
    """One model's evaluation.

    Attributes:
        tasks: task -> its scores, in the order in which they were asked for.
        families: task -> the word of `--tasks` that it came with.
    """

    results: Results
    tasks: dict[str, TaskScores]
    families: dict[str, str] = field(default_factory=dict)


def examples_bytes(tasks: Mapping[str, TaskScores]) -> bytes:
    """What the figures were computed of, as `examples.npz`: `<task>/<metric>/<column>`, read again without pickle."""
    buffer = io.BytesIO()
    columns: dict[str, Any] = {}
    for task, scores in tasks.items():
        for key, examples in scores.examples.items():
            for column, value in vars(examples).items():
                # A name in a zip holds no half character, as a folder's may.
                name = f"{task}/{key}/{column}".encode("unicode_escape").decode("ascii")
                columns[name] = np.asarray(value)
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def environment(device: str, **more: object) -> dict[str, Any]:
    """Versions of Python and of the packages that shape the figures, platform, device and date (UTC, ISO 8601)."""
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
