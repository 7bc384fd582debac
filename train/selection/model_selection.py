"""Choice of the best checkpoint: by the score on pairs of sentences, or else by the loss on held-out examples, if that
loss can tell a good encoder from a bad one.

The weights before the first step are judged too, so that the best is never worse than what the run began with.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from clearspan.train.distributed import sum_over_ranks, world
from clearspan.train.options import Recipe
from clearspan.train.selection.validation import PREFIX, HeldOut

SHOWN = ("dev_score", f"{PREFIX}loss")
"""The figures that say how good a checkpoint is."""


def judged_by(recipe: Recipe) -> str:
    """What picks the best checkpoint: scores of one and of another do not compare. "": nothing does."""
    if not recipe.training.eval_steps:
        return ""
    held = {name: data.validation for name, data in recipe.data.items() if data.validation}
    return f"pairs {recipe.training.eval_data}" if recipe.training.eval_data else f"held out {held}"


class Judge:
    """Judges a run's weights, and knows the best figure so far.

    Args:
        evaluate: scores what it trains on rank 0, higher is better; without it, the loss on what is held out counts,
            if it can.
        held_out: examples that training leaves out, with losses to be logged.
    """

    def __init__(
        self, recipe: Recipe, evaluate: Callable[[Any], float] | None, held_out: HeldOut | None, quiet: bool
    ) -> None:
        self.evaluate, self.held_out, self.quiet = evaluate, held_out, quiet
        self.looks = bool(recipe.training.eval_steps and (evaluate or held_out))
        picks = evaluate or (held_out and held_out.judging)
        self.by, self.best, self.anew = judged_by(recipe) if picks else "", float("-inf"), False

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps, as plain values."""
        return {"best": self.best, "judged_by": self.by}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Takes up what a checkpoint kept; by other pairs or examples, what was the best so far counts no more."""
        self.anew = saved.get("judged_by", self.by) != self.by
        self.best = float("-inf") if self.anew else saved["best"]

    def due_before(self, step: int) -> bool:
        """Return whether the weights are to be evaluated before training continues from a step."""
        return self.looks and (self.anew or (step == 0 and self.best == float("-inf")))

    def judge(self, engine: Any) -> tuple[dict[str, float], bool]:
        """(figures to log, whether they are the best so far), the same on every rank; every rank calls it."""
        score = torch.zeros(1, dtype=torch.float64, device=engine.device)
        figures: dict[str, float] = {}
        if self.evaluate and world()[0] == 0:
            score += self.evaluate(engine.module)
        found = sum_over_ranks(score).item()
        if self.evaluate and math.isfinite(found):  # undefined where every text gets the same vector: never the best
            figures["dev_score"] = found
        if self.held_out:
            figures |= self.held_out.metrics(engine, self.quiet)
        if not self.evaluate:
            found = -figures.get(f"{PREFIX}loss", math.inf)
        better = bool(self.by) and found > self.best
        self.best = found if better else self.best
        return figures, better
