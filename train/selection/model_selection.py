"""Selection of the best checkpoint: by the score on sentence pairs or held-out texts, otherwise by the loss on held-out
examples if that loss can distinguish a good encoder from a bad one.

The weights before the first step are evaluated too. If the run changes the pooling of the model's folder or initializes
new layers, the unchanged model is evaluated as well. So the export is by this figure never worse than the start.
"""

import math
from typing import Any

import torch

from clearspan.train.collectives import sum_over_ranks, world
from clearspan.train.config.options import DEV, GIVEN, Recipe
from clearspan.train.selection.dev_score import DevScore
from clearspan.train.selection.validation import PREFIX, HeldOutExamples

SHOWN = (DEV, f"{PREFIX}loss")
"""The metrics that measure how good a checkpoint is."""


class Judge:
    """Evaluates the weights of a run, and remembers the best figure so far.

    Args:
        evaluate: scores the trained module on rank 0; higher is better. Without it, the held-out loss decides, if it
            can (`HeldOutExamples.judging`).
        held_out: examples that training leaves out; their losses are logged.

    Attributes:
        enabled: whether there is anything to evaluate.
        picks: whether a score or a loss chooses the best checkpoint.
        best: the best score (or negative loss) so far.
        given: whether the best value belongs to the model that training starts from.
    """

    def __init__(
        self, recipe: Recipe, evaluate: DevScore | None, held_out: HeldOutExamples | None, quiet: bool
    ) -> None:
        self.evaluate, self.held_out, self.quiet = evaluate, held_out, quiet
        self.enabled = bool(recipe.training.eval_steps and (evaluate or held_out))
        self.picks = self.enabled and bool(evaluate or (held_out and held_out.judging))
        self.best, self.given = float("-inf"), False

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
        better = self.picks and value > self.best
        self.best = value if better else self.best
        self.given = self.given and not better
        return figures, better

    def judge_given(self, engine: Any) -> dict[str, float]:
        """Return the figures of the model that training starts from, before the first step.

        Return {} if nothing picks a checkpoint, or if that model is the encoder of the run. Every rank calls it.
        """
        encoder = engine.module.encoder
        if not self.picks or encoder.pools_as_given:
            return {}
        with encoder.as_given():
            figures, self.given = self.judge(engine)
        return {f"{GIVEN}{name}": value for name, value in figures.items()}
