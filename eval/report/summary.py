"""Summary of evaluations: one row per figure, one column per model, for the terminal and the report.

Scored of 1..n models ──> Summary ─┬─> terminal_summary
                                   └─> report_sections: summary, differences, nearest neighbors ──> the tasks, by
                                       family ──> skipped, data, environment
"""

import itertools
import json
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from clearspan.common.compute import Compute
from clearspan.common.encoder.prompts import Sides
from clearspan.common.progress import counted
from clearspan.common.terminal import printable
from clearspan.eval.details import Cell, Table, cell_text, merged
from clearspan.eval.report.html import Section
from clearspan.eval.report.text import text_table
from clearspan.eval.results import Scored
from clearspan.eval.scores import Difference, TaskScores, in_percent

AVERAGE = "average"
_NOISE = "95 % interval by paired bootstrap, * exceeds noise (p corrected by Holm)"
_HEADINGS = {
    "sts": "STS",
    "glue": "GLUE",
    "heldout": "Held-out texts",
    "stsb-multilingual": "STS-B in other languages",
    "probing-mlp": "Probing with MLPs",
    "pairs": "Your own pairs",
}
RANKED = ("retrieval", "heldout")
"""Families in which queries find documents."""
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
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Summary:
    """Models scored in one run: one evaluation per model, at least one, under distinct names."""

    scored: Sequence[Scored]

    @property
    def prompts(self) -> list[str]:
        """Return a line for each model that has prompts: which it had before which texts."""
        of_models = {each.results.model: each.results.environment.get("prompts") for each in self.scored}
        lines = {model: str(Sides(**sides)) for model, sides in of_models.items() if sides}
        return [f"{model}: {line}" if len(self.scored) > 1 else line for model, line in lines.items()]

    @property
    def names(self) -> list[str]:
        """Return the models' names, in their order."""
        return [scored.results.model for scored in self.scored]

    @property
    def families(self) -> dict[str, str]:
        """Return task -> family, of every task that any model was scored on, with a family's tasks adjacent."""
        families = {task: scored.families.get(task, "tasks") for scored in self.scored for task in scored.tasks}
        order = list(dict.fromkeys(families.values()))
        return dict(sorted(families.items(), key=lambda item: order.index(item[1])))

    def of(self, task: str) -> dict[str, TaskScores]:
        """Return model -> scores on a task, of the models that have them."""
        return {scored.results.model: scored.tasks[task] for scored in self.scored if task in scored.tasks}

    def main(self, task: str) -> str:
        """Return the metric that represents a task."""
        return next(iter(self.of(task).values())).main

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Return a summary's rows: (task, metric) of each headline figure, then (AVERAGE, name) of each average."""
        headline = [(task, metric) for task in self.families for of in self.of(task).values() for metric in of.headline]
        return list(dict.fromkeys(headline)) + [(AVERAGE, name) for name in self.averages]

    @property
    def averages(self) -> list[str]:
        """Return the names of the averages."""
        return list(dict.fromkeys(name for scored in self.scored for name in scored.results.averages))

    def values(self, task: str, metric: str) -> list[Cell]:
        """Return a figure of each model with its interval; the best of several is strong."""
        values = [self._value(scored, task, metric) for scored in self.scored]
        shown = {i: round(value, 2) for i, value in enumerate(values) if value is not None and math.isfinite(value)}
        best = (max if task == AVERAGE or in_percent(metric) else min)(shown.values(), default=None)
        cells = []
        for i, (scored, value) in enumerate(zip(self.scored, values, strict=True)):
            low, high = scored.results.intervals.get(task, {}).get(metric, (math.nan, math.nan))
            note = f"[{low:.1f}, {high:.1f}]" if math.isfinite(low) and value is not None else ""
            cells.append(Cell(value, note, strong=len(self.scored) > 1 and i in shown and shown[i] == best))
        return cells

    def coverage(self, average: str) -> str:
        """Return what an average covers: `5 of 7 tasks`."""
        averages = (scored.results.averages for scored in self.scored)
        return _coverage(next(each[average] for each in averages if average in each))

    @property
    def incomplete(self) -> Iterator[str]:
        """Yield a line for each average that lacks tasks, one per group of models that lack the same tasks."""
        for average in self.averages:
            of_models = [(scored.results.averages.get(average), scored) for scored in self.scored]
            partial = [
                ((_coverage(each), *each["missing"]), scored) for each, scored in of_models if each and each["missing"]
            ]
            for (coverage, *missing), models in self._together(partial).items():
                reason = f"so not comparable with published averages (missing: {', '.join(missing)})"
                yield f"average {average}{f' of {models}' if models else ''}: {coverage}, {reason}"

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """Return (task, reason) once each; the reason begins with the models' names unless it holds for all models."""
        reasons = self._together((item, scored) for scored in self.scored for item in scored.results.skipped.items())
        return [(task, f"{models}: {reason}" if models else reason) for (task, reason), models in reasons.items()]

    @property
    def warnings(self) -> list[str]:
        """Return the warnings once each, with the models' names in front unless a warning holds for all models."""
        warnings = self._together((text, scored) for scored in self.scored for text in scored.results.warnings)
        return [f"{models}: {text}" if models else text for text, models in warnings.items()]

    @property
    def outcome(self) -> str:
        """Return in words which models differ from the first one beyond noise; empty for one model."""
        verdicts = [(_verdict(scored.differences), scored) for scored in self.scored[1:] if scored.differences]
        each = [f"{verdict} ({models})" for verdict, models in sorted(self._together(verdicts).items())]
        return f"Differences from {self.names[0]} beyond noise: {', '.join(each)}." if each else ""

    def _together(self, items: Iterable[tuple[_Item, Scored]]) -> dict[_Item, str]:
        """Return each item once, with the names of its models; "" for an item of all models."""
        models: dict[_Item, list[str]] = {}
        for item, scored in items:
            models.setdefault(item, []).append(scored.results.model)
        return {item: ", ".join(names) if len(names) < len(self.scored) else "" for item, names in models.items()}

    def _value(self, scored: Scored, task: str, metric: str) -> float | None:
        if task != AVERAGE:
            return scored.results.scores.get(task, {}).get(metric)
        average = scored.results.averages.get(metric)
        return None if average is None else float(average["value"])


