"""Test which differences between the scores of two models exceed noise: `clearspan compare A B`.

    A, B: results.json + examples.npz ──> for each metric of each task: paired bootstrap over the task's examples
    ──> p-values, corrected by Holm's method for the number of comparisons ──> table

The test is paired because two models tend to fail on the same hard examples: a difference can therefore be significant
although the confidence intervals of the two scores overlap. Examples are resampled, not tasks, so the test does not say
whether the difference would occur on other tasks.

Exit codes: 0: compared; 1: there is nothing to compare, or a file cannot be read; 2: wrong usage.
"""

import math
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import numpy as np

from clearspan.cli.command import Command, Errors, Result
from clearspan.common.encoder.pooling_names import from_record
from clearspan.common.encoder.prompts import Sides
from clearspan.common.options import Flag, Json, Quiet
from clearspan.common.records import DataError
from clearspan.common.terminal import as_printed, printable
from clearspan.common.typed import checked
from clearspan.eval import results
from clearspan.eval.details import Table, cell_text
from clearspan.eval.files import json_text
from clearspan.eval.report.text import text_table
from clearspan.eval.results import Results
from clearspan.eval.scores import LEVEL, MIN_DECIDING, Examples, comparable, figure, num_resamples, tested

_EXAMPLE = "clearspan compare runs/baseline/eval runs/mine/eval"
_NOTES = "A and B are output folders of `clearspan eval`, which hold results.json and examples.npz."


_ROUNDING = 0.01  # percentage points by which a score may differ from its examples: SentEval rounds a fold's accuracy


@dataclass(frozen=True)
class ComparedFigure:
    """The scores of two models in one metric of a task, and the difference of the scores.

    Attributes:
        task, metric: the names of the task and of the metric.
        a, b: the scores of the first and of the second model, in percent.
        difference: b - a, in percentage points.
        low, high: the ends of the 95 % interval of the difference.
        p: the p-value of the difference, not corrected for the number of comparisons.
        p_holm: the p-value after Holm's correction for the number of comparisons.
        exceeds_noise: whether `p_holm` is below 0.05, and there are at least 20 examples.
        num_examples: the number of examples of the task.
    """

    task: str
    metric: str
    a: float
    b: float
    difference: float
    low: float
    high: float
    p: float
    p_holm: float
    exceeds_noise: bool
    num_examples: int

    @property
    def is_undecided(self) -> bool:
        """Return whether the difference would exceed noise, but is of fewer than 20 examples (`MIN_DECIDING`)."""
        return self.p_holm < LEVEL and not self.exceeds_noise


@dataclass(frozen=True)
class Comparison(Result):
    """The differences between two evaluations, in all metrics that they have in common.

    Attributes:
        a, b: the names of the models.
        rows: the scores and their difference, for each metric that was compared.
        not_compared: name of a task -> the reason why it was not compared.
        notes: lines on settings in which the evaluations differ, and a line if both are of the same model.
        resamples: the number of bootstrap samples of a difference whose p-value is below 0.05; other differences may
            have fewer samples.
    """

    a: str
    b: str
    rows: list[ComparedFigure]
    not_compared: dict[str, str]
    notes: list[str]
    resamples: int

    def to_json(self) -> str:
        return json_text(asdict(self))

    def __str__(self) -> str:
        rows = [
            (
                row.task,
                row.metric,
                row.a,
                row.b,
                row.difference if math.isnan(row.difference) else f"{row.difference:+.2f}",
                f"[{cell_text(row.low)}, {cell_text(row.high)}]",
                *("" if math.isnan(p) else f"{p:.4f}" for p in (row.p, row.p_holm)),
                "yes" if row.exceeds_noise else "too few" if row.is_undecided else "",
            )
            for row in self.rows
        ]
        header = ("task", "metric", "A", "B", "B - A", "95 % interval", "p", "p (Holm)", "exceeds noise")
        lines = [f"A: {self.a}", f"B: {self.b}", *text_table(Table(header, rows, names=2))]
        number = sum(row.exceeds_noise for row in self.rows)
        lines.append(
            f"{number} of {len(rows)} differences exceed noise: p corrected by Holm over all {len(rows)} figures, "
            f"below {LEVEL}; paired bootstrap over examples, {self.resamples} samples"
        )
        if any(row.is_undecided for row in self.rows):
            lines.append(f"too few: fewer than {MIN_DECIDING} examples decide nothing, whatever their p")
        lines += [f"note: {note}" for note in self.notes]
        lines += [f"not compared: {task}: {reason}" for task, reason in self.not_compared.items()]
        return as_printed("\n".join(printable(line) for line in lines))


