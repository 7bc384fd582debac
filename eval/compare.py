"""The command `python -m eval.compare A B`: which of two models' differences exceed noise.

    A, B: results.json + examples.npz ──> per task and metric: paired bootstrap over the task's examples ──> Holm's
    correction over all of them ──> table

Pairing matters: two models err on the same hard examples, so a difference can be sure where the two intervals overlap.
To resample tasks would ask another question, whether the difference would be found on other tasks.

Exit codes: 0 compared; 1 there is nothing to compare, or a file cannot be read; 2 bad usage.
"""

import argparse
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tqdm import tqdm

from clearspan.common.terminal import Parser, printable
from clearspan.eval import saved
from clearspan.eval.command import run
from clearspan.eval.files import DataError, json_text
from clearspan.eval.report.console import text_table
from clearspan.eval.saved import Saved
from clearspan.eval.scores import Examples, difference, figure

_EXAMPLE = """example:
  python -m eval.compare runs/baseline/eval runs/mine/eval

A and B are what python -m eval wrote with --output: folders that hold results.json and examples.npz.
"""
LEVEL = 0.05
_LEAST_RESAMPLES = 1000
_ROUNDED = 0.01  # percentage points that a figure may differ from its examples': SentEval rounds a fold's accuracy

TaskExamples = Mapping[str, Mapping[str, Examples]]
"""Task -> metric -> what the figure was computed of."""


