"""What evaluations found, one row a figure and one column a model: for readers, on the terminal and in the report.

Scored of 1..n models ─┐
published figures ─────┴─> Summary ─┬─> terminal_summary
                                    └─> sections.report_sections
"""

import io
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import rich.box
import rich.table
from rich.cells import cell_len
from rich.console import Console

from eval.files import printable
from eval.report.table import Cell, cell_text
from eval.results import Scored
from eval.scores import TaskScores

Baselines = Mapping[str, Mapping[tuple[str, str], float]]
"""A published model -> (task, metric) -> its figure; an average is there as (AVERAGE, its name)."""

AVERAGE = "average"
OWN_UNITS = ("alignment", "uniformity", "mse", "medr")
"""How the metrics begin that are not in percent; of all of them less is better."""
_HEADING_CELLS, _TEXT_CELLS = 12, 36  # of a heading and of a name on the terminal, before they are folded
_GAP = 3  # cells between two columns of a terminal table


@dataclass(frozen=True)
class Summary:
    """Models scored in one run, and what they are held against.

    Attributes:
        scored: one model each, at least one, under names of their own.
        baselines: published figures.
    """

    scored: Sequence[Scored]
    baselines: Baselines = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """The models' names, in their order."""
        return [one.results.model for one in self.scored]

    @property
    def columns(self) -> list[str]:
        """The names over `values`."""
        return [*self.names, *self.baselines]

    @property
    def families(self) -> dict[str, str]:
        """Task -> its family, of every task that a model was scored on, a family's tasks one after the other."""
        found = {task: one.families.get(task, "tasks") for one in self.scored for task in one.tasks}
        order = list(dict.fromkeys(found.values()))
        return dict(sorted(found.items(), key=lambda item: order.index(item[1])))

    def of(self, task: str) -> dict[str, TaskScores]:
        """Model -> its scores on a task, of the models that have them."""
        return {one.results.model: one.tasks[task] for one in self.scored if task in one.tasks}

    def main(self, task: str) -> str:
        """The metric that stands for a task."""
        return next(iter(self.of(task).values())).main

    def metrics(
        self, task: str, which: Callable[[TaskScores], Sequence[str]] = lambda scores: scores.headline
    ) -> list[str]:
        """The headline metrics of a task, or others, those of every model."""
        return list(dict.fromkeys(metric for scores in self.of(task).values() for metric in which(scores)))

    @property
    def figures(self) -> list[tuple[str, str]]:
        """(task, metric) of each headline figure, then (AVERAGE, name) of each average: what a summary has rows for."""
        found = [(task, metric) for task in self.families for metric in self.metrics(task)]
        return found + [(AVERAGE, name) for name in self.averages]

    @property
    def averages(self) -> list[str]:
        """The names of the averages."""
        return list(dict.fromkeys(name for one in self.scored for name in one.results.averages))

    def values(self, task: str, metric: str) -> list[Cell]:
        """A figure of each model, with its interval, then of each baseline; the best of several models is strong."""
        found = [self._value(one, task, metric) for one in self.scored]
        shown = {i: round(value, 2) for i, value in enumerate(found) if value is not None and math.isfinite(value)}
        best = (min if metric.startswith(OWN_UNITS) else max)(shown.values(), default=None)
        cells = []
        for i, (one, value) in enumerate(zip(self.scored, found, strict=True)):
            low, high = one.results.intervals.get(task, {}).get(metric, (math.nan, math.nan))
            note = f"[{low:.1f}, {high:.1f}]" if math.isfinite(low) and value is not None else ""
            cells.append(Cell(value, note, strong=len(self.scored) > 1 and i in shown and shown[i] == best))
        comparable = task != AVERAGE or any(self.missing(metric, one) == [] for one in self.scored)
        return cells + [Cell(row.get((task, metric)) if comparable else None) for row in self.baselines.values()]

    def over(self, task: str, metric: str) -> str:
        """What a figure was computed over: `3108 pairs`, `5 of 7 tasks`."""
        if task != AVERAGE:
            return counts_text(next(iter(self.of(task).values())).counts)
        one = next(one for one in self.scored if metric in one.results.averages)
        tasks, missing = one.results.averages[metric]["tasks"], self.missing(metric, one)
        return f"{len(tasks)} of {len(tasks) + len(missing)} tasks" if missing else f"{len(tasks)} tasks"

    def missing(self, average: str, one: Scored) -> list[str] | None:
        """The tasks that an average of a model lacks; None where there is no such average."""
        found = one.results.averages.get(average)
        return None if found is None else list(found["missing"])

    @property
    def incomplete(self) -> Iterator[str]:
        """A line for each average that lacks tasks, and for each of the models where they lack different ones."""
        for average in self.averages:
            lines: dict[str, list[str]] = {}
            for one in self.scored:
                if missing := self.missing(average, one):
                    have = len(one.results.averages[average]["tasks"])
                    lines.setdefault(
                        f"{have} of {have + len(missing)} tasks, so not comparable with published averages "
                        f"(missing: {', '.join(missing)})",
                        [],
                    ).append(one.results.model)
            for line, models in lines.items():
                of = "" if len(models) == len(self.scored) else f" of {', '.join(models)}"
                yield f"average {average}{of}: {line}"

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(task, why), each once; with the model's name where not all skipped it for that."""
        whys: dict[tuple[str, str], list[str]] = {}
        for one in self.scored:
            for item in one.results.skipped.items():
                whys.setdefault(item, []).append(one.results.model)
        return [
            (task, why if len(models) == len(self.scored) else f"{', '.join(models)}: {why}")
            for (task, why), models in whys.items()
        ]

    @property
    def warnings(self) -> list[str]:
        """What a reader should know before trusting the scores; with the models' names where it is not of all."""
        models: dict[str, list[str]] = {}
        for one in self.scored:
            for text in one.results.warnings:
                models.setdefault(text, []).append(one.results.model)
        return [text if len(of) == len(self.scored) else f"{', '.join(of)}: {text}" for text, of in models.items()]

    def _value(self, one: Scored, task: str, metric: str) -> float | None:
        if task == AVERAGE:
            found = one.results.averages.get(metric)
            return None if found is None else float(found["value"])
        return one.results.scores.get(task, {}).get(metric)


