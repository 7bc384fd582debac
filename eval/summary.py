"""What evaluations found, one row a figure and one column a model: for readers, on the terminal and in the report.

Scored of 1..n models ─┐
published figures ─────┴─> Summary ─┬─> terminal_summary
                                    └─> sections.report_sections
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from clearspan.common.terminal import printable
from clearspan.eval.report.console import fitting, folded, text_table
from clearspan.eval.report.table import Cell, cell_text
from clearspan.eval.results import Scored
from clearspan.eval.scores import TaskScores, in_percent

Baselines = Mapping[str, Mapping[tuple[str, str], float]]
"""A published model -> (task, metric) -> its figure; an average is there as (AVERAGE, its name)."""

AVERAGE = "average"


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
        best = (max if task == AVERAGE or in_percent(metric) else min)(shown.values(), default=None)
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
    names = ["task", "metric"] if several else ["task", "over", "metric"]
    rows = []
    for task, metric in summary.figures:
        over = [] if several else [summary.over(task, metric)]
        row = [metric, *over, AVERAGE] if task == AVERAGE else [task, *over, metric]
        rows.append(row + [cell_text(cell.value if several else cell) for cell in summary.values(task, metric)])
    header, rows = folded([*names, *summary.columns], rows)
    lines = [f"{', '.join(summary.names)}, in percent"]
    for columns in fitting(header, rows, len(names), width):
        shown = list(_without_repeats([[row[i] for i in columns] for row in rows], len(names)))
        lines += text_table([header[i] for i in columns], shown, len(names))
    lines += summary.incomplete
    lines += [f"skipped {task}: {reason}" for task, reason in summary.skipped]
    lines += [f"warning: {warning}" for warning in summary.warnings]
    return "\n".join(printable(line).rstrip() for line in lines)


def counts_text(counts: Mapping[str, int]) -> str:
    """Counts as words: `3108 pairs`."""
    return ", ".join(f"{number} {noun}" for noun, number in counts.items())


def _without_repeats(rows: Sequence[Sequence[str]], num_names: int) -> Iterator[list[str]]:
    """The rows that hold a figure, a task's name and what it is over on its first alone."""
    before = ""
    for row in rows:
        if any(row[num_names:]):
            again = row[0] == before
            yield ["" if again and i < num_names - 1 else text for i, text in enumerate(row)]
            before = row[0]
