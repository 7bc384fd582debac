"""Select the best checkpoint of a run, by a dev score or by the loss on held-out examples.

If `training.eval_data` is set, the checkpoint with the highest dev score is selected. Otherwise the checkpoint with the
lowest held-out loss is selected, if this loss can distinguish a good encoder from a bad one
(`HeldOutExamples.judging`).

The weights before the first step are evaluated too. If the run changes the pooling of the given model or adds new
layers, the unchanged model is evaluated as well. By this score or loss, the exported model is therefore never worse
than the model that training starts from.
"""

import math
from typing import Any

import torch

from clearspan.train.collectives import sum_over_ranks, world
from clearspan.train.config.options import DEV, GIVEN, Recipe
from clearspan.train.selection.dev_score import DevScore
from clearspan.train.selection.validation import PREFIX, HeldOutExamples

SHOWN = (DEV, f"{PREFIX}loss")
"""The names of the metrics that measure how good a checkpoint is: the dev score and the held-out loss."""


class Judge:
    """Evaluates the weights of a run at intervals, and remembers the best result so far.

    Args:
        recipe: the recipe of the run.
        evaluate: a function that computes the dev score of a learner, called on rank 0 only; None if there is no dev
            score. Without a dev score, the held-out loss selects the best checkpoint, if it can.
        held_out: the held-out examples, whose losses are logged; None if there are none.
        quiet: if true, no progress bars are shown.

    Attributes:
        enabled: whether the run evaluates its weights: it has a dev score or held-out examples, and
            `training.eval_steps` is not 0.
        picks: whether a dev score or a held-out loss selects the best checkpoint. If not, the last one is exported.
        best: the highest dev score so far or, if the held-out loss selects, the lowest held-out loss so far times -1;
            minus infinity at the start.
        given: whether `best` belongs to the unchanged model that training starts from.
    """

    def __init__(
        self, recipe: Recipe, evaluate: DevScore | None, held_out: HeldOutExamples | None, quiet: bool
    ) -> None:
        self.evaluate, self.held_out, self.quiet = evaluate, held_out, quiet
        self.enabled = bool(recipe.training.eval_steps and (evaluate or held_out))
        self.picks = self.enabled and bool(evaluate or (held_out and held_out.judging))
        self.best, self.given = float("-inf"), False

    def judge(self, engine: Any) -> tuple[dict[str, float], bool]:
        """Evaluate the current weights, and update `best` if they are better.

        Every rank must call this method. The result is the same on every rank.

        Args:
            engine: DeepSpeed's engine, over a `Learner`.

        Returns:
            The metrics to log, by name, and whether the weights are the best so far; the latter is False if `picks` is
            False.
        """
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
        """Evaluate the unchanged model that training starts from, before the first step.

        Every rank must call this method.

        Args:
            engine: DeepSpeed's engine, over a `Learner`.

        Returns:
            Name of a metric, with the prefix `given/` -> its value, to be logged. {} if neither a score nor a loss
            selects a checkpoint, or if the run changes neither the pooling nor the layers of the model, so that `judge`
            evaluates the same model.
        """
        encoder = engine.module.encoder
        if not self.picks or encoder.pools_as_given:
            return {}
        with encoder.as_given():
            figures, self.given = self.judge(engine)
        return {f"{GIVEN}{name}": value for name, value in figures.items()}
