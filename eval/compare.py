"""The command `clearspan compare A B`: test which differences between two models exceed noise.

    A, B: results.json + examples.npz ──> per task and metric: paired bootstrap over the task's examples ──> Holm's
    correction over all of them ──> table

Pairing matters: two models err on the same hard examples, so a difference can be significant where the two intervals
overlap. Resampling tasks would answer another question: whether the difference would occur on other tasks.

Exit codes: 0 compared; 1 there is nothing to compare, or a file cannot be read; 2 bad usage.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from clearspan.common.options import Flag, Json, Options, Quiet, run
from clearspan.common.progress import Bar
from clearspan.common.terminal import printable, say
from clearspan.eval import saved
from clearspan.eval.files import DataError, json_text
from clearspan.eval.report.console import text_table
from clearspan.eval.saved import Saved
from clearspan.eval.scores import Difference, Examples, difference, figure

_EXAMPLE = """example:
  clearspan compare runs/baseline/eval runs/mine/eval

A and B are output folders of `clearspan eval`, which hold results.json and examples.npz.
"""
LEVEL = 0.05
_MIN_RESAMPLES = 1000
_ROUNDING = 0.01  # percentage points by which a score may differ from its examples: SentEval rounds a fold's accuracy

TaskExamples = Mapping[str, Mapping[str, Examples]]
"""Task -> metric -> the examples that the figure is computed from."""


@dataclass(frozen=True)
class Row:
    """One figure of two models, in percent, and their difference B - A in percentage points.

    Attributes:
        low, high: the 95 % interval of the difference.
        p: p-value of this difference alone.
        p_holm: p-value corrected for the number of figures compared.
        exceeds_noise: whether `p_holm` is below 0.05.
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


@dataclass(frozen=True)
class Comparison:
    """All figures that two evaluations share, and the reason for each task that was not compared.

    Attributes:
        resamples: the largest number of bootstrap samples per difference.
        notes: settings in which the two differ.
    """

    a: str
    b: str
    rows: list[Row]
    not_compared: dict[str, str]
    notes: list[str]
    resamples: int


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's step-down correction (1979), in their order; a NaN stays NaN, and counts.

    The correction bounds the probability of any false finding among all of them by the significance level.
    """
    order = sorted(range(len(ps)), key=lambda place: (math.isnan(ps[place]), ps[place]))
    corrected, largest = [math.nan] * len(ps), 0.0
    for rank, place in enumerate(order):
        if not math.isnan(ps[place]):
            largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
            corrected[place] = largest
    return corrected


def num_resamples(num_figures: int) -> int:
    """Return the number of bootstrap samples with which the least p-value is below the level even after correction."""
    return max(_MIN_RESAMPLES, 4 * math.ceil(2 * num_figures / LEVEL))


def tested(first: Examples, second: Examples, resamples: int) -> Difference:
    """Return the difference second - first by paired bootstrap.

    If its p-value exceeds the level after the first 1,000 samples, no more are drawn.

    Raises:
        ValueError: the two differ in their examples or their metric.
    """
    change = difference(first, second, resamples=_MIN_RESAMPLES)
    if change.p < LEVEL and resamples > _MIN_RESAMPLES:
        change = difference(first, second, resamples=resamples)
    return change


def compare(a: Saved, b: Saved, of_a: TaskExamples, of_b: TaskExamples, progress: bool = False) -> Comparison:
    """Compare every figure for which both evaluations have examples."""
    not_compared = _unlike(a, b, of_a, of_b)
    pairs = [
        (task, metric, of_a[task][metric], of_b[task][metric])
        for task in of_a
        if task in of_b and task not in not_compared
        for metric in of_a[task]
        if metric in of_b[task]
    ]
    resamples = num_resamples(len(pairs))
    compared = []
    bar = Bar(len(pairs), f"comparing {len(pairs):,} figures", not progress, desc="comparing", unit=" figures")
    for task, metric, first, second in bar.over(pairs):
        figures = figure(first), figure(second)
        if mismatch := _mismatch(figures, (a.scores[task], b.scores[task]), metric):
            not_compared[task] = mismatch
            continue
        try:
            compared.append((task, metric, *figures, tested(first, second, resamples)))
        except ValueError as error:
            not_compared[task] = f"{metric}: {error}"
    compared = [row for row in compared if row[0] not in not_compared]
    # An undefined difference, as of a constant's correlation, is no evidence in either direction.
    ps = [math.nan if math.isnan(change.value) else change.p for *_, change in compared]
    rows = [
        Row(task, metric, first, second, change.value, change.low, change.high, p, corrected, corrected < LEVEL)
        for (task, metric, first, second, change), p, corrected in zip(compared, ps, holm(ps), strict=True)
    ]
    return Comparison(a.model, b.model, rows, not_compared, _settings_notes(a, b), resamples)


def _unlike(a: Saved, b: Saved, of_a: TaskExamples, of_b: TaskExamples) -> dict[str, str]:
    """Return task -> the reason why it cannot be compared, over the tasks of both."""
    reasons: dict[str, str] = {}
    for task in dict.fromkeys([*a.scores, *b.scores]):
        if task not in b.scores or task not in a.scores:
            reasons[task] = f"only in {'A' if task in a.scores else 'B'}"
        elif changed := _changed_files(a.data.get(task, {}), b.data.get(task, {})):
            reasons[task] = f"its data differs: {changed}; evaluate both on the same files"
        elif not set(of_a.get(task, {})) & set(of_b.get(task, {})):
            reasons[task] = "no figure has examples in both"
    return reasons


def _mismatch(figures: tuple[float, float], scores: tuple[Mapping[str, float], ...], metric: str) -> str:
    """Return a message if the figure of either side's examples is not the one in its results.json, else ""."""
    for side, recomputed, of_side in zip("AB", figures, scores, strict=True):
        score = of_side.get(metric, math.nan)
        if not abs(recomputed - score) <= _ROUNDING and not (math.isnan(recomputed) and math.isnan(score)):
            return (
                f"{metric} is {_number(score)} in {side}'s {saved.RESULTS} and {_number(recomputed)} by its "
                f"{saved.EXAMPLES}, so the two files come from different runs: evaluate {side} again"
            )
    return ""


