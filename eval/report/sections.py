"""Present a summary as text for the terminal, and as the sections of a report.

    ScoreSummary ──> terminal_summary: a sentence, bars, and the table of scores
                 ──> report_sections: summary, models, scores, differences, examples, one section for each family of
                                      tasks, nearest neighbors, skipped tasks, data, environment

Sections that few readers need, such as data and environment, are collapsed in the report.
"""

import itertools
import json
import math
import textwrap
from collections.abc import Mapping
from typing import Any

from clearspan.common.compute import Compute
from clearspan.common.progress import counted
from clearspan.common.terminal import printable
from clearspan.eval.details import Cell, Table, cell_text, merged
from clearspan.eval.report.figures import text_bars, value_text
from clearspan.eval.report.html import Section
from clearspan.eval.report.outcome import (
    FEW_TASKS,
    examples,
    model_table,
    score_figures,
    sentence,
    task_figure,
)
from clearspan.eval.report.summary import AVERAGE, ScoreSummary, heading, listed
from clearspan.eval.report.text import text_table
from clearspan.eval.scores import Difference, TaskScores, in_percent

RANKED = ("retrieval", "heldout", "queries")
"""The families whose tasks rank documents for queries."""
_NOISE = "95 % interval by paired bootstrap, * exceeds noise (p corrected by Holm)"
_NOTE = (
    "Scores are in percent, except alignment (the mean squared distance between two sentences of the same meaning), "
    "uniformity (the logarithm of the mean of exp(-2 d²) over the distances d of all pairs) and mean squared errors."
)
_PERCENT = "Scores are in percent."
_EXAMPLES = "A query that the best model wins against the one it is compared with, and one that it loses."
_INTERVALS = "In brackets: the 95 % interval, by bootstrap over a task's examples."
_SEVERAL = "Bold: the best of this run's models."
_DIFFERENCES = (
    "Main scores minus those of {}, in percentage points, with 95 % intervals by paired bootstrap over a task's "
    "examples. Bold: exceeds noise, with the p-value corrected by Holm over this table."
)
_NEIGHBORS = "A few queries, with the rank of the first relevant document and the nearest documents. Bold: relevant."
_FEW_MODELS = 3


def figures_table(summary: ScoreSummary) -> Table:
    """Return the summary table, with the most important scores of each task (`TaskScores.headline`) and the averages.

    It has a row for each score, grouped by family of tasks, and a column for each model. If there are more models than
    scores, it has a row for each model and a column for each score instead.
    """
    groups: dict[int, str] = {}
    rows: list[list[object]] = []
    for task, metric in summary.figures:
        group = "Averages" if task == AVERAGE else heading(summary.families[task])
        if group not in groups.values():
            groups[len(rows)] = group
        names = (metric, summary.coverage(metric)) if task == AVERAGE else (task, metric)
        rows.append([*names, *summary.values(task, metric)])
    table = Table(("task", "metric", *summary.names), rows, "", groups if len(groups) > 1 else {}, names=2)
    return turned(table) if len(summary.names) > len(rows) else table


def turned(table: Table) -> Table:
    """Transpose a table that has a column for each model, so that it has a row for each model.

    The cells that name a row of `table`, such as the task and the metric, become the heading of a column. A task that
    is the same in all rows becomes the beginning of the caption instead.
    """
    named = [[cell_text(value) for value in row[: table.names]] for row in table.rows]
    differs = [len({row[i] for row in named}) > 1 for i in range(table.names)]
    differs[-1] = True
    headings = [" ".join(part for part, keep in zip(row, differs, strict=True) if keep and part) for row in named]
    shared = [part for part, keep in zip(named[0], differs, strict=True) if not keep and part] if named else []
    columns = [row[table.names :] for row in table.rows]
    models = table.header[table.names :]
    rows = [(model, *(column[i] for column in columns)) for i, model in enumerate(models)]
    return Table(("model", *headings), rows, ": ".join(filter(None, [*shared, table.caption])))


def differences_table(summary: ScoreSummary) -> Table | None:
    """Return a table of each model's main scores minus the first model's main scores; None if none was computed.

    It has a row for each task, and a column for each model except the first. If there are more such columns than rows,
    it has a row for each model and a column for each task instead. A difference is emphasized if its corrected p-value
    is below 0.05.
    """
    rows = []
    for task in summary.families:
        changes = [scored.differences.get(task) for scored in summary.scored[1:]]
        if any(changes):
            rows.append((task, summary.main(task), *map(_difference_cell, changes)))
    if not rows:
        return None
    table = Table(("task", "metric", *summary.names[1:]), rows, names=2)
    return turned(table) if len(summary.names) - 1 > len(rows) else table


