"""Sections of an evaluation's report, for one model or several.

Summary ──> summary, geometry, nearest neighbors ──> the tasks, by family ──> skipped, data, run
"""

import itertools
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearspan.eval.details import Cell, Table, cell_text
from clearspan.eval.report import plots
from clearspan.eval.report.html import Section
from clearspan.eval.report.side_by_side import side_by_side
from clearspan.eval.scores import in_percent
from clearspan.eval.summary import AVERAGE, Summary, counts_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS_PER_CHART = 12
_MOST_COLUMNS = 8  # of figures per summary table: a page of 1,200 px holds these beside task and metric
_GEOMETRY = ("uniformity", "alignment")
_RANKED = ("retrieval", "heldout")
_HEADINGS = {
    "sts": "STS",
    "glue": "GLUE",
    "heldout": "Held-out texts",
    "stsb-multilingual": "STS-B in other languages",
    "probing-mlp": "Probing with MLPs",
    "pairs": "Your own pairs",
}
_NOTE = "Scores are in percent, except alignment, uniformity, mean squared errors and median ranks."
_INTERVALS = "In brackets: the 95 % interval, by bootstrap over a task's examples."
_SEVERAL = "Bold: the best of this run's models."
_DIFFERENCES = (
    "Main scores minus those of {}, in percentage points, with 95 % intervals by paired bootstrap over a task's "
    "examples. Bold: exceeds noise, with the p-value corrected by Holm over this table."
)
_NEIGHBORS = "A few queries, with the rank of the first relevant document and the nearest documents. Bold: relevant."
_PUBLISHED = "Published figures, which have no interval: {}."


def report_sections(summary: Summary) -> list[Section]:
    """Return the report's sections: the summary first, data and environment last."""
    sections = [_summary(summary), *_differences(summary), *_geometry(summary), *_neighbors(summary)]
    for family, tasks in _by_family(summary).items():
        sections.append(Section(_heading(family), sections=[_task(summary, task, family) for task in tasks]))
    if summary.skipped:
        sections.append(Section("Skipped", tables=[Table(("task", "reason"), summary.skipped)]))
    return [*sections, _data(summary), _run(summary)]


def report_lead(summary: Summary) -> str:
    """Return the outcome, and a paragraph of what was scored: numbers of models and tasks, protocol, seed, device,
    precision, date.
    """
    environment = summary.scored[0].results.environment
    words = [_number(len(summary.scored), "model"), _number(len(summary.families), "task")]
    words += [f"{key} {environment[key]}" for key in ("protocol", "seed", "device", "precision") if key in environment]
    subject = ", ".join(words) + (f". {environment['date'][:10]}" if "date" in environment else "") + "."
    return f"{summary.outcome}\n\n{subject}".strip()


def _summary(summary: Summary) -> Section:
    notes = [_NOTE, _INTERVALS]
    notes += [_SEVERAL] if len(summary.scored) > 1 else []
    notes += [_PUBLISHED.format(", ".join(summary.baselines))] if summary.baselines else []
    tables = [_figures(summary, columns) for columns in _columns(summary)]
    return Section("Summary", " ".join(notes), tables, list(_bars(summary)), list(_averages(summary)))


def _columns(summary: Summary) -> list[slice]:
    """Return the columns of each summary table: one table if a page holds all, else published models separately."""
    num_models, num = len(summary.names), len(summary.columns)
    if num <= _MOST_COLUMNS:
        return [slice(0, num)]
    starts = [*range(0, num_models, _MOST_COLUMNS), *range(num_models, num, _MOST_COLUMNS)]
    return [slice(start, end) for start, end in itertools.pairwise([*starts, num])]


def _figures(summary: Summary, columns: slice) -> Table:
    """Return a summary table of some of the columns; all but the first table omit rows without a figure."""
    groups: dict[int, str] = {}
    rows: list[list[object]] = []
    for task, metric in summary.figures:
        cells = summary.values(task, metric)[columns]
        if columns.start and all(cell.value is None for cell in cells):
            continue
        group = "Averages" if task == AVERAGE else _heading(summary.families[task])
        if group not in groups.values():
            groups[len(rows)] = group
        rows.append([*((metric, summary.over(task, metric)) if task == AVERAGE else (task, metric)), *cells])
    names = summary.columns[columns]
    caption = "" if names == summary.columns else "models" if columns.start < len(summary.names) else "published"
    return Table(("task", "metric", *names), rows, caption, groups if len(groups) > 1 else {}, names=2)


