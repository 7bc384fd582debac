"""Losses on held-out examples, which detect overfitting: training never sees these examples.

Batches are as large as a micro-batch over all ranks (with gradient caching, as a step), so contrastive losses compare
with those in training; an incomplete last batch is skipped. Batches and draws (spans, masks, views) are the same every
time and on any number of ranks; only uniformity depends on the rank, since it is computed from the rank's own points.
Dropout is off. `validation/loss`, which may pick the best checkpoint, is the weighted sum over the objectives whose
loss can distinguish a good encoder from a bad one on held-out examples (`Objective.unjudged`). Without such an
objective it is not logged.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from clearspan.train.collectives import autocast, casts_kept, sum_over_ranks, world
from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.step.caching import Cached
from clearspan.train.step.learner import COUNTS, Learner

PREFIX = "validation/"


class HeldOutExamples:
    """The held-out examples of a run.

    Args:
        streams: dataset -> stream of its held-out examples. If a step has several micro-batches, their examples are
            contrasted with each other.

    Attributes:
        unjudged: objective -> why its loss cannot pick the best checkpoint.
        judging: objective -> its weight, for the objectives whose loss can pick the best checkpoint.
    """

    def __init__(self, streams: Mapping[str, ExampleStream], learner: Learner) -> None:
        self.streams = dict(streams)
        objectives = [each for turn in learner.turns for each in learner.of_turn(turn) if each.data in self.streams]
        self.unjudged = {each.name: reason for each in objectives if (reason := each.unjudged())}
        self.judging = {each.name: each.weight for each in objectives if each.name not in self.unjudged}

    def notes(self) -> list[str]:
        """Return a line about what picks the best checkpoint of a run without `training.eval_data`, and why the other
        losses cannot.
        """
        picking = "the last checkpoint is exported, since no held-out loss can pick one"
        if self.judging:
            picking = f"the best checkpoint is picked by the held-out loss of {', '.join(self.judging)}"
        reasons = [f"that of objectives.{name} does not count ({reason})" for name, reason in self.unjudged.items()]
        return [f"training.eval_data is not set: {'; '.join([picking, *reasons])}"]

    @torch.no_grad()
    def metrics(self, engine: Any, quiet: bool = True) -> dict[str, float]:
        """Return the metrics of all objectives that read these datasets: means over batches and ranks.

        `validation/loss` is the weighted sum of the losses in `judging`. The result is the same on every rank; every
        rank calls this.

        Args:
            engine: DeepSpeed's engine, over a `Learner`.
        """
        learner, training = engine.module, engine.module.training
        engine.eval()
        means: dict[str, Tensor] = {}
        try:
            with casts_kept(engine):
                for name, stream in self.streams.items():
                    for turn in learner.turns:
                        if any(objective.data == name for objective in learner.of_turn(turn)):
                            _add(means, self._means(engine, stream, turn, quiet))
        finally:
            engine.train(training)
        names = sorted(means)
        values = sum_over_ranks(torch.stack([means[name] for name in names])) / world()[1]
        metrics = dict(zip(names, values.tolist(), strict=True))
        metrics.pop("loss")
        if self.judging:
            loss = sum(weight * metrics[f"{name}/loss"] for name, weight in self.judging.items())
            metrics = {"loss": loss, **metrics}
        return {f"{PREFIX}{name}": value for name, value in metrics.items()}

    def _means(self, engine: Any, stream: ExampleStream, turn: str, quiet: bool) -> dict[str, Tensor]:
        """Return this rank's part of the means over a stream's batches, for the objectives of a turn."""
        learner = engine.module
        batches = stream.prefetched(StreamState(), learner.columns(stream.name), learner.collate)
        sums: dict[str, Tensor] = {}
        hidden = True if quiet or world()[0] else None
        try:
            for _ in tqdm(range(stream.steps_per_epoch), "validate", leave=False, unit="batch", disable=hidden):
                step = [{stream.name: next(batches)[0].to(engine.device)} for _ in range(stream.micro_batches)]
                cached: list[Cached] | list[None] = [None]
                if len(step) > 1:
                    with autocast(engine):
                        cached = learner.cache(step, turn)
                for batch, cache in zip(step, cached, strict=True):
                    _, metrics = engine(batch, turn, cache)
                    _add(sums, {name: value.double() for name, value in metrics.items() if name not in COUNTS})
        finally:
            batches.close()  # type: ignore[attr-defined]
        return {name: value / (stream.steps_per_epoch * stream.micro_batches) for name, value in sums.items()}


def _add(sums: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    for name, value in more.items():
        sums[name] = sums[name] + value if name in sums else value
