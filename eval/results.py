"""What an evaluation found, as `results.json`, as a table for the terminal and as the sections of a report."""

import io
import json
import platform
import zipfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from eval.files import DataError, json_text, printable
from eval.report import plots
from eval.report.html import Section, Table, cell_text
from eval.report.terminal import text_table
from eval.scores import Examples, TaskScores, interval

_MOST_BYTES = 1 << 26  # of a results.json; they take some kilobytes
_PACKAGES = ("clearspan", "torch", "transformers", "sentence-transformers", "numpy", "scipy")


@dataclass
class Results:
    """The content of `results.json`.

    Attributes:
        model: the model's name.
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


def is_results(path: Path) -> bool:
    """Whether a file is one that `Results.to_json` wrote."""
    try:
        content = json.loads(path.read_bytes()) if path.stat().st_size <= _MOST_BYTES else None
    except (ValueError, RecursionError):
        return False
    return isinstance(content, dict) and {field.name for field in fields(Results)} <= content.keys()


def examples_bytes(tasks: Mapping[str, TaskScores]) -> bytes:
    """What the figures were computed of, as `examples.npz`: `<task>/<metric>/<column>`, read again without pickle."""
    buffer = io.BytesIO()
    columns: dict[str, Any] = {}
    for task, scores in tasks.items():
        for key, examples in scores.examples.items():
            for column, value in vars(examples).items():
                columns[f"{task}/{key}/{column}"] = np.asarray(value)
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def read_examples(path: Path) -> dict[str, dict[str, Examples]]:
    """Task -> metric -> examples, of an `examples.npz`.

    Raises:
        DataError: the file is not one that an evaluation wrote.
        OSError: it cannot be read.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    try:
        with np.load(path, allow_pickle=False) as columns:
            for name in columns.files:
                task, key, column = name.rsplit("/", 2)
                found.setdefault(task, {}).setdefault(key, {})[column] = columns[name]
        return {
            task: {
                key: Examples(str(one["metric"]), one["predicted"], one["gold"], one["groups"])
                for key, one in metrics.items()
            }
            for task, metrics in found.items()
        }
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not the examples that python -m eval wrote ({error}): evaluate again") from None


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


def summary_table(tasks: Mapping[str, TaskScores]) -> Table:
    """One row a task with its headline metrics; a column that a task does not have stays empty."""
    metrics = list(dict.fromkeys(metric for task in tasks.values() for metric in task.headline))
    rows = [
        [name, _counts_text(task.counts), *(task.scores[m] if m in task.headline else None for m in metrics)]
        for name, task in tasks.items()
    ]
    return Table(header=["task", "over", *metrics], rows=rows)


def terminal_summary(results: Results, tasks: Mapping[str, TaskScores]) -> str:
    """The summary as plain text: the table, averages, what was skipped and why, warnings."""
    table = summary_table(tasks)
    lines = text_table(table.header, [[cell_text(value) for value in row] for row in table.rows], num_left=2)
    lines += [f"average {name}: {_average_text(average)}" for name, average in results.averages.items()]
    lines += [f"skipped {task}: {reason}" for task, reason in results.skipped.items()]
    lines += [f"warning: {warning}" for warning in results.warnings]
    return "\n".join(printable(line).rstrip() for line in [f"{results.model}, in percent", *lines])


def report_sections(results: Results, tasks: Mapping[str, TaskScores]) -> list[Section]:
    """The report: summary first, then each task, then what was skipped and the environment."""
    sections = [
        Section(
            heading="Summary",
            text="\n\n".join(
                ["Scores are in percent.", *(f"Warning: {warning}" for warning in results.warnings)]
                + [f"Average {name}: {_average_text(average)}" for name, average in results.averages.items()]
            ),
            tables=[summary_table(tasks)],
            figures=[
                plots.bars(
                    [f"{name}  {task.main}" for name, task in tasks.items()],
                    [task.scores[task.main] for task in tasks.values()],
                    "percent",
                )
            ],
        )
    ]
    for name, task in tasks.items():
        metrics = Table(header=("metric", "percent"), rows=list(task.scores.items()), caption=_counts_text(task.counts))
        section = task.section
        sections.append(Section(name, section.text, [metrics, *section.tables], section.figures))
    if results.skipped:
        skipped = Table(header=("task", "reason"), rows=list(results.skipped.items()))
        sections.append(Section("Skipped", tables=[skipped]))
    rows = [(key, value) for key, value in results.environment.items() if not isinstance(value, dict)]
    rows += [(package, number or "not installed") for package, number in results.environment["versions"].items()]
    sections.append(Section("Environment", tables=[Table(header=("what", "value"), rows=rows)]))
    return sections


def _average_text(average: Mapping[str, Any]) -> str:
    tasks, missing = average["tasks"], average["missing"]
    over = f"{cell_text(average['value'])} over {', '.join(tasks)}"
    if not missing:
        return over
    number = f"{len(tasks)} of {len(tasks) + len(missing)} tasks"
    return f"{over}: {number}, so not comparable with published averages (missing: {', '.join(missing)})"


def _counts_text(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{number} {noun}" for noun, number in counts.items())
