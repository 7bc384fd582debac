"""Summary of evaluations: one row per figure, one column per model, for the terminal and the report.

Scored of 1..n models ──> Summary ─┬─> terminal_summary
                                   └─> sections.report_sections
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from clearspan.common.compute import Compute
from clearspan.common.terminal import printable
from clearspan.eval.details import Cell, Table
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
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Summary:
    """Models scored in one run: one evaluation per model, at least one, under distinct names."""

    scored: Sequence[Scored]

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

    def metrics(
        self, task: str, select: Callable[[TaskScores], Sequence[str]] = lambda scores: scores.headline
    ) -> list[str]:
        """Return the headline metrics of a task over all models, or the metrics that `select` returns."""
        return list(dict.fromkeys(metric for scores in self.of(task).values() for metric in select(scores)))

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Return a summary's rows: (task, metric) of each headline figure, then (AVERAGE, name) of each average."""
        headline = [(task, metric) for task in self.families for metric in self.metrics(task)]
        return headline + [(AVERAGE, name) for name in self.averages]

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
            lines = [
                (
                    f"{_coverage(each)}, so not comparable with published averages "
                    f"(missing: {', '.join(each['missing'])})",
                    scored,
                )
                for each, scored in of_models
                if each and each["missing"]
            ]
            for line, models in self._together(lines).items():
                yield f"average {average}{f' of {models}' if models else ''}: {line}"

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
    lines += summary.incomplete
    lines += [f"skipped {task}: {reason}" for task, reason in summary.skipped]
    lines += [f"warning: {warning}" for warning in summary.warnings]
    return "\n".join(printable(line).rstrip() for line in lines)


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


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts in words: `3108 pairs`."""
    return ", ".join(f"{number} {noun}" for noun, number in counts.items())


def _coverage(average: Mapping[str, Any]) -> str:
    num, num_missing = len(average["tasks"]), len(average["missing"])
    return f"{num} of {num + num_missing} tasks" if num_missing else f"{num} tasks"
