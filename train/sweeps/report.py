"""What a sweep found: the scores of its runs as a table, as sweep.json and as one figure.

    OUTPUT/table.csv   a line a run: its keys' values, its scores
    OUTPUT/sweep.json  the same, for programs
    OUTPUT/figure.png  the first score by each key's values, a point a run (DeCLUTR's Figures 2 and 3)

Scores are read from what each run left: averages of `python -m eval`, the best score on the dev set, or else the last
logged losses.
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
from clearspan.train.sweeps.grid import RECIPE, Grid, Run, short_names
from clearspan.train.sweeps.scores import INCOMPLETE, Scores, Scoring

DEV = "dev_score"
ALL_STEPS = 1 << 62

Found = Mapping[str, Scores]
"""By a run's name, its scores: of those that have some."""
FILES = ("sweep.json", "table.csv", "figure.png")


def scores(run: Path, how: Scoring | None = None) -> Scores:
    """A run's scores: the averages of its evaluation, in percent, and the best dev score; where there is neither, the
    losses of the last step that has them.

    Raises:
        ValueError: a results.json is not one.
    """
    lines = [json.loads(line) for line in lines_up_to(run / "metrics.jsonl", ALL_STEPS)]
    results = how.results(run) if how else None
    found: Scores = how.scores(results) if how and results else {}
    if tried := [line[DEV] for line in lines if DEV in line]:
        found[DEV] = max(tried)
    if not found:
        last: Scores = next((line for line in reversed(lines) if "loss" in line), {})
        found = {name: value for name, value in last.items() if name == "loss" or name.endswith("/loss")}
    return found


def highest(found: Found, score: str) -> str:
    """Which run has the highest score, in a line; "": none has that one."""
    name = next((name for name in score_names(found) if name in (score, f"{score}{INCOMPLETE}")), "")
    own = {run: one[name] for run, one in found.items() if name in one}
    return f"highest {name}: {max(own.values()):.2f}, {max(own, key=lambda run: own[run])}" if own else ""


def score_names(found: Found) -> list[str]:
    """All that some run has, in the order in which they first come."""
    return list(dict.fromkeys(name for one in found.values() for name in one))


def columns(runs: Sequence[Run]) -> list[str]:
    """The keys that a table has a column of: those that a grid names."""
    varied = {run.settings.get(RECIPE) for run in runs}
    return [key for key in runs[0].settings if key != RECIPE or len(varied) > 1]


def table(runs: Sequence[Run], found: Found, remarks: Mapping[str, str]) -> str:
    """For the terminal; `remarks` are what stands behind the figures, by a run's name."""
    keys, names = columns(runs), score_names(found)
    short = short_names(keys)
    rows = [
        [
            *(run.settings[key] for key in keys),
            *(f"{found[run.name][name]:.4f}" if name in found.get(run.name, {}) else "" for name in names),
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
    found: Found,
    remarks: Mapping[str, str],
    notes: Sequence[str] = (),
) -> None:
    """Publishes table.csv, sweep.json and, where a run has a score, figure.png. The table has a column of remarks where
    a run has one.

    Args:
        remarks: by a run's name. notes: on several runs.
    """
    keys, names = columns(runs), score_names(found)
    lines = io.StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(["run", *keys, *names, *(["remark"] if remarks else [])])
    content = []
    for run in runs:
        own, remark = found.get(run.name, {}), remarks.get(run.name, "")
        settings = [run.settings[key] for key in keys]
        writer.writerow([run.name, *settings, *(own.get(name, "") for name in names), *([remark] if remarks else [])])
        content.append({"run": run.name, "settings": run.settings, "scores": found.get(run.name), "remark": remark})
    report = {"runs": content, "notes": list(notes)}
    files.write_text(folder / "sweep.json", f"{json.dumps(report, indent=2)}\n")
    files.write_text(folder / "table.csv", lines.getvalue())
    if names:
        image = io.BytesIO()
        draw(grid, runs, found).savefig(image, format="png", dpi=150, metadata={"Software": None})
        files.write_bytes(folder / "figure.png", image.getvalue())


def draw(grid: Grid, runs: Sequence[Run], found: Found) -> Figure:
    """The first score by each panel's values: a point a run, a box where a value has three or more; of an axis that is
    told apart by colour, a line through each of its medians.
    """
    score, panels = score_names(found)[0], grid.panels or (grid.axes[0].keys[0],)
    scored = [run for run in runs if score in found.get(run.name, {})]
    figure = Figure(figsize=(1.5 + 3.2 * len(panels), 3.6), layout="constrained")
    short = short_names([key for axis in grid.axes for key in axis.keys])
    for axes, key in zip(figure.subplots(1, len(panels), sharey=True, squeeze=False)[0], panels, strict=True):
        axis = grid.axis(key).in_order()
        groups = grouped(grid, key, scored, {run.name: found[run.name][score] for run in scored})
        for number, (label, places) in enumerate(groups.items()):
            offset = 0.0 if len(groups) == 1 else 0.5 * (number / (len(groups) - 1) - 0.5)
            colour = f"C{number}"
            for place, values in places.items():
                middle = (min(len(values), 5) - 1) / 2
                spread = [place + offset + 0.025 * (rank % 5 - middle) for rank in range(len(values))]
                axes.plot(spread, values, "o", color=colour, markersize=4, alpha=0.6)
                if len(values) >= 3:
                    axes.boxplot(values, positions=[place + offset], widths=0.22, showfliers=False, manage_ticks=False)
            if len(groups) > 1:
                medians = [statistics.median(values) for values in places.values()]
                axes.plot([place + offset for place in places], medians, color=colour, linewidth=1, label=label)
        axes.set_xticks(range(len(axis.points)), axis.labels, parse_math=False)
        axes.set_xlim(-0.6, len(axis.points) - 0.4)
        axes.set_xlabel(short[key], parse_math=False)
        axes.spines[["top", "right"]].set_visible(False)
        if len(groups) > 1:
            axes.legend(frameon=False, title=short[grid.colour])
    figure.axes[0].set_ylabel(score, parse_math=False)
    return figure


def grouped(
    grid: Grid, key: str, runs: Sequence[Run], values: Mapping[str, float]
) -> dict[str, dict[int, list[float]]]:
    """By colour ("" where there is none), by the number of the panel's point: the scores of the runs that have both."""
    axis, found = grid.axis(key).in_order(), {}
    coloured = grid.axis(grid.colour).in_order() if grid.colour and grid.colour != key else None
    for number, label in enumerate(coloured.labels if coloured else [""]):
        own = [run for run in runs if coloured is None or _is_at(run, coloured.keys, coloured.points[number])]
        places = {
            place: [values[run.name] for run in own if _is_at(run, axis.keys, point)]
            for place, point in enumerate(axis.points)
        }
        if kept := {place: some for place, some in places.items() if some}:
            found[label] = kept
    return found


def _is_at(run: Run, keys: Sequence[str], point: Sequence[str]) -> bool:
    return all(run.settings[key] == value for key, value in zip(keys, point, strict=True))