def _changed_files(a: Mapping[str, str], b: Mapping[str, str]) -> str:
    """Return the names of the data files that differ, whatever folders they are in; "" if none does."""
    if sorted(a.values()) == sorted(b.values()):
        return ""
    of_a, of_b = ({(Path(path).name, checksum) for path, checksum in files.items()} for files in (a, b))
    return ", ".join(sorted({name for name, _ in of_a ^ of_b}))


def _settings_notes(a: Saved, b: Saved) -> list[str]:
    """Return notes on the settings besides the model that may cause the difference."""
    notes = [
        f"{key}: {a.environment.get(key)} in A, {b.environment.get(key)} in B"
        for key in ("protocol", "seed", "precision", "pooling")
        if a.environment.get(key) != b.environment.get(key)
    ]
    if a.environment.get("fingerprint") and a.environment.get("fingerprint") == b.environment.get("fingerprint"):
        notes.append("A and B are the same model")
    return notes


def terminal(comparison: Comparison) -> str:
    """Return the comparison as text."""
    rows = [
        [
            *(row.task, row.metric, _number(row.a), _number(row.b), _number(row.difference, "+.2f")),
            *(f"[{_number(row.low)}, {_number(row.high)}]", _p(row.p), _p(row.p_holm)),
            "yes" if row.exceeds_noise else "",
        ]
        for row in comparison.rows
    ]
    header = ("task", "metric", "A", "B", "B - A", "95 % interval", "p", "p (Holm)", "exceeds noise")
    lines = [f"A: {comparison.a}", f"B: {comparison.b}", *text_table(header, rows, num_left=2)]
    number = sum(row.exceeds_noise for row in comparison.rows)
    lines.append(
        f"{number} of {len(rows)} differences exceed noise: p corrected by Holm over all {len(rows)} figures, below "
        f"{LEVEL}; paired bootstrap over examples, {comparison.resamples} samples"
    )
    lines += [f"note: {note}" for note in comparison.notes]
    lines += [f"not compared: {task}: {reason}" for task, reason in comparison.not_compared.items()]
    return "\n".join(printable(line) for line in lines) + "\n"


@dataclass(frozen=True, kw_only=True)
class Compare(Options):
    """The command `compare`."""

    a: Annotated[Path, Flag("the first model's evaluation", "A", positional=True)]
    b: Annotated[Path, Flag("the second model's evaluation; differences are B - A", "B", positional=True)]
    json: Json = False
    quiet: Quiet = False


def main(argv: Sequence[str] | None = None, prog: str = "python -m clearspan.eval.compare") -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    return run(Compare, _print, argv, prog, (DataError, OSError), description=__doc__, epilog=_EXAMPLE)


def _print(options: Compare) -> int:
    comparison = compare_folders(options.a, options.b, progress=not options.quiet)
    say(json_text(asdict(comparison)) if options.json else terminal(comparison), end="")
    return 0


def compare_folders(first: Path, second: Path, progress: bool = False) -> Comparison:
    """Compare two evaluations, each given by its output folder or its `results.json`.

    Raises:
        DataError: the two share no figure that can be compared, or a file is missing or damaged.
        OSError: a file cannot be read.
    """
    a, b = saved.read(first), saved.read(second)
    paths = [evaluation.folder / saved.EXAMPLES for evaluation in (a, b)]
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: no such file, and a comparison needs the examples: evaluate again")
    comparison = compare(a, b, saved.read_examples(paths[0]), saved.read_examples(paths[1]), progress)
    if not comparison.rows:
        reasons = "; ".join(f"{task}: {reason}" for task, reason in comparison.not_compared.items())
        raise DataError(f"{a.folder} and {b.folder} share no figure that can be compared ({reasons or 'no tasks'})")
    return comparison


def _number(value: float, form: str = ".2f") -> str:
    return "undefined" if math.isnan(value) else format(value, form)


def _p(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


if __name__ == "__main__":
    sys.exit(main())
