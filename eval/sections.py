"""Sections of an evaluation's report, for one model or several.

Summary ──> summary, differences, nearest neighbors ──> the tasks, by family ──> skipped, data, run
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from clearspan.eval.details import Cell, Table, cell_text, merged
from clearspan.eval.report import plots
from clearspan.eval.report.html import Section
from clearspan.eval.scores import in_percent
from clearspan.eval.summary import Summary, counts_text, differences_table, figures_table, heading

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_BARS_PER_CHART = 12
_GEOMETRY = ("uniformity", "alignment")
_RANKED = ("retrieval", "heldout")
_NOTE = (
    "Scores are in percent, except alignment (the mean squared distance between two sentences of the same meaning), "
    "uniformity (the logarithm of the mean of exp(-2 d²) over the distances d of all pairs) and mean squared errors."
)
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
    sections = [_summary(summary), *_differences(summary), *_neighbors(summary)]
    for family, tasks in _by_family(summary).items():
        sections.append(Section(heading(family), sections=[_task(summary, task, family) for task in tasks]))
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
    text = "\n\n".join([" ".join(notes), *summary.incomplete])
    return Section("Summary", text, [figures_table(summary)], [*_bars(summary), *_plane(summary)])


def _differences(summary: Summary) -> Iterator[Section]:
    """Yield a section of the differences from the first model, if there are several models."""
    if table := differences_table(summary):
        yield Section("Differences", _DIFFERENCES.format(summary.names[0]), [table])


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
        f"{heading(family)}: {tasks[0][1]}, %" if same else f"{heading(family)}, %",
        {
            each.results.model: [
                each.results.intervals.get(task, {}).get(metric, no_interval) for task, metric in tasks
            ]
            for each in summary.scored
        },
        marks,
    )


def _plane(summary: Summary) -> Iterator["Figure"]:
    """Yield a chart of uniformity against alignment for a task that has both."""
    for task in summary.families:
        if set(_GEOMETRY) <= set(summary.metrics(task, lambda scores: list(scores.scores))):
            x, y = ([_float(cell) for cell in summary.values(task, metric)] for metric in _GEOMETRY)
            yield plots.plane(dict(zip(summary.columns, zip(x, y, strict=True), strict=True)), *_GEOMETRY)


def _neighbors(summary: Summary) -> Iterator[Section]:
    """Yield a section of example queries, with the models' nearest documents side by side."""
    tables = [
        table
        for family in _RANKED
        for task in _by_family(summary).get(family, [])
        for table in merged({model: scores.details.tables for model, scores in summary.of(task).items()})
    ]
    if tables:
        yield Section("Nearest neighbors", _NEIGHBORS, tables)


def _task(summary: Summary, task: str, family: str) -> Section:
    """Return a folded section of everything known of a task, with its main figure beside the heading."""
    by_model, main = summary.of(task), summary.main(task)
    rows = [(m, *summary.values(task, m)) for m in summary.metrics(task, lambda scores: list(scores.scores))]
    tables = [Table(("metric", *summary.columns), rows, counts_text(next(iter(by_model.values())).counts))]
    if family not in _RANKED:  # whose tables are in _neighbors
        tables += merged({model: scores.details.tables for model, scores in by_model.items()})
    if rows := _settings({model: scores.settings for model, scores in by_model.items()}):
        tables.append(Table(("setting", *by_model), rows, "settings"))
    several = len(summary.scored) > 1
    texts = dict.fromkeys(scores.details.text for scores in by_model.values() if scores.details.text)
    values = summary.values(task, main)[: len(summary.scored)]
    shown = [f"{name} {cell_text(value.value)}" for name, value in zip(summary.names, values, strict=True)]
    note = f"{main}: {', '.join(shown) if several else cell_text(values[0].value)}"
    return Section(task, "\n\n".join(texts), tables, folded=True, note=note)


def _data(summary: Summary) -> Section:
    """Return the checksums of the data files, by task."""
    data = {task: files for each in summary.scored for task, files in each.results.data.items()}
    rows = [(task, *file) for task, files in data.items() for file in files.items()]
    return Section("Data", "", [Table(("task", "file", "SHA-256"), rows)], folded=True, note=_number(len(rows), "file"))


def _run(summary: Summary) -> Section:
    """Return what the scores depend on besides the data: models, versions, seeds, settings; and the time they took."""
    flat = {
        each.results.model: {"model": each.results.spec, **_flat(each.results.environment)} for each in summary.scored
    }
    tables = [Table(("setting", *flat), _settings(flat))]
    times = {each.results.model: each.results.environment.get("scoring_s", {}) for each in summary.scored}
    if any(times.values()):
        seconds = [(task, *(each.get(task) for each in times.values())) for task in summary.families]
        tables.append(Table(("task", *times), seconds, "seconds of scoring, without embedding"))
    return Section("Environment", tables=tables)


def _settings(by_model: Mapping[str, Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Return a row per setting with its value for each model."""
    keys = dict.fromkeys(key for each in by_model.values() for key in each)
    return [(key, *(_text(each.get(key)) for each in by_model.values())) for key in keys]


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


def _float(cell: Cell) -> float:
    return float(cell.value) if isinstance(cell.value, (int, float)) else float("nan")


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