@checked
def compare(a: str | Path, b: str | Path, *, progress: bool = False) -> Comparison:
    """Test which differences between two evaluations exceed noise: paired bootstrap, corrected by Holm.

    Args:
        a, b: folders that `evaluate` or `clearspan eval` wrote, or their `results.json`; differences are b - a.
        progress: whether to show a progress bar.

    Raises:
        DataError: the two evaluations have no score in common that can be compared, or a file is missing or damaged.
        OSError: a file cannot be read.
    """
    evaluations = first, second = results.read(Path(a)), results.read(Path(b))
    of_a, of_b = map(results.read_examples, evaluations)
    not_compared: dict[str, str] = {}
    pairs: dict[tuple[str, str], tuple[Examples, Examples]] = {}
    for task in dict.fromkeys([*first.scores, *second.scores]):
        others = of_b.get(task, {})
        shared = {(task, key): (ours, others[key]) for key, ours in of_a.get(task, {}).items() if key in others}
        if task not in second.scores or task not in first.scores:
            not_compared[task] = f"only in {'A' if task in first.scores else 'B'}"
        elif changed := _changed_files(first.data.get(task, {}), second.data.get(task, {})):
            not_compared[task] = f"its data differs: {changed}; evaluate both on the same files"
        elif not shared:
            not_compared[task] = "no figure has examples in both"
        elif not all(comparable(*both) for both in shared.values()):
            not_compared[task] = "the figures are not of the same examples by the same metric"
        else:
            pairs |= shared
    if not pairs:
        reasons = "; ".join(f"{task}: {reason}" for task, reason in not_compared.items())
        raise DataError(
            f"{first.folder} and {second.folder} share no figure that can be compared ({reasons or 'no tasks'})"
        )
    for (task, metric), both in pairs.items():
        for side, evaluation, examples in zip("AB", evaluations, both, strict=True):
            score = evaluation.scores[task].get(metric, math.nan)
            if not np.isclose(figure(examples), score, 0, _ROUNDING, equal_nan=True):
                raise DataError(
                    f"{evaluation.folder}: {results.RESULTS} and {results.EXAMPLES} differ in {metric} of {task}, so "
                    f"they come from different runs: evaluate {side} again"
                )
    changes = tested(list(pairs.values()), progress)
    rows = [
        ComparedFigure(
            task, metric, figure(one), figure(other), change.value, change.low, change.high, change.p, change.p_holm,
            change.exceeds_noise, len(one),
        )
        for ((task, metric), (one, other)), change in zip(pairs.items(), changes, strict=True)
    ]  # fmt: skip
    return Comparison(
        first.model, second.model, rows, not_compared, _settings_notes(first, second), num_resamples(len(pairs))
    )


def _changed_files(a: Mapping[str, str], b: Mapping[str, str]) -> str:
    """Return the names, without folders, of a task's data files that differ between evaluations, by path -> SHA-256."""
    if sorted(a.values()) == sorted(b.values()):
        return ""
    of_a, of_b = ({(Path(path).name, checksum) for path, checksum in files.items()} for files in (a, b))
    return ", ".join(sorted({name for name, _ in of_a ^ of_b}))


def _settings_notes(a: Results, b: Results) -> list[str]:
    """Return a line for each setting in which two evaluations differ, and one if they are of the same model."""
    of_a, of_b = (each.environment | {"pooling": from_record(each.environment.get("pooling"))} for each in (a, b))
    notes = [
        f"{key}: {of_a.get(key)} in A, {of_b.get(key)} in B"
        for key in ("protocol", "seed", "precision", "pooling")
        if of_a.get(key) != of_b.get(key)
    ]
    sides_a, sides_b = (Sides(**each.environment.get("prompts", {})) for each in (a, b))
    if sides_a != sides_b:
        notes.append(f"prompts: {sides_a} in A; {sides_b} in B")
    if a.environment.get("fingerprint") and a.environment.get("fingerprint") == b.environment.get("fingerprint"):
        notes.append("A and B are the same model")
    return notes


@dataclass(frozen=True, kw_only=True)
class Compare(Command):
    """The command `compare`: tests which differences between two evaluations exceed noise."""

    example: ClassVar[str] = _EXAMPLE
    notes: ClassVar[str] = _NOTES
    expected: ClassVar[Errors] = (DataError, OSError)

    a: Annotated[Path, Flag("A", positional=True)]
    """Output folder of the first model's evaluation."""
    b: Annotated[Path, Flag("B", positional=True)]
    """Output folder of the second model's evaluation; differences are B - A."""
    json: Json = False
    """Print JSON instead of text."""
    quiet: Quiet = False
    """Show no progress bar."""

    def run(self) -> Comparison:
        """Return the differences between the evaluations in the folders `a` and `b`."""
        return compare(self.a, self.b, progress=not self.quiet)


main = Compare.main


if __name__ == "__main__":
    sys.exit(main())
