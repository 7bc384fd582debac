"""The report of a sweep: a ranking of the runs if they can be compared, in words, bars and learning curves.

    recipes, metrics of each run ──> ranking: the metric that ranks the runs, or why the runs cannot be ranked
                                 ──> lines (terminal), write (report.html)

Losses are compared only among runs that compute the same loss: a contrastive loss grows with the number of in-batch
negatives, whatever the encoder has learned.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from clearspan.eval.details import Table
from clearspan.eval.report.figures import Bars, ScoreBar, best_first, text_bars
from clearspan.eval.report.html import Section, write_report
from clearspan.train.config.options import DEV, Recipe
from clearspan.train.config.resume_policy import dotted
from clearspan.train.curves import LOSS, NEVER_BETTER, learning_curves, never_better
from clearspan.train.run_folder import METRICS

REPORT = "report.html"
_ONE = "One run each: with another seed the order may be another one."
_NOT_CHOOSING = ("batch_size", "shuffle_shards")
"""Options of a dataset that do not choose what of it is trained on. The batch size counts by `Recipe.contrasted`."""
_NEGATIVES = " (a contrastive loss depends on the number of in-batch negatives)"


@dataclass(frozen=True)
class Ranking:
    """The metric that ranks the runs of a sweep; or, if they cannot be ranked, the reason.

    Attributes:
        figure: the name of the metric, such as `dev_score`; "" if the runs cannot be ranked.
        reason: why the runs cannot be ranked, and what to do about it; "" if they can.
    """

    figure: str
    reason: str = ""

    @property
    def more_is_better(self) -> bool:
        return not is_loss(self.figure)


def rank_by_score() -> str:
    """Return advice for the user: by which options runs get a score that can rank them."""
    return (
        "rank by a score: training.eval_data=heldout (or a file of scored pairs) with training.eval_steps, or "
        "`tasks` with `data`"
    )


def is_loss(figure: str) -> bool:
    return figure == LOSS or figure.endswith(f"/{LOSS}")


def ranking(recipes: Mapping[str, Recipe], figures: Sequence[str]) -> Ranking:
    """Return the metric that ranks the runs of a sweep, or the reason why they cannot be ranked.

    Args:
        recipes: name of a run -> its recipe.
        figures: the names of the runs' metrics. The first one ranks the runs, if its values can be compared; if there
            are no names, the runs cannot be ranked.
    """
    if not figures:
        return Ranking("", "there is nothing to rank")
    first = figures[0]
    depends = _settings_of_loss if is_loss(first) else _settings_of_dev_score if first == DEV else None
    differs = differing([depends(recipe) for recipe in recipes.values()]) if depends else {}
    if not differs:
        return Ranking(first)
    noun = "losses" if is_loss(first) else "dev scores"
    negatives = _NEGATIVES if any(key.endswith("batch_size") for key in differs) else ""
    return Ranking("", f"{noun} of other {_named(differs)} cannot be compared{negatives}: {rank_by_score()}")


def expected(recipes: Mapping[str, Recipe], is_evaluated: bool) -> Ranking:
    """Return the metric that will rank the runs of a sweep that has not begun, or the reason why none can.

    Args:
        recipes: name of a run -> its recipe.
        is_evaluated: whether `clearspan eval` will score the runs.
    """
    has_dev = all(recipe.training.eval_data and recipe.training.eval_steps for recipe in recipes.values())
    return ranking(recipes, ["score" if is_evaluated else DEV if has_dev else LOSS])


def _settings_of_loss(recipe: Recipe) -> dict[str, Any]:
    """Return recipe key -> value, for the settings that must be equal if the losses of two runs are compared."""
    found: dict[str, Any] = {f"data.{name}.batch_size": recipe.contrasted(name) for name in recipe.data}
    for name, data in recipe.data.items():
        choosing = {key: value for key, value in dataclasses.asdict(data).items() if key not in _NOT_CHOOSING}
        found |= dotted({"data": {name: choosing}})
    for name, objective in recipe.objectives.items():
        found |= dotted({"objectives": {name: dataclasses.asdict(objective)}})
    return found


def _settings_of_dev_score(recipe: Recipe) -> dict[str, Any]:
    """Return recipe key -> value, for the settings that must be equal if the dev scores of two runs are compared."""
    held_out = {f"data.{name}.validation": data.validation for name, data in recipe.data.items()}
    return {"training.eval_data": recipe.training.eval_data, **held_out}


def differing(mappings: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return key -> its different values, as text, for each key whose value is not the same in all mappings.

    The values are in the order of the mappings. In a mapping that lacks the key, its value counts as `none`.
    """
    keys = dict.fromkeys(key for mapping in mappings for key in mapping)
    values = {key: list(dict.fromkeys(str(mapping.get(key, "none")) for mapping in mappings)) for key in keys}
    return {key: found for key, found in values.items() if len(found) > 1}


