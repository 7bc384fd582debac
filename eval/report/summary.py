"""Collect what a report shows of all models of a run: their scores, averages, skipped tasks and warnings.

    Scored, one for each model ──> ScoreSummary ──> outcome: sentences and bars ──> sections: report, terminal

A `ScoreSummary` computes no score. It arranges the scores of the models.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from clearspan.common.encoder.prompts import Sides
from clearspan.eval.details import Cell
from clearspan.eval.results import Scored
from clearspan.eval.scores import TaskScores, in_percent

AVERAGE = "average"
_HEADINGS = {
    "sts": "STS",
    "glue": "GLUE",
    "heldout": "Held-out texts",
    "stsb-multilingual": "STS-B in other languages",
    "probing-mlp": "Probing with MLPs",
    "pairs": "Your own pairs",
    "queries": "Your own questions",
}
_Item = TypeVar("_Item")


@dataclass(frozen=True)
class ScoreSummary:
    """The evaluations of all models of a run, and what a report shows of them.

    Attributes:
        scored: the evaluation of each model, in the order of `--model`; at least one. The names of the models are
            distinct.
    """

    scored: Sequence[Scored]

    @property
    def prompts(self) -> list[str]:
        """Return a line for each model that uses prompts, with its prompts for queries, documents and other texts."""
        of_models = {each.results.model: each.results.environment.get("prompts") for each in self.scored}
        lines = {model: str(Sides(**sides)) for model, sides in of_models.items() if sides}
        return [f"{model}: {line}" if len(self.scored) > 1 else line for model, line in lines.items()]

    @property
    def names(self) -> list[str]:
        """Return the names of the models, in the order of the run."""
        return [scored.results.model for scored in self.scored]

    @property
    def families(self) -> dict[str, str]:
        """Return name of a task -> its family, for each task on which at least one model was scored.

        A family is the word of `--tasks` that selected the task, such as `sts`. The tasks of a family are adjacent.
        """
        families = {task: scored.families.get(task, "tasks") for scored in self.scored for task in scored.tasks}
        order = list(dict.fromkeys(families.values()))
        return dict(sorted(families.items(), key=lambda item: order.index(item[1])))

    def of(self, task: str) -> dict[str, TaskScores]:
        """Return name of a model -> the model's scores on a task, for all models that were scored on the task."""
        return {scored.results.model: scored.tasks[task] for scored in self.scored if task in scored.tasks}

    def main(self, task: str) -> str:
        """Return the metric whose value is the main score of a task, which charts and comparisons use."""
        return next(iter(self.of(task).values())).main

    @property
    def figures(self) -> list[tuple[str, str]]:
        """Return the two arguments of the method `values` for each row of the summary table.

        They are (task, metric) for each headline metric of each task, then ("average", name) for each average.
        """
        headline: dict[tuple[str, str], None] = {}  # in the order of tasks, each once
        for task in self.families:
            for scores in self.of(task).values():
                headline |= dict.fromkeys((task, metric) for metric in scores.headline)
        return list(headline) + [(AVERAGE, name) for name in self.averages]

    @property
    def averages(self) -> list[str]:
        """Return the names of the averages over tasks, such as `sts_simcse`, that at least one model has."""
        return list(dict.fromkeys(name for scored in self.scored for name in scored.results.averages))

    def values(self, task: str, metric: str) -> list[Cell]:
        """Return the cells of a row in a table of scores, one for each model, with intervals as the cells' notes.

        If there are several models, the best score is emphasized. The cell of a model that lacks the score is empty.

        Args:
            task: the name of a task, or "average" (AVERAGE).
            metric: a metric of the task; if `task` is "average", the name of an average, such as `sts_simcse`.
        """
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
        """Return a phrase for the number of tasks in an average: `7 tasks`, or `5 of 7 tasks` if 2 were not scored.

        The numbers are taken from the first model that has the average.
        """
        averages = (scored.results.averages for scored in self.scored)
        return _coverage(next(each[average] for each in averages if average in each))

    @property
    def incomplete(self) -> Iterator[str]:
        """Yield a warning for each average that includes tasks that were not scored; the warning names these tasks.

        If the missing tasks of an average differ between models, there are several warnings, which name the models.
        """
        for average in self.averages:
            of_models = [(scored.results.averages.get(average), scored) for scored in self.scored]
            partial = [
                ((_coverage(each), *each["missing"]), scored) for each, scored in of_models if each and each["missing"]
            ]
            for (coverage, *missing), models in self._models_by_item(partial).items():
                reason = f"so not comparable with published averages (missing: {', '.join(missing)})"
                yield f"average {average}{f' of {models}' if models else ''}: {coverage}, {reason}"

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """Return (task, reason) for each task on which at least one model was not scored.

        If a reason applies only to some of the models, it starts with the names of these models. A task with several
        reasons occurs several times.
        """
        reasons = self._models_by_item(
            (item, scored) for scored in self.scored for item in scored.results.skipped.items()
        )
        return [(task, f"{models}: {reason}" if models else reason) for (task, reason), models in reasons.items()]

    @property
    def warnings(self) -> list[str]:
        """Return the distinct warnings of all models.

        A warning that only some of the models have starts with the names of these models.
        """
        warnings = self._models_by_item((text, scored) for scored in self.scored for text in scored.results.warnings)
        return [f"{models}: {text}" if models else text for text, models in warnings.items()]

    def _models_by_item(self, items: Iterable[tuple[_Item, Scored]]) -> dict[_Item, str]:
        """Return distinct item -> the names of the models that have it, as one text; "" if all models have it."""
        models: dict[_Item, list[str]] = {}
        for item, scored in items:
            models.setdefault(item, []).append(scored.results.model)
        return {item: listed(names) if len(names) < len(self.scored) else "" for item, names in models.items()}

    def _value(self, scored: Scored, task: str, metric: str) -> float | None:
        if task != AVERAGE:
            return scored.results.scores.get(task, {}).get(metric)
        average = scored.results.averages.get(metric)
        return None if average is None else float(average["value"])


def heading(family: str) -> str:
    """Return the heading of a family's section in a report, such as `STS` for the family `sts`.

    The heading of a plug-in is its `module:name`.
    """
    return _HEADINGS.get(family, family if ":" in family else family.capitalize())


def _coverage(average: Mapping[str, Any]) -> str:
    num, num_missing = len(average["tasks"]), len(average["missing"])
    return f"{num} of {num + num_missing} tasks" if num_missing else f"{num} tasks"


def listed(names: list[str]) -> str:
    """Return names as one line, separated by commas, or by semicolons if a name contains a comma."""
    return ("; " if any("," in name for name in names) else ", ").join(names)