def terminal_summary(summary: ScoreSummary, width: int = 100) -> str:
    """Return the summary as plain text.

    It has a sentence on the outcome, the bar chart (if there is only one, with several bars), the tables of scores and
    differences, the device, the prompts, the averages that lack tasks, skipped tasks with their reasons, and warnings.
    If there are several models, the intervals of the differences are shown, but not the intervals of the scores.

    Args:
        summary: the evaluations of the run.
        width: the number of terminal columns. A wider table is divided into several tables.
    """
    several = len(summary.names) > 1
    environment = summary.scored[0].results.environment
    lines = [*textwrap.wrap(sentence(summary), width), ""]
    bars = score_figures(summary)
    if len(bars) == 1 and len(bars[0].rows) > 1 and (drawn := text_bars(bars[0], width)):
        lines += [bars[0].unit, *drawn, ""]
    lines.append(f"in percent{'; * the best' if several else ''}")
    lines += text_table(figures_table(summary), width, notes=not several)
    if differences := differences_table(summary):
        lines.append(f"difference of main scores from {summary.names[0]}; {_NOISE}:")
        lines += text_table(differences, width)
    if "precision" in environment:
        lines.append(str(Compute(environment["device"], environment["precision"])))
    lines += [f"prompts: {line}" for line in summary.prompts]
    lines += summary.incomplete
    lines += [f"skipped {task}: {reason}" for task, reason in summary.skipped]
    lines += [f"warning: {warning}" for warning in summary.warnings]
    return "\n".join(printable(line).rstrip() for line in lines).lstrip("\n")


def report_sections(summary: ScoreSummary) -> list[Section]:
    """Return the sections of the report, from the summary to the environment."""
    all_in_percent = all(in_percent(metric) for task, metric in summary.figures if task != AVERAGE)
    notes = [_PERCENT if all_in_percent else _NOTE, _INTERVALS]
    if len(summary.scored) > 1:
        notes.append(_SEVERAL)
    sections = []
    figures = score_figures(summary)
    if figures:
        sections.append(Section("Summary", figures=figures))
    sections.append(Section("Models", tables=[model_table(summary)]))
    text = "\n\n".join([" ".join(notes), *summary.incomplete])
    sections.append(Section("Scores", text, [figures_table(summary)]))
    if differences := differences_table(summary):
        sections.append(Section("Differences", _DIFFERENCES.format(summary.names[0]), [differences]))
    ranked = [task for family in RANKED for task, of in summary.families.items() if of == family]
    differing = {task: tables for task in ranked if (tables := examples(summary, task))}
    if differing:
        inner = [Section(task, tables=tables) for task, tables in differing.items()]
        content = {"sections": inner} if len(inner) > 1 else {"tables": inner[0].tables}
        sections.append(Section("Examples", _EXAMPLES, **content))
    in_summary = len(summary.families) <= FEW_TASKS or len(summary.scored) == 1
    for family, tasks in itertools.groupby(summary.families, summary.families.__getitem__):
        named = list(tasks)
        drawn = [] if in_summary else [task_figure(summary, task, task) for task in named]
        inner = [_task(summary, task, family) for task in named]
        sections.append(Section(heading(family), sections=inner, figures=drawn))
    if neighbors := [table for task in ranked for table in _merged(summary.of(task))]:
        note = counted(len(neighbors), "example")
        sections.append(Section("Nearest neighbors", _NEIGHBORS, neighbors, folded=True, note=note))
    if summary.skipped:
        sections.append(Section("Skipped", tables=[Table(("task", "reason"), summary.skipped)]))
    return [*sections, _data(summary), _run(summary)]


def report_title(summary: ScoreSummary) -> str:
    """Return the title of the report, with the models' names, or with their number if there are more than three."""
    few = len(summary.names) <= _FEW_MODELS
    return f"Evaluation of {listed(summary.names) if few else counted(len(summary.names), 'model')}"