def _named(differences: Mapping[str, Sequence[str]]) -> str:
    return " and ".join(f"{key} ({', '.join(values)})" for key, values in differences.items())


def bars(ranking: Ranking, by_run: Mapping[str, Mapping[str, str]]) -> Bars:
    """Return a bar for each run, best first; its length is the run's value of the metric that ranks the runs.

    A run without this metric has the value NaN.

    Args:
        ranking: the metric that ranks the runs.
        by_run: name of a run -> name of a metric -> its value as text.
    """
    values = {name: float(figures.get(ranking.figure, "nan")) for name, figures in by_run.items()}
    rows = best_first([ScoreBar(name, value) for name, value in values.items()], ranking.more_is_better)
    best = rows[0].value if rows else math.nan
    sense = "" if ranking.more_is_better else ", less is better"
    return Bars([row._replace(is_strong=row.value == best) for row in rows], f"{ranking.figure}{sense}")


def sentence(ranking: Ranking, by_run: Mapping[str, Mapping[str, str]]) -> str:
    """Return a sentence that says which run is best and which is second, or why the runs are not ranked.

    Args:
        ranking: the metric that ranks the runs, or the reason why they cannot be ranked.
        by_run: name of a run -> name of a metric -> its value as text.
    """
    if ranking.reason:
        return f"Not ranked: {ranking.reason}."
    rows = [row for row in bars(ranking, by_run).rows if math.isfinite(row.value)]
    if not rows:
        return "Not ranked: no run has finished."
    second = f"; then {rows[1].name} with {rows[1].value:.4g}" if len(rows) > 1 else ""
    word = "highest" if ranking.more_is_better else "lowest"
    return f"{rows[0].name} has the {word} {ranking.figure}, {rows[0].value:.4g}{second}."


def remarks(output: Path, names: Sequence[str]) -> list[str]:
    """Return a line for each run in which training never improved on the weights that it started from.

    Weights are compared by their dev score or, if there is none, by their held-out loss. A run that has neither gets no
    line.

    Args:
        output: the folder of the sweep.
        names: the names of the runs.
    """
    return [f"{name}: {NEVER_BETTER}" for name in names if never_better(output / name / METRICS)]


def lines(ranking: Ranking, by_run: Mapping[str, Mapping[str, str]], output: Path, width: int) -> list[str]:
    """Return the lines to print below the table: a sentence on the best run, a bar for each run, and remarks.

    If the runs cannot be ranked, or if there is only one, there are no bars.

    Args:
        ranking: the metric that ranks the runs, or the reason why they cannot be ranked.
        by_run: name of a run -> name of a metric -> its value as text.
        output: the folder of the sweep.
        width: the width of the terminal, in characters.
    """
    drawn = text_bars(bars(ranking, by_run), width) if ranking.figure and len(by_run) > 1 else []
    return [sentence(ranking, by_run), *drawn, *remarks(output, list(by_run))]


def write(
    output: Path, rows: Sequence[Sequence[str]], ranking: Ranking, by_run: Mapping[str, Mapping[str, str]]
) -> Path:
    """Write the report of a sweep as an HTML page; return its path.

    If the runs cannot be ranked, the page has neither bars nor learning curves.

    Args:
        output: the folder of the sweep.
        rows: the table of the runs as rows of text, headings first.
        ranking: the metric that ranks the runs, or the reason why they cannot be ranked.
        by_run: name of a run -> name of a metric -> its value as text.
    """
    figures = [bars(ranking, by_run)] if ranking.figure and by_run else []
    curves = learning_curves({name: output / name / METRICS for name in by_run}) if not ranking.reason else []
    text = "\n\n".join([*([_ONE] if ranking.figure else []), *remarks(output, list(by_run))])
    sections = [Section("Runs", tables=[Table(rows[0], rows[1:])])]
    if text or figures or curves:
        sections.insert(0, Section("Outcome", text, figures=[*figures, *curves]))
    path = output / REPORT
    write_report(path, f"Sweep of {len(rows) - 1} runs", sections, sentence(ranking, by_run))
    return path
