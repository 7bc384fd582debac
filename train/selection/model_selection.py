"""Selection of the best checkpoint: by the score on sentence pairs or held-out texts, otherwise by the loss on held-out
examples if that loss can distinguish a good encoder from a bad one.

The weights before the first step are evaluated too, so the best checkpoint is never worse than the initial weights.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch

from clearspan.common.encoder.fingerprint import digest
from clearspan.train.collectives import sum_over_ranks, world
from clearspan.train.options import DEV, HELD_OUT, Recipe
from clearspan.train.run_folder import CHOOSING, inputs
from clearspan.train.selection.dev_score import DevScore
from clearspan.train.selection.validation import PREFIX, HeldOut

SHOWN = (DEV, f"{PREFIX}loss")
"""The figures that measure how good a checkpoint is."""


def selection_criterion(recipe: Recipe, held_out: HeldOut | None) -> str:
    """Return what picks the best checkpoint: a score or loss, with the hash of the data that it is computed on; "" if
    nothing does. Figures by another criterion do not compare. The paths of the data do not count.
    """
    eval_data = recipe.training.eval_data
    if not recipe.training.eval_steps or not (eval_data or (held_out and held_out.judging)):
        return ""
    keys = CHOOSING if eval_data in ("", HELD_OUT) else ("training.eval_data",)
    return f"{'score' if eval_data else 'loss'} on {digest(**inputs(recipe, keys))}"


class Judge:
    """Evaluates the weights of a run, and remembers the best figure so far.

    Args:
        evaluate: scores the trained module on rank 0; higher is better. Without it, the held-out loss decides, if it
            can (`HeldOut.judging`).
        held_out: examples that training leaves out; their losses are logged.

    Attributes:
        enabled: whether there is anything to evaluate.
        criterion: the score or loss that picks the best checkpoint (`selection_criterion`); "": nothing does.
        criterion_changed: whether that differs from the checkpoint that the run resumed from.
    """

    def __init__(self, recipe: Recipe, evaluate: DevScore | None, held_out: HeldOut | None, quiet: bool) -> None:
        self.evaluate, self.held_out, self.quiet = evaluate, held_out, quiet
        self.enabled = bool(recipe.training.eval_steps and (evaluate or held_out))
        self.criterion = selection_criterion(recipe, held_out)
        self.best, self.criterion_changed = float("-inf"), False

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint, as plain values."""
        return {"best": self.best, "judged_by": self.criterion}

    def resume(self, saved: Mapping[str, Any]) -> None:
        """Restore the state of a checkpoint; if other pairs or examples decide now, forget the best figure."""
        self.criterion_changed = saved["judged_by"] != self.criterion
        self.best = float("-inf") if self.criterion_changed else saved["best"]

    def due_before(self, step: int) -> bool:
        """Return whether the weights are to be evaluated before training continues from a step."""
        return self.enabled and (self.criterion_changed or (step == 0 and self.best == float("-inf")))

    def judge(self, engine: Any) -> tuple[dict[str, float], bool]:
        """Return (figures to log, whether they are the best so far), the same on every rank; every rank calls it."""
        score = torch.zeros(1, dtype=torch.float64, device=engine.device)
        figures: dict[str, float] = {}
        if self.evaluate and world()[0] == 0:
            score += self.evaluate(engine.module)
        value = sum_over_ranks(score).item()
        if self.evaluate and math.isfinite(value):  # nan if every text gets the same vector: never the best
            figures[DEV] = value
        if self.held_out:
            figures |= self.held_out.metrics(engine, self.quiet)
        if not self.evaluate:
            value = -figures.get(f"{PREFIX}loss", math.inf)
        better = bool(self.criterion) and value > self.best
        self.best = value if better else self.best
        return figures, better