def _differences(summary: Summary) -> Iterator[Section]:
    """Yield a section of the differences from the first model, if there are several models."""
    if rows := [(task, metric, *cells) for task, metric, cells in summary.differences]:
        name, *others = summary.names
        yield Section("Differences", _DIFFERENCES.format(name), [Table(("task", "metric", *others), rows, names=2)])


def _averages(summary: Summary) -> Iterator[Section]:
    """Yield a section of the tasks in each average, if any model has averages."""
    lines = [line.removeprefix(f"{AVERAGE} ") for line in summary.incomplete]
    rows = []
    for average in summary.averages:
        first = next(each.results.averages[average] for each in summary.scored if average in each.results.averages)
        rows.append((average, ", ".join(first["tasks"]), ", ".join(first["missing"]) or None))
    if rows:
        note = f"{len(lines)} with missing tasks, so not comparable with published averages" if lines else ""
        table = Table(("average", "mean over", "missing"), rows)
        yield Section("Tasks in each average", "\n\n".join(lines), [table], folded=True, note=note)


def _bars(summary: Summary) -> Iterator["Figure"]:
    """Yield charts of the main figures: a family's tasks, at most a dozen per chart, in charts of about one size."""
    for family, names in _by_family(summary).items():
        tasks = [(task, summary.main(task)) for task in names if in_percent(summary.main(task))]
        parts = -(-len(tasks) // _BARS_PER_CHART)
        for part in range(parts):
            yield _chart(summary, family, tasks[len(tasks) * part // parts : len(tasks) * (part + 1) // parts])


def _chart(summary: Summary, family: str, tasks: Sequence[tuple[str, str]]) -> "Figure":
    def of_model(number: int) -> list[float]:
        return [_float(summary.values(task, metric)[number]) for task, metric in tasks]

    same = len({metric for _, metric in tasks}) == 1
    labels = [task if same else f"{task}  {metric}" for task, metric in tasks]
    no_interval = (float("nan"), float("nan"))
    marks = {
        name: [row.get(figure, float("nan")) for figure in tasks]
        for name, row in summary.baselines.items()
        if any(figure in row for figure in tasks)
    }
    return plots.grouped_bars(
        labels,
        {name: of_model(number) for number, name in enumerate(summary.names)},
        f"{_heading(family)}: {tasks[0][1]}, %" if same else f"{_heading(family)}, %",
        {
            each.results.model: [
                each.results.intervals.get(task, {}).get(metric, no_interval) for task, metric in tasks
            ]
            for each in summary.scored
        },
        marks,
    )


def _geometry(summary: Summary) -> Iterator[Section]:
    """Yield a section of alignment against uniformity for a task that has both."""
    for task in summary.families:
        if not set(_GEOMETRY) <= set(summary.metrics(task, lambda scores: list(scores.scores))):
            continue
        cells = [summary.values(task, metric) for metric in _GEOMETRY]
        points = {
            name: (_float(x), _float(y))
            for name, x, y in zip(summary.columns, *cells, strict=True)
            if x.value is not None
        }
        models = {name: point for name, point in points.items() if name in summary.names}
        published = {name: point for name, point in points.items() if name in summary.baselines}
        text = (
            "Alignment: the mean squared distance between two sentences of the same meaning. Uniformity: the logarithm "
            "of the mean of exp(-2 d²) over the distances d of all pairs. Both for unit vectors; lower is better."
        )
        table = Table(("model", *_GEOMETRY), [(name, *point) for name, point in points.items()])
        yield Section("Alignment and uniformity", text, [table], [plots.plane(models, *_GEOMETRY, published)])


def _neighbors(summary: Summary) -> Iterator[Section]:
    """Yield a section of example queries, with the models' nearest documents side by side."""
    tables = [
        table
        for family in _RANKED
        for task in _by_family(summary).get(family, [])
        for table in side_by_side({model: scores.details.tables for model, scores in summary.of(task).items()})
    ]
    if tables:
        yield Section("Nearest neighbors", _NEIGHBORS, tables)


def _task(summary: Summary, task: str, family: str) -> Section:
    """Return a folded section of everything known of a task, with its main figure beside the heading."""
    by_model, main = summary.of(task), summary.main(task)
    rows = [(m, *summary.values(task, m)) for m in summary.metrics(task, lambda scores: list(scores.scores))]
    tables = [Table(("metric", *summary.columns), rows, counts_text(next(iter(by_model.values())).counts))]
    if family not in _RANKED:  # whose tables are in _neighbors
        tables += side_by_side({model: scores.details.tables for model, scores in by_model.items()})
    settings = {model: scores.settings for model, scores in by_model.items() if scores.settings}
    keys = dict.fromkeys(key for each in settings.values() for key in each)
    tables += side_by_side(
        {
            model: [Table(("setting", "value"), [(key, _text(each.get(key))) for key in keys], "settings")]
            for model, each in settings.items()
        }
    )
    several = len(summary.scored) > 1
    texts = dict.fromkeys(scores.details.text for scores in by_model.values() if scores.details.text)
    figures = [
        plots.titled(plots.draw(chart), model) if several else plots.draw(chart)
        for model, scores in by_model.items()
        for chart in scores.details.charts
    ]
    values = summary.values(task, main)[: len(summary.scored)]
    shown = [f"{name} {cell_text(value.value)}" for name, value in zip(summary.names, values, strict=True)]
    note = f"{main}: {', '.join(shown) if several else cell_text(values[0].value)}"
    return Section(task, "\n\n".join(texts), tables, figures, folded=True, note=note)


def _data(summary: Summary) -> Section:
    """Return the checksums of the data files, by task."""
    data = {task: files for each in summary.scored for task, files in each.results.data.items()}
    paths = [path for files in data.values() for path in files]
    folder = os.path.commonpath([Path(path).absolute().parent for path in paths]) if paths else ""
    rows = [
        (task, os.path.relpath(Path(path).absolute(), folder), checksum)
        for task, files in data.items()
        for path, checksum in files.items()
    ]
    text = f"Files below {folder}." if paths else "There are no checksums."
    return Section(
        "Data", text, [Table(("task", "file", "SHA-256"), rows)] if rows else [], folded=True,
        note=_number(len(rows), "file"),
    )  # fmt: skip


def _run(summary: Summary) -> Section:
    """Return what the scores depend on besides the data: models, versions, seeds, settings; and the time they took."""
    flat = {
        each.results.model: {"model": each.results.spec, **_flat(each.results.environment)} for each in summary.scored
    }
    keys = dict.fromkeys(key for each in flat.values() for key in each)
    same = [key for key in keys if len({_text(each.get(key)) for each in flat.values()}) == 1]
    first = next(iter(flat.values()))
    tables = [Table(("setting", "value"), [(key, _text(first.get(key))) for key in same])]
    if differing := [key for key in keys if key not in same]:
        rows = [(key, *(_text(each.get(key)) for each in flat.values())) for key in differing]
        tables.append(Table(("setting", *summary.names), rows, "by model"))
    times = {each.results.model: each.results.environment.get("scoring_s", {}) for each in summary.scored}
    if any(times.values()):
        rows = [(task, *(each.get(task) for each in times.values())) for task in summary.families]
        tables.append(Table(("task", *times), rows, "seconds of scoring, without embedding"))
    return Section("Environment", tables=tables)


def _flat(environment: dict[str, Any]) -> dict[str, Any]:
    """Return the environment without nesting: packages' versions at its end, the tasks' seconds left out."""
    single = {key: value for key, value in environment.items() if not isinstance(value, dict)}
    versions = environment.get("versions", {})
    return single | {package: number or "not installed" for package, number in versions.items()}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value, default=str)


def _by_family(summary: Summary) -> dict[str, list[str]]:
    """Return family -> its tasks."""
    tasks: dict[str, list[str]] = {}
    for task, family in summary.families.items():
        tasks.setdefault(family, []).append(task)
    return tasks


def _heading(family: str) -> str:
    return _HEADINGS.get(family, family if ":" in family else family.capitalize())  # module:name is a name


def _float(cell: Cell) -> float:
    return float(cell.value) if isinstance(cell.value, (int, float)) else float("nan")


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