@dataclass(frozen=True)
class Row:
    """One figure of two models, in percent, and their difference B - A in percentage points.

    Attributes:
        low, high: the 95 % interval of the difference.
        p: of the difference alone; `p_holm` as corrected for the number of figures compared.
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
    """All figures that two evaluations share, and for each task that was not compared, why.

    Attributes:
        resamples: how many samples a difference was computed of at most.
        notes: settings in which the two differ.
    """

    a: str
    b: str
    rows: list[Row]
    not_compared: dict[str, str]
    notes: list[str]
    resamples: int


def holm(ps: Sequence[float]) -> list[float]:
    """Holm's step-down correction (1979) of p-values, in their order: the chance of one false finding among all of them
    is held to the level at which they are read. A NaN stays one, and counts."""
    order = sorted(range(len(ps)), key=lambda place: (math.isnan(ps[place]), ps[place]))
    corrected, largest = [math.nan] * len(ps), 0.0
    for rank, place in enumerate(order):
        if not math.isnan(ps[place]):
            largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
            corrected[place] = largest
    return corrected


def compare(a: Saved, b: Saved, of_a: TaskExamples, of_b: TaskExamples, progress: bool = False) -> Comparison:
    """Compares every figure whose examples both evaluations kept.

    The least p that a bootstrap gives, corrected for all figures, must be able to fall below the level: the more
    figures, the more samples. A difference whose p is above the level after the least number of them gets no more.
    """
    not_compared = _unlike(a, b, of_a, of_b)
    pairs = [
        (task, metric, of_a[task][metric], of_b[task][metric])
        for task in of_a
        if task in of_b and task not in not_compared
        for metric in of_a[task]
        if metric in of_b[task]
    ]
    resamples = max(_LEAST_RESAMPLES, 4 * math.ceil(2 * len(pairs) / LEVEL))
    found = []
    for task, metric, first, second in tqdm(pairs, "comparing", unit=" figures", disable=None if progress else True):
        figures = figure(first), figure(second)
        if other := _of_another_run(figures, (a.scores[task], b.scores[task]), metric):
            not_compared[task] = other
            continue
        try:
            apart = difference(first, second, resamples=_LEAST_RESAMPLES)
            if apart.p < LEVEL and resamples > _LEAST_RESAMPLES:
                apart = difference(first, second, resamples=resamples)
            found.append((task, metric, *figures, apart))
        except ValueError as error:
            not_compared[task] = f"{metric}: {error}"
    found = [one for one in found if one[0] not in not_compared]
    # A difference that is undefined, as of a constant's correlation, says nothing either way.
    ps = [math.nan if math.isnan(apart.value) else apart.p for *_, apart in found]
    rows = [
        Row(task, metric, first, second, apart.value, apart.low, apart.high, p, corrected, corrected < LEVEL)
        for (task, metric, first, second, apart), p, corrected in zip(found, ps, holm(ps), strict=True)
    ]
    return Comparison(a.model, b.model, rows, not_compared, _settings_notes(a, b), resamples)


def _unlike(a: Saved, b: Saved, of_a: TaskExamples, of_b: TaskExamples) -> dict[str, str]:
    """Task -> why it cannot be compared, of every task of either."""
    found: dict[str, str] = {}
    for task in dict.fromkeys([*a.scores, *b.scores]):
        if task not in b.scores or task not in a.scores:
            found[task] = f"only in {'A' if task in a.scores else 'B'}"
        elif changed := _changed_files(a.data.get(task, {}), b.data.get(task, {})):
            found[task] = f"its data differs: {changed}; evaluate both on the same files"
        elif not set(of_a.get(task, {})) & set(of_b.get(task, {})):
            found[task] = "no figure whose examples both kept"
    return found


def _of_another_run(figures: tuple[float, float], scores: tuple[Mapping[str, float], ...], metric: str) -> str:
    """Whose examples do not give the figure that its results.json has; "" where both do."""
    for side, found, given in zip("AB", figures, scores, strict=True):
        saved_figure = given.get(metric, math.nan)
        if not abs(found - saved_figure) <= _ROUNDED and not (math.isnan(found) and math.isnan(saved_figure)):
            return (
                f"{metric} is {_number(saved_figure)} in {side}'s {saved.RESULTS} and {_number(found)} by its "
                f"{saved.EXAMPLES}, so they are of two runs: evaluate {side} again"
            )
    return ""


def _changed_files(a: Mapping[str, str], b: Mapping[str, str]) -> str:
    """What differs in the data that two tasks were read from, whatever folders it lay in; "" where nothing does."""
    if sorted(a.values()) == sorted(b.values()):
        return ""
    one, two = ({(Path(path).name, checksum) for path, checksum in files.items()} for files in (a, b))
    return ", ".join(sorted({name for name, _ in one ^ two}))


def _settings_notes(a: Saved, b: Saved) -> list[str]:
    """What else than the model may make the difference."""
    notes = []
    for key in ("protocol", "seed", "dtype", "pooling"):
        one, two = a.environment.get(key), b.environment.get(key)
        if one != two:
            notes.append(f"{key}: {one} in A, {two} in B")
    if a.environment.get("fingerprint") and a.environment.get("fingerprint") == b.environment.get("fingerprint"):
        notes.append("A and B are the same model")
    return notes


def terminal(comparison: Comparison) -> str:
    """The comparison as text."""
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


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command on `argv` (default: the process's arguments) and return its exit code."""
    parser = Parser(
        prog="python -m eval.compare",
        description="Say which differences between two evaluated models exceed noise.",
        epilog=_EXAMPLE,
    )
    add = parser.add_argument
    add("a", type=Path, metavar="A", help="the first model's evaluation")
    add("b", type=Path, metavar="B", help="the second's: differences are B - A")
    add("--json", action="store_true", help="print JSON instead of the table")
    add("--quiet", action="store_true", help="no progress bar")
    return run(parser, argv, lambda args: (_output(args), 0))


def _output(args: argparse.Namespace) -> str:
    comparison = compare_folders(args.a, args.b, progress=not args.quiet)
    return json_text(asdict(comparison)) if args.json else terminal(comparison)


def compare_folders(first: Path, second: Path, progress: bool = False) -> Comparison:
    """Compare two evaluations by the folders, or the `results.json`, that `python -m eval` wrote.

    Raises:
        DataError: they share no figure that can be compared, or a file is missing or damaged.
        OSError: a file cannot be read.
    """
    a, b = saved.read(first), saved.read(second)
    paths = [one.folder / saved.EXAMPLES for one in (a, b)]
    for path in paths:
        if not path.is_file():
            raise DataError(f"{path}: no such file, and a comparison needs what the figures are of: evaluate again")
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