def terminal_summary(summary: Summary, width: int = 100) -> str:
    """The summary as plain text: the table, averages, what was skipped and why, warnings.

    Args:
        width: the cells of a line. Columns that do not fit into it follow in a table of their own, below.
    """
    several = len(summary.names) > 1
    rows = [["task", *([] if several else ["over"]), "metric", *summary.columns]]
    num_names = len(rows[0]) - len(summary.columns)
    for task, metric in summary.figures:
        names = [metric, AVERAGE] if task == AVERAGE else [task, metric]
        over = [] if several else [summary.over(task, metric)]
        values = [cell_text(value.value if several else value) for value in summary.values(task, metric)]
        rows.append([names[0], *over, names[1], *values])
    wraps = [
        [max([_HEADING_CELLS, *(min(len(row[i]), _TEXT_CELLS) for row in rows[1:])]) for i in range(len(rows[0]))],
        *[[_TEXT_CELLS] * len(rows[0])] * len(rows[1:]),
    ]
    rows = [
        ["\n".join(textwrap.wrap(printable(text), limit)) for text, limit in zip(row, limits, strict=True)]
        for row, limits in zip(rows, wraps, strict=True)
    ]
    lines = [f"{', '.join(summary.names)}, in percent"]
    for columns in _fitting(rows, num_names, width):
        lines += _grid([[row[i] for i in columns] for row in rows], num_names)
    lines += summary.incomplete
    lines += [f"skipped {task}: {reason}" for task, reason in summary.skipped]
    lines += [f"warning: {warning}" for warning in summary.warnings]
    return "\n".join(printable(line).rstrip() for line in lines)


def counts_text(counts: Mapping[str, int]) -> str:
    """Counts as words: `3108 pairs`."""
    return ", ".join(f"{number} {noun}" for noun, number in counts.items())


def _fitting(rows: Sequence[Sequence[str]], num_names: int, width: int) -> Iterator[list[int]]:
    """The columns of each table: the naming ones in all, of the others as many as a line holds, one at least."""
    widths = [
        _GAP + max(cell_len(part) for text in column for part in text.splitlines() or [""])
        for column in zip(*rows, strict=True)
    ]
    first = list(range(num_names))
    columns = first
    for i in range(num_names, len(widths)):
        if columns != first and sum(widths[j] for j in columns) + widths[i] - _GAP > width:
            yield columns
            columns = first
        columns = [*columns, i]
    yield columns


def _grid(rows: Sequence[Sequence[str]], num_names: int) -> list[str]:
    """A table's lines: without rows that hold nothing, and a task's names on its first row alone."""
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, header_style="", pad_edge=False, padding=(0, 1))
    for i, heading in enumerate(rows[0]):
        side: Literal["left", "right"] = "left" if i < num_names else "right"
        grid.add_column(heading, justify=side, vertical="bottom")
    before = ""
    for row in rows[1:]:
        if any(row[num_names:]):
            again = row[0] == before
            grid.add_row(*("" if again and i < num_names - 1 else text for i, text in enumerate(row)))
            before = row[0]
    shown = io.StringIO()
    Console(file=shown, width=1 << 16, color_system=None, markup=False, emoji=False).print(grid)
    return [line for line in textwrap.dedent(shown.getvalue()).splitlines() if line.strip()]
