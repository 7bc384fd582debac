"""Remarks on a sweep's scores: runs whose training improved nothing, and the reason for equal rows.

a run's checkpoints                       -> whether one of them was better than the initial model
recipes, weights and losses of equal rows -> what the runs have in common, and what their settings changed
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from clearspan.common.files import sha256
from clearspan.train.card import UNCHANGED
from clearspan.train.config.recipe import load
from clearspan.train.config.resume_policy import flat
from clearspan.train.engine.checkpoint import Checkpoints
from clearspan.train.engine.tracking import lines_up_to
from clearspan.train.export import WEIGHTS
from clearspan.train.sweeps.grid import Run
from clearspan.train.sweeps.report import ALL_STEPS
from clearspan.train.sweeps.scores import Scores

NAMED = 3
"""Number of equal runs that a note names; it counts the others."""


def remarks(folder: Path, runs: Sequence[Run], by_run: Mapping[str, Scores]) -> dict[str, str]:
    """Return the remarks in the rows of runs, by the name of the run; most runs have none."""
    lines = {run.name: "without a score" for run in runs if run.name not in by_run}
    return lines | {name: UNCHANGED for name in by_run if Checkpoints(folder / name).best_is_initial()}


def equal_rows(folder: Path, runs: Sequence[Run], by_run: Mapping[str, Scores]) -> list[str]:
    """Return a line for each group of runs with the same scores, which names the runs and the reason."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if by_run.get(run.name):
            groups.setdefault(json.dumps(by_run[run.name], sort_keys=True), []).append(run)
    return [f"{_named(group)} have equal figures: {_why(folder, group)}" for group in groups.values() if len(group) > 1]


def _named(group: Sequence[Run]) -> str:
    names = [run.name for run in group]
    if len(names) > NAMED:
        names = [*names[:NAMED], f"{len(names) - NAMED} others"]
    return f"{'; '.join(names[:-1])} and {names[-1]}"


def _why(folder: Path, group: Sequence[Run]) -> str:
    """Return the reason for equal scores that recipes, weights and losses show."""
    places = [folder / run.name for run in group]
    varied = ", ".join(key for key in group[0].settings if len({run.settings.get(key) for run in group}) > 1)
    recipes = [flat(dataclasses.asdict(load(str(place / "recipe.yaml")))) for place in places]
    if all({**recipe, "output": ""} == {**recipes[0], "output": ""} for recipe in recipes):
        return f"{varied} comes to the same recipe in all of them"
    if len({sha256(place / "model" / WEIGHTS) for place in places}) > 1:
        return "their models differ, but the figures do not tell them apart: compare them by another score"
    if all(Checkpoints(place).best_is_initial() for place in places):
        return f"{UNCHANGED}, and all of them export that model"
    if all(_losses(place) == _losses(places[0]) for place in places):
        return f"{varied} changes nothing that the rest of the recipe trains: every logged loss and weight is the same"
    return f"their models are the same in every weight, whatever {varied} changed on the way"


def _losses(run: Path) -> list[tuple[int, float]]:
    """Return a run's logged losses as (step, loss)."""
    lines = map(json.loads, lines_up_to(run / "metrics.jsonl", ALL_STEPS))
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]