def figures_table(summary: Summary) -> Table:
    """Return a row per figure, grouped by family, and a column per model."""
    groups: dict[int, str] = {}
    rows: list[list[object]] = []
    for task, metric in summary.figures:
        group = "Averages" if task == AVERAGE else heading(summary.families[task])
        if group not in groups.values():
            groups[len(rows)] = group
        names = (metric, summary.coverage(metric)) if task == AVERAGE else (task, metric)
        rows.append([*names, *summary.values(task, metric)])
    return Table(("task", "metric", *summary.names), rows, "", groups if len(groups) > 1 else {}, names=2)


def differences_table(summary: Summary) -> Table | None:
    """Return a row per task with each further model's difference from the first model; None if there is none.

    A difference that exceeds noise is strong. Tasks without any difference are left out.
    """
    rows = []
    for task in summary.families:
        changes = [scored.differences.get(task) for scored in summary.scored[1:]]
        if any(changes):
            rows.append((task, summary.main(task), *map(_difference_cell, changes)))
    return Table(("task", "metric", *summary.names[1:]), rows, names=2) if rows else None


def terminal_summary(summary: Summary, width: int = 100) -> str:
    """Return the summary as plain text: outcome, figures, differences, device, incomplete averages, skipped tasks with
    the reason, warnings. Intervals of figures are shown for a single model; for several, those of the differences.

    Args:
        width: cells per line; columns that do not fit follow in a further table below.
    """
    several = len(summary.names) > 1
    environment = summary.scored[0].results.environment
    lines = textwrap.wrap(summary.outcome, width)
    lines.append(f"{', '.join(summary.names)}, in percent{'; * the best' if several else ''}")
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
    return "\n".join(printable(line).rstrip() for line in lines)


