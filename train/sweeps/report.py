"""A sweep's results: the scores of its runs as a table, as sweep.json and as one figure.

    OUTPUT/table.csv   one line per run: the values of its keys, its scores
    OUTPUT/sweep.json  the same, for programs
    OUTPUT/figure.png  the first score by each key's values, one point per run (DeCLUTR's Figures 2 and 3)

A run's scores are the averages of its evaluation and its best dev score, or else its last logged losses.
"""

import csv
import io
import json
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from matplotlib.figure import Figure

from clearspan.common import files, terminal
from clearspan.train.engine.tracking import lines_up_to
from clearspan.train.options import DEV
from clearspan.train.sweeps.grid import RECIPE, Grid, Run, short_names
from clearspan.train.sweeps.scores import INCOMPLETE, Scores, Scoring

ALL_STEPS = 1 << 62

ScoresByRun = Mapping[str, Scores]
"""Scores by the name of the run, for runs that have some."""
FILES = ("sweep.json", "table.csv", "figure.png")


def scores(run: Path, evaluation: Scoring | None = None) -> Scores:
    """Return a run's scores: the averages of its evaluation, in percent, and its best dev score; without both, the
    last logged losses.

    Raises:
        ValueError: the evaluation's file is not a results.json.
    """
    lines = [json.loads(line) for line in lines_up_to(run / "metrics.jsonl", ALL_STEPS)]
    results = evaluation.results(run) if evaluation else None
    values: Scores = evaluation.scores(results) if evaluation and results else {}
    if dev := [line[DEV] for line in lines if DEV in line]:
        values[DEV] = max(dev)
    if not values:
        last: Scores = next((line for line in reversed(lines) if "loss" in line), {})
        values = {name: value for name, value in last.items() if name == "loss" or name.endswith("/loss")}
    return values


def highest(by_run: ScoresByRun, score: str) -> str:
    """Return a line that names the run with the highest value of a score, or "" if no run has that score."""
    name = next((name for name in score_names(by_run) if name in (score, f"{score}{INCOMPLETE}")), "")
    values = {run: scores[name] for run, scores in by_run.items() if name in scores}
    return f"highest {name}: {max(values.values()):.2f}, {max(values, key=lambda run: values[run])}" if values else ""


def score_names(by_run: ScoresByRun) -> list[str]:
    """Return the names of all scores, in the order of their first occurrence."""
    return list(dict.fromkeys(name for scores in by_run.values() for name in scores))


def columns(runs: Sequence[Run]) -> list[str]:
    """Return the keys that the table has columns for: the grid's."""
    varied = {run.settings.get(RECIPE) for run in runs}
    return [key for key in runs[0].settings if key != RECIPE or len(varied) > 1]


def table(runs: Sequence[Run], by_run: ScoresByRun, remarks: Mapping[str, str]) -> str:
    """Return the table for the terminal; `remarks` maps a run's name to the remark at the end of its row."""
    keys, names = columns(runs), score_names(by_run)
    short = short_names(keys)
    rows = [
        [
            *(run.settings[key] for key in keys),
            *(f"{by_run[run.name][name]:.4f}" if name in by_run.get(run.name, {}) else "" for name in names),
            remarks.get(run.name, ""),
        ]
        for run in runs
    ]
    right = range(len(keys), len(keys) + len(names))
    return terminal.table([*(short[key] for key in keys), *names, ""], rows, right=right)


def write(
    folder: Path,
    grid: Grid,
    runs: Sequence[Run],
    by_run: ScoresByRun,
    remarks: Mapping[str, str],
    notes: Sequence[str] = (),
) -> None:
    """Publish table.csv, sweep.json and, if a run has a score, figure.png.

    Args:
        remarks: remarks by the name of the run; without any, the table has no column for them.
        notes: lines about several runs.
    """
    keys, names = columns(runs), score_names(by_run)
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["run", *keys, *names, *(["remark"] if remarks else [])])
    content = []
    for run in runs:
        values, remark = by_run.get(run.name, {}), remarks.get(run.name, "")
        settings = [run.settings[key] for key in keys]
        writer.writerow(
            [run.name, *settings, *(values.get(name, "") for name in names), *([remark] if remarks else [])]
        )
        content.append({"run": run.name, "settings": run.settings, "scores": by_run.get(run.name), "remark": remark})
    report = {"runs": content, "notes": list(notes)}
    files.write_text(folder / "sweep.json", f"{json.dumps(report, indent=2)}\n")
    files.write_text(folder / "table.csv", lines.getvalue())
    if names:
        image = io.BytesIO()
        draw(grid, runs, by_run).savefig(image, format="png", dpi=150, metadata={"Software": None})
        files.write_bytes(folder / "figure.png", image.getvalue())


def draw(grid: Grid, runs: Sequence[Run], by_run: ScoresByRun) -> Figure:
    """Return the figure of the first score, with one panel per axis: a point for each run, a box at values with three
    runs or more, and, if an axis is shown by color, a line through the medians of each of its values.
    """
    score, panels = score_names(by_run)[0], grid.panels or (grid.axes[0].keys[0],)
    scored = [run for run in runs if score in by_run.get(run.name, {})]
    figure = Figure(figsize=(1.5 + 3.2 * len(panels), 3.6), layout="constrained")
    short = short_names([key for axis in grid.axes for key in axis.keys])
    for axes, key in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
        axis = grid.axis(key).in_order()
        groups = grouped(grid, key, scored, {run.name: by_run[run.name][score] for run in scored})
        for number, (label, places) in enumerate(groups.items()):
            offset = 0.0 if len(groups) == 1 else 0.5 * (number / (len(groups) - 1) - 0.5)
            color = f"C{number}"
            for place, values in places.items():
                middle = (min(len(values), 5) - 1) / 2
                spread = [place + offset + 0.025 * (rank % 5 - middle) for rank in range(len(values))]
                axes.plot(spread, values, "o", color=color, markersize=4, alpha=0.6)
                if len(values) >= 3:
                    axes.boxplot(values, positions=[place + offset], widths=0.22, showfliers=False, manage_ticks=False)
            if len(groups) > 1:
                medians = [statistics.median(values) for values in places.values()]
                axes.plot([place + offset for place in places], medians, color=color, linewidth=1, label=label)
        axes.set_xticks(range(len(axis.points)), axis.labels, parse_math=False)
        axes.set_xlim(-0.6, len(axis.points) - 0.4)
        axes.set_xlabel(short[key], parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        if len(groups) > 1:
            axes.legend(frameon=False, title=short[grid.color])
    figure.axes[0].set_ylabel(score, parse_math=False)
    return figure


def grouped(
    grid: Grid, key: str, runs: Sequence[Run], values: Mapping[str, float]
) -> dict[str, dict[int, list[float]]]:
    """Return the scores at each color's label ("" without colors) and each point's number on the panel's axis; places
    without a run are left out.
    """
    axis, groups = grid.axis(key).in_order(), {}
    colored = grid.axis(grid.color).in_order() if grid.color and grid.color != key else None
    for number, label in enumerate(colored.labels if colored else [""]):
        group = [run for run in runs if colored is None or _is_at(run, colored.keys, colored.points[number])]
        places = {
            place: [values[run.name] for run in group if _is_at(run, axis.keys, point)]
            for place, point in enumerate(axis.points)
        }
        if filled := {place: scores for place, scores in places.items() if scores}:
            groups[label] = filled
    return groups


def _is_at(run: Run, keys: Sequence[str], point: Sequence[str]) -> bool:
    return all(run.settings[key] == value for key, value in zip(keys, point, strict=True))
