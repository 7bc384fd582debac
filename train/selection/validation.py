"""Losses on examples that training leaves out: the curve that tells learning from learning by heart.

All of a dataset's held-out examples, in batches as large as a micro-batch over all ranks (with gradient caching, as a
step), so that contrastive losses compare with those in training; the last ones, fewer than that, are left out. Batches
and draws (spans, masks, views) are the same every time and on any number of ranks (uniformity alone is of one rank's
points), dropout is off, and nothing is learned. `validation/loss`, which may pick the best checkpoint, is the sum over
the objectives whose loss can tell a good encoder from a bad one there (`Objective.unjudged`). Without such an objective
it is not logged.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.distributed import autocast, sum_over_ranks, world
from clearspan.train.gradient_caching import Cached
from clearspan.train.learner import Learner

PREFIX = "validation/"
COUNTED = ("tokens", "tokens_cut", "masks_cut")
"""Metrics of a forward that say nothing of the held-out examples."""


class HeldOut:
    """Streams over the held-out examples of datasets, by the datasets' names; a batch of each is one micro-batch.

    Those of a stream's step are contrasted with each other where there are several.

    Attributes:
        unjudged: objective -> why its loss cannot pick the best checkpoint.
        judging: objective -> its weight, for those whose loss can.
    """

    def __init__(self, streams: Mapping[str, ExampleStream], learner: Learner) -> None:
        self.streams = dict(streams)
        reading = [one for turn in learner.turns for one in learner.of_turn(turn) if one.data in self.streams]
        self.unjudged = {one.name: why for one in reading if (why := one.unjudged())}
        self.judging = {one.name: one.weight for one in reading if one.name not in self.unjudged}

    def notes(self) -> list[str]:
        """Return a line on the losses that cannot pick the best checkpoint, for a run that picks by loss; or none."""
        if not self.unjudged:
            return []
        why = "; ".join(f"that of objectives.{name} tells nothing ({one})" for name, one in self.unjudged.items())
        picked = "the loss on held-out examples picks no checkpoint, and the last is exported"
        if self.judging:
            picked = (
                f"the best checkpoint is picked by the loss on held-out examples of {', '.join(self.judging)} alone"
            )
        return [f"{picked}: {why}; give training.eval_data, pairs of sentences with scores, to pick the best by these"]

    @torch.no_grad()
    def metrics(self, engine: Any, quiet: bool = True) -> dict[str, float]:
        """The metrics of each objective that reads these datasets, and `validation/loss`, the weighted sum of those in
        `judging`: means over batches and ranks, the same on every rank. Every rank calls it.

        Args:
            engine: DeepSpeed's, over a `Learner`.
        """
        learner, training = engine.module, engine.module.training
        engine.eval()
        means: dict[str, Tensor] = {}
        try:
            for name, stream in self.streams.items():
                for turn in learner.turns:
                    if any(one.data == name for one in learner.of_turn(turn)):
                        _add(means, self._means(engine, stream, turn, quiet))
        finally:
            engine.train(training)
        names = sorted(means)
        values = sum_over_ranks(torch.stack([means[name] for name in names])) / world()[1]
        found = dict(zip(names, values.tolist(), strict=True))
        found.pop("loss")
        if self.judging:
            found = {"loss": sum(weight * found[f"{name}/loss"] for name, weight in self.judging.items()), **found}
        return {f"{PREFIX}{name}": value for name, value in found.items()}

    def _means(self, engine: Any, stream: ExampleStream, turn: str, quiet: bool) -> dict[str, Tensor]:
        """This rank's part of the means over the batches of a stream, of a turn's objectives."""
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
                for batch, own in zip(step, cached, strict=True):
                    _, found = engine(batch, turn, own)
                    _add(sums, {name: value.double() for name, value in found.items() if name not in COUNTED})
        finally:
            batches.close()  # type: ignore[attr-defined]
        return {name: value / (stream.steps_per_epoch * stream.micro_batches) for name, value in sums.items()}


def _add(sums: dict[str, Tensor], more: Mapping[str, Tensor]) -> None:
    for name, value in more.items():
        sums[name] = sums[name] + value if name in sums else value