def report_sections(summary: Summary) -> list[Section]:
    """Return the report's sections: the summary first, data and environment last."""
    notes = [_NOTE, _INTERVALS, *[_SEVERAL] * (len(summary.scored) > 1)]
    text = "\n\n".join([" ".join(notes), *summary.incomplete])
    sections = [Section("Summary", text, [figures_table(summary)])]
    if differences := differences_table(summary):
        sections.append(Section("Differences", _DIFFERENCES.format(summary.names[0]), [differences]))
    ranked = [task for family in RANKED for task, of in summary.families.items() if of == family]
    if neighbors := [table for task in ranked for table in _merged(summary.of(task))]:
        sections.append(Section("Nearest neighbors", _NEIGHBORS, neighbors))
    for family, tasks in itertools.groupby(summary.families, summary.families.__getitem__):
        sections.append(Section(heading(family), sections=[_task(summary, task, family) for task in tasks]))
    if summary.skipped:
        sections.append(Section("Skipped", tables=[Table(("task", "reason"), summary.skipped)]))
    return [*sections, _data(summary), _run(summary)]


def report_lead(summary: Summary) -> str:
    """Return the outcome, and a paragraph of what was scored: numbers of models and tasks, protocol, seed, device,
    precision, date.
    """
    environment = summary.scored[0].results.environment
    words = [counted(len(summary.scored), "model"), counted(len(summary.families), "task")]
    words += [f"{key} {environment[key]}" for key in ("protocol", "seed", "device", "precision") if key in environment]
    subject = ", ".join(words) + (f". {environment['date'][:10]}" if "date" in environment else "") + "."
    return f"{summary.outcome}\n\n{subject}".strip()


def _merged(by_model: Mapping[str, TaskScores]) -> list[Table]:
    return merged({model: scores.details.tables for model, scores in by_model.items()})


def _task(summary: Summary, task: str, family: str) -> Section:
    """Return a folded section of everything known of a task, with its main figure beside the heading."""
    by_model, main = summary.of(task), summary.main(task)
    metrics = dict.fromkeys(metric for scores in by_model.values() for metric in scores.scores)
    counts = ", ".join(f"{number} {noun}" for noun, number in next(iter(by_model.values())).counts.items())
    tables = [Table(("metric", *summary.names), [(each, *summary.values(task, each)) for each in metrics], counts)]
    if family not in RANKED:  # whose tables are the nearest neighbors
        tables += _merged(by_model)
    if settings := _settings({model: scores.settings for model, scores in by_model.items()}):
        tables.append(Table(("setting", *by_model), settings, "settings"))
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
    return Section("Data", "", [Table(("task", "file", "SHA-256"), rows)], folded=True, note=counted(len(rows), "file"))


def _run(summary: Summary) -> Section:
    """Return what the scores depend on besides the data: models, versions, seeds, settings."""
    flat: dict[str, dict[str, Any]] = {}
    for each in summary.scored:
        environment = dict(each.results.environment)
        versions = {name: number or "not installed" for name, number in environment.pop("versions", {}).items()}
        flat[each.results.model] = {"model": each.results.spec, **environment, **versions}
    return Section("Environment", tables=[Table(("setting", *flat), _settings(flat))])


def _settings(by_model: Mapping[str, Mapping[str, Any]]) -> list[tuple[object, ...]]:
    """Return a row per setting with its value for each model."""
    keys = dict.fromkeys(key for each in by_model.values() for key in each)
    return [(key, *(_text(each.get(key)) for each in by_model.values())) for key in keys]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "none" if value is None else json.dumps(value, default=str)


def heading(family: str) -> str:
    """Return a family's heading in a report; `module:name` is a name."""
    return _HEADINGS.get(family, family if ":" in family else family.capitalize())


def _difference_cell(change: Difference | None) -> Cell:
    """Return a difference in points with its interval; "undefined" if either model's score is; empty for None."""
    if change is None or math.isnan(change.value):
        return Cell(math.nan if change else None)
    note = f"[{change.low:+.1f}, {change.high:+.1f}]" if math.isfinite(change.low) else ""
    return Cell(f"{change.value:+.2f}", note, change.exceeds_noise)


def _verdict(differences: Mapping[str, Difference]) -> str:
    """Return the direction of a model's differences that exceed noise."""
    signs = [math.copysign(change.exceeds_noise, change.value) for change in differences.values()]
    better, worse = signs.count(1), signs.count(-1)
    if len(signs) > 1:
        return f"better on {better} and worse on {worse} of {len(signs)} tasks"
    return "better" if better else "worse" if worse else "none"


def _coverage(average: Mapping[str, Any]) -> str:
    num, num_missing = len(average["tasks"]), len(average["missing"])
    return f"{num} of {num + num_missing} tasks" if num_missing else f"{num} tasks"
