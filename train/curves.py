"""Read the metrics.jsonl of a run: its lines, and the learning curves that reports draw.

    metrics.jsonl ──> lines_up_to ──> learning_curves: a curve per run, its best step marked ──> eval.report.figures

The curves show the dev score, or else the loss on held-out examples, or else the training loss.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from clearspan.eval.report.figures import Curve, Curves
from clearspan.train.config.options import DEV, GIVEN

HELD_OUT_LOSS, LOSS = "validation/loss", "loss"
NAMES = {DEV: "dev score", HELD_OUT_LOSS: "loss on held-out examples", LOSS: "loss in training"}
"""The metrics that show how a run learns, the most informative first, and their names in a report."""
NEVER_BETTER = "no step was better than the start, which is exported"


def lines_up_to(path: Path, step: float = math.inf) -> list[str]:
    """Return the lines of a metrics.jsonl whose step is at most `step`; [] if there is no such file.

    Lines that are not valid JSON with a step are skipped: a killed process may have written only a part of a line.
    """
    lines = []
    for line in path.read_text(errors="replace").splitlines() if path.is_file() else ():
        try:
            if json.loads(line)["step"] <= step:
                lines.append(line)
        except (ValueError, KeyError, TypeError, RecursionError):
            continue
    return lines


def learning_curves(runs: Mapping[str, Path], caption: str = "While training") -> list[Curves]:
    """Return a list with one plot of a metric, with one curve per run; [] if the runs have no metric in common.

    The metric is the dev score; if not all runs have it, the loss on held-out examples; else the training loss. A run
    has a metric if it logged the metric at two steps or more.

    Args:
        runs: name of a run -> the path of its metrics.jsonl.
        caption: the caption of the plot.
    """
    lines = {name: [json.loads(line) for line in lines_up_to(path)] for name, path in runs.items()}
    for key, named in NAMES.items():
        series = [_curve(name, each, key) for name, each in lines.items()]
        if series and all(len(curve.points) > 1 for curve in series):
            return [Curves(series, "step", named, caption)]
    return []


def _curve(name: str, lines: Sequence[Mapping[str, Any]], key: str) -> Curve:
    points = [(float(line["step"]), float(line[key])) for line in lines if key in line]
    best = max if key == DEV else min
    if key == LOSS or not points:
        return Curve(name, points)
    return Curve(name, points, points.index(best(points, key=lambda point: point[1])))


def never_better(path: Path) -> bool:
    """Return whether the start of a run has the best score of the run: true if no later step has a better one.

    The score is the dev score, or the held-out loss if there is no dev score. The start is the given model or the
    weights before the first step, whichever is better. If the start or all later steps have no score, return False.

    Args:
        path: the run's metrics.jsonl.
    """
    lines = [json.loads(line) for line in lines_up_to(path)]
    for key, sign in ((DEV, 1), (HELD_OUT_LOSS, -1)):
        before, later = [[line for line in lines if bool(line["step"]) == is_later] for is_later in (False, True)]
        start = [sign * float(line[name]) for line in before for name in (key, f"{GIVEN}{key}") if name in line]
        after = [sign * float(line[key]) for line in later if key in line]
        if start and after:
            return max(after) <= max(start)
    return False
