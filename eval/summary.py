"""Summary of evaluations: one row per figure, one column per model, for the terminal and the report.

Scored of 1..n models ─┐
published figures ─────┴─> Summary ─┬─> terminal_summary
                                    └─> sections.report_sections
"""

import math
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from clearspan.common.compute import Compute
from clearspan.common.terminal import printable
from clearspan.eval.details import Cell, RankCurve, cell_text
from clearspan.eval.report.console import fitting, folded, text_table
from clearspan.eval.results import Scored, TestedDifference
from clearspan.eval.scores import TaskScores, in_percent

Baselines = Mapping[str, Mapping[tuple[str, str], float]]
"""Published model -> (task, metric) -> figure; the key of an average is (AVERAGE, its name)."""

AVERAGE = "average"
_NOISE = "95 % interval by paired bootstrap, * exceeds noise (p corrected by Holm)"
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class Summary:
    """Models scored in one run, and the published models beside them.

    Attributes:
        scored: one evaluation per model, at least one, under distinct names.
        baselines: published figures.
    """

    scored: Sequence[Scored]
    baselines: Baselines = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Return the models' names, in their order."""
        return [scored.results.model for scored in self.scored]

    @property
    def columns(self) -> list[str]:
        """Return the names of the columns of `values`."""
        return [*self.names, *self.baselines]

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
        """Return a figure of each model with its interval, then of each baseline; the best of several is strong."""
        values = [self._value(scored, task, metric) for scored in self.scored]
        shown = {i: round(value, 2) for i, value in enumerate(values) if value is not None and math.isfinite(value)}
        best = (max if task == AVERAGE or in_percent(metric) else min)(shown.values(), default=None)
        cells = []
        for i, (scored, value) in enumerate(zip(self.scored, values, strict=True)):
            low, high = scored.results.intervals.get(task, {}).get(metric, (math.nan, math.nan))
            note = f"[{low:.1f}, {high:.1f}]" if math.isfinite(low) and value is not None else ""
            cells.append(Cell(value, note, strong=len(self.scored) > 1 and i in shown and shown[i] == best))
        comparable = task != AVERAGE or any(self.missing(metric, scored) == [] for scored in self.scored)
        return cells + [Cell(row.get((task, metric)) if comparable else None) for row in self.baselines.values()]

    def over(self, task: str, metric: str) -> str:
        """Return what a figure covers: `3108 pairs`, `5 of 7 tasks`."""
        if task != AVERAGE:
            return counts_text(next(iter(self.of(task).values())).counts)
        scored = next(scored for scored in self.scored if metric in scored.results.averages)
        return _coverage(scored.results.averages[metric])

    def missing(self, average: str, scored: Scored) -> list[str] | None:
        """Return the tasks that a model's average lacks; None if the model has no such average."""
        of_model = scored.results.averages.get(average)
        return None if of_model is None else list(of_model["missing"])

    @property
    def differences(self) -> list[tuple[str, str, list[Cell]]]:
        """Return a row per task: task, main metric, and each further model's difference from the first model.

        A difference that exceeds noise is strong. Tasks without any difference are left out.
        """
        rows = []
        for task in self.families:
            changes = [scored.differences.get(task) for scored in self.scored[1:]]
            if any(changes):
                rows.append((task, self.main(task), [_difference_cell(change) for change in changes]))
        return rows

    @property
    def incomplete(self) -> Iterator[str]:
        """Yield a line for each average that lacks tasks, one per group of models that lack the same tasks."""
        for average in self.averages:
            lines = [
                (
                    f"{_coverage(scored.results.averages[average])}, so not comparable with published averages "
                    f"(missing: {', '.join(missing)})",
                    scored,
                )
                for scored in self.scored
                if (missing := self.missing(average, scored))
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
        """Return the outcome in words: each model's first hits, if the only task ranks documents; and which models
        differ from the first one beyond noise. Empty for one model on any other tasks.
        """
        return " ".join([*self._first_hits, *self._against_first])

    @property
    def _first_hits(self) -> Iterator[str]:
        tasks = list(self.families)
        ranks = {
            model: chart.first_ranks
            for model, scores in self.of(tasks[0]).items()
            for chart in scores.details.charts
            if isinstance(chart, RankCurve)
        }
        if ranks and len(tasks) == 1:
            hits = {model: int((of_model == 1).sum()) for model, of_model in ranks.items()}
            best, *others = sorted(hits, key=hits.__getitem__, reverse=True)
            each = [f"{best} answers {hits[best]:,} with its first hit", *(f"{name} {hits[name]:,}" for name in others)]
            yield f"Of {len(ranks[best]):,} queries of {tasks[0]}, {', '.join(each)}."

    @property
    def _against_first(self) -> Iterator[str]:
        verdicts = [(_verdict(scored.differences), scored) for scored in self.scored[1:] if scored.differences]
        if verdicts:
            each = [f"{verdict} ({models})" for verdict, models in sorted(self._together(verdicts).items())]
            yield f"Differences from {self.names[0]} beyond noise: {', '.join(each)}."

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


def terminal_summary(summary: Summary, width: int = 100) -> str:
    """Return the summary as plain text: outcome, table, device, incomplete averages, skipped tasks with the reason,
    warnings.

    Args:
        width: cells per line; columns that do not fit follow in a further table below.
    """
    lines = _beside_each_other(summary, width)
    if len(summary.names) > 1 and len(summary.families) == 1 and not summary.averages:
        lines = _below_each_other(summary, width)
    environment = summary.scored[0].results.environment
    lines = [*textwrap.wrap(summary.outcome, width), *lines]
    if "precision" in environment:
        lines.append(str(Compute(environment["device"], environment["precision"])))
    lines += summary.incomplete
    lines += [f"skipped {task}: {reason}" for task, reason in summary.skipped]
    lines += [f"warning: {warning}" for warning in summary.warnings]
    return "\n".join(printable(line).rstrip() for line in lines)


def _beside_each_other(summary: Summary, width: int) -> list[str]:
    """Return a row per figure and a column per model; of several models without intervals, but with differences."""
    several = len(summary.names) > 1
    names = ["task", "metric"] if several else ["task", "over", "metric"]
    rows = []
    for task, metric in summary.figures:
        over = [] if several else [summary.over(task, metric)]
        row = [metric, *over, AVERAGE] if task == AVERAGE else [task, *over, metric]
        rows.append(row + [cell_text(cell.value if several else cell) for cell in summary.values(task, metric)])
    lines = [f"{', '.join(summary.names)}, in percent"]
    lines += _tables([*names, *summary.columns], rows, len(names), width)
    if differences := summary.differences:
        lines.append(f"difference of main scores from {summary.names[0]}; {_NOISE}:")
        rows = [[task, metric, *map(_starred, cells)] for task, metric, cells in differences]
        lines += _tables(["task", "metric", *summary.names[1:]], rows, 2, width)
    return lines


def _below_each_other(summary: Summary, width: int) -> list[str]:
    """Return a row per model and a column per figure, of a single task: with intervals and differences."""
    ((task, _),) = summary.families.items()
    columns = [list(map(cell_text, summary.values(*figure))) for figure in summary.figures]
    header = ["model", *(metric for _, metric in summary.figures)]
    lines = [f"{task}, in percent [95 % interval]: {summary.over(*summary.figures[0])}"]
    for _, metric, cells in summary.differences:
        header.append(f"{metric} - {summary.names[0]}")
        empty = [""] * (len(summary.columns) - len(summary.names))
        columns.append(["", *map(_starred, cells), *empty])
    lines += _tables(header, list(zip(summary.columns, *columns, strict=True)), 1, width)
    return [*lines, f"differences: {_NOISE}"] if summary.differences else lines


def _difference_cell(change: TestedDifference | None) -> Cell:
    """Return a difference in points with its interval; "undefined" if either model's score is; empty for None."""
    if change is None or math.isnan(change.value):
        return Cell(math.nan if change else None)
    note = f"[{change.low:+.1f}, {change.high:+.1f}]" if math.isfinite(change.low) else ""
    return Cell(f"{change.value:+.2f}", note, change.exceeds_noise)


def _verdict(differences: Mapping[str, TestedDifference]) -> str:
    """Return the direction of a model's differences that exceed noise."""
    signs = [math.copysign(change.exceeds_noise, change.value) for change in differences.values()]
    better, worse = signs.count(1), signs.count(-1)
    if len(signs) > 1:
        return f"better on {better} and worse on {worse} of {len(signs)} tasks"
    return "better" if better else "worse" if worse else "none"


def _starred(cell: Cell) -> str:
    return f"{cell_text(cell)}{' *' if cell.strong else ''}"


def _tables(header: Sequence[str], rows: Sequence[Sequence[str]], num_names: int, width: int) -> Iterator[str]:
    """Yield the lines of a table, and of further ones below for the columns that do not fit into `width` cells."""
    header, rows = folded(header, rows)
    for columns in fitting(header, rows, num_names, width):
        shown = list(_without_repeats([[row[i] for i in columns] for row in rows], num_names))
        yield from text_table([header[i] for i in columns], shown, num_names)


def counts_text(counts: Mapping[str, int]) -> str:
    """Return counts in words: `3108 pairs`."""
    return ", ".join(f"{number} {noun}" for noun, number in counts.items())


def _coverage(average: Mapping[str, Any]) -> str:
    num, num_missing = len(average["tasks"]), len(average["missing"])
    return f"{num} of {num + num_missing} tasks" if num_missing else f"{num} tasks"


def _without_repeats(rows: Sequence[Sequence[str]], num_names: int) -> Iterator[list[str]]:
    """Yield the rows that hold a figure; only a task's first row has its name and its counts."""
    previous = ""
    for row in rows:
        if any(row[num_names:]):
            repeats = row[0] == previous
            yield ["" if repeats and i < num_names - 1 else text for i, text in enumerate(row)]
            previous = row[0]
