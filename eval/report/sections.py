"""Sections of an evaluation's report, for one model or several.

Summary ──> summary, differences, nearest neighbors ──> the tasks, by family ──> skipped, data, run
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from clearspan.eval.details import Table, cell_text, merged
from clearspan.eval.report.html import Section
from clearspan.eval.report.summary import Summary, counts_text, differences_table, figures_table, heading

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
    text = "\n\n".join([" ".join(notes), *summary.incomplete])
    return Section("Summary", text, [figures_table(summary)])


def _differences(summary: Summary) -> Iterator[Section]:
    """Yield a section of the differences from the first model, if there are several models."""
    if table := differences_table(summary):
        yield Section("Differences", _DIFFERENCES.format(summary.names[0]), [table])


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
    tables = [Table(("metric", *summary.names), rows, counts_text(next(iter(by_model.values())).counts))]
    if family not in _RANKED:  # whose tables are in _neighbors
        tables += merged({model: scores.details.tables for model, scores in by_model.items()})
    if rows := _settings({model: scores.settings for model, scores in by_model.items()}):
        tables.append(Table(("setting", *by_model), rows, "settings"))
    several = len(summary.scored) > 1
    texts = dict.fromkeys(scores.details.text for scores in by_model.values() if scores.details.text)
    values = summary.values(task, main)
    shown = [f"{name} {cell_text(value.value)}" for name, value in zip(summary.names, values, strict=True)]
    note = f"{main}: {', '.join(shown) if several else cell_text(values[0].value)}"
    return Section(task, "\n\n".join(texts), tables, folded=True, note=note)


def _data(summary: Summary) -> Section:
    """Return the checksums of the data files, by task."""
    data = {task: files for each in summary.scored for task, files in each.results.data.items()}
    rows = [(task, *file) for task, files in data.items() for file in files.items()]
    return Section("Data", "", [Table(("task", "file", "SHA-256"), rows)], folded=True, note=_number(len(rows), "file"))


def _run(summary: Summary) -> Section:
    """Return what the scores depend on besides the data: models, versions, seeds, settings."""
    flat = {
        each.results.model: {"model": each.results.spec, **_flat(each.results.environment)} for each in summary.scored
    }
    return Section("Environment", tables=[Table(("setting", *flat), _settings(flat))])


def _settings(by_model: Mapping[str, Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Return a row per setting with its value for each model."""
    keys = dict.fromkeys(key for each in by_model.values() for key in each)
    return [(key, *(_text(each.get(key)) for each in by_model.values())) for key in keys]


def _flat(environment: dict[str, Any]) -> dict[str, Any]:
    """Return the environment without nesting: packages' versions at its end."""
    versions = environment.get("versions", {})
    more = {package: number or "not installed" for package, number in versions.items()}
    return {key: value for key, value in environment.items() if key != "versions"} | more


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value, default=str)


def _by_family(summary: Summary) -> dict[str, list[str]]:
    """Return family -> its tasks."""
    tasks: dict[str, list[str]] = {}
    for task, family in summary.families.items():
        tasks.setdefault(family, []).append(task)
    return tasks


def _number(number: int, noun: str) -> str:
    return f"{number} {noun}" + "s" * (number != 1)