def report_lead(summary: ScoreSummary) -> str:
    """Return the first two paragraphs of the report: a sentence on the outcome, and a description of the run.

    There is an empty line between them. The description has the number of models, the number of tasks, the protocol,
    the seed, the device, the precision and the date.
    """
    environment = summary.scored[0].results.environment
    words = [counted(len(summary.scored), "model"), counted(len(summary.families), "task")]
    words += [f"{key} {environment[key]}" for key in ("protocol", "seed", "device", "precision") if key in environment]
    subject = ", ".join(words) + (f". {environment['date'][:10]}" if "date" in environment else "") + "."
    return f"{sentence(summary)}\n\n{subject}".strip()


def _merged(by_model: Mapping[str, TaskScores]) -> list[Table]:
    return merged({model: scores.details.tables for model, scores in by_model.items()})


def _task(summary: ScoreSummary, task: str, family: str) -> Section:
    """Return a collapsed section with all of a task's scores, details and settings, headed by the three best scores."""
    by_model = summary.of(task)
    main = summary.main(task)
    metrics = dict.fromkeys(metric for scores in by_model.values() for metric in scores.scores)
    counts = ", ".join(f"{number} {noun}" for noun, number in next(iter(by_model.values())).counts.items())
    scores = Table(("metric", *summary.names), [(each, *summary.values(task, each)) for each in metrics], counts)
    tables = [turned(scores) if len(summary.names) > len(metrics) else scores]
    if family not in RANKED:  # the tables of ranked tasks are in the section of nearest neighbors
        tables += _merged(by_model)
    if settings := _settings({model: scores.settings for model, scores in by_model.items()}):
        tables.append(Table(("setting", *by_model), settings, "settings"))
    several = len(summary.scored) > 1
    texts = dict.fromkeys(scores.details.text for scores in by_model.values() if scores.details.text)
    bars = task_figure(summary, task).rows
    best = [f"{bar.name} {value_text(bar)}" if several else value_text(bar) for bar in bars[:_FEW_MODELS]]
    note = f"{main}: {listed(best)}{', ...' if len(bars) > _FEW_MODELS else ''}"
    return Section(task, "\n\n".join(texts), tables, folded=True, note=note)


def _data(summary: ScoreSummary) -> Section:
    """Return a collapsed section with the SHA-256 of each data file of each task."""
    data = {task: files for scored in summary.scored for task, files in scored.results.data.items()}
    rows = [(task, *file) for task, files in data.items() for file in files.items()]
    return Section("Data", "", [Table(("task", "file", "SHA-256"), rows)], folded=True, note=counted(len(rows), "file"))


def _run(summary: ScoreSummary) -> Section:
    """Return a collapsed section with the environment of each model (`Results.environment`).

    The environment has the value of `--model`, the versions of packages, the device and the settings. One table has
    what is the same for all models, and another table has what differs.
    """
    flat: dict[str, dict[str, Any]] = {}
    for scored in summary.scored:
        environment = dict(scored.results.environment)
        versions = {name: number or "not installed" for name, number in environment.pop("versions", {}).items()}
        flat[scored.results.model] = {"model": scored.results.spec, **environment, **versions}
    rows = _settings(flat)
    same = [row[:2] for row in rows if len(set(row[1:])) == 1]
    differ = [row for row in rows if len(set(row[1:])) > 1]
    tables = [Table(("setting", "value" if len(flat) == 1 else "all models"), same)] if same else []
    if differ:
        of_models = Table(("setting", *flat), differ)
        tables.append(turned(of_models) if len(flat) > len(differ) else of_models)
    return Section("Environment", tables=tables, folded=True, note=counted(len(rows), "setting"))


def _settings(by_model: Mapping[str, Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Return a row for each setting: its name, and its value for each model as text, `none` if a model lacks it."""
    keys = dict.fromkeys(key for each in by_model.values() for key in each)
    return [(key, *(_text(each.get(key)) for each in by_model.values())) for key in keys]


def _text(value: Any) -> str:
    if value is None:
        return "none"
    return value if isinstance(value, str) else json.dumps(value, default=str)


def _difference_cell(change: Difference | None) -> Cell:
    """Return the cell of a difference in percentage points, with its interval; emphasized if its corrected p < 0.05."""
    if change is None or math.isnan(change.value):
        return Cell(math.nan if change else None)
    note = f"[{change.low:+.1f}, {change.high:+.1f}]" if math.isfinite(change.low) else ""
    return Cell(f"{change.value:+.2f}", note, change.exceeds_noise)
