"""Compute the losses on held-out examples, which training never sees, to detect overfitting.

A batch has as many examples as a micro-batch of training over all ranks or, with gradient caching, as a step. The
values of contrastive losses are therefore comparable with their values in training. An incomplete last batch is
skipped. Dropout is off. The batches and all random draws, such as spans, masks and views, are the same in every
evaluation and for any number of ranks. Only the metric `uniformity` depends on the number of ranks, because each rank
computes it from its own vectors.

`validation/loss` is the weighted sum of the losses of those objectives whose held-out loss can distinguish a good
encoder from a bad one (`Objective.unjudged`). If there is no dev score, it selects the best checkpoint. It is not
logged if there is no such objective.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from clearspan.train.collectives import autocast, autocast_cache, sum_over_ranks, world
from clearspan.train.data.stream import ExampleStream, StreamState
from clearspan.train.step.caching import Cached
from clearspan.train.step.learner import COUNTS, Learner

PREFIX = "validation/"


class HeldOutExamples:
    """The held-out examples of a run, on which the objectives' losses are computed.

    Args:
        streams: name of a dataset in the recipe -> stream of its held-out examples. If a step of a stream has several
            micro-batches, the examples of all of them are contrasted with each other.
        learner: the model and the objectives.

    Attributes:
        unjudged: name of an objective -> the reason why its loss cannot select the best checkpoint.
        judging: name of an objective -> its weight, for the objectives whose loss can select the best checkpoint.
    """

    def __init__(self, streams: Mapping[str, ExampleStream], learner: Learner) -> None:
        self.streams = dict(streams)
        objectives = [each for turn in learner.turns for each in learner.of_turn(turn) if each.data in self.streams]
        self.unjudged = {each.name: reason for each in objectives if (reason := each.unjudged())}
        self.judging = {each.name: each.weight for each in objectives if each.name not in self.unjudged}

    def notes(self) -> list[str]:
        """Return a list with one note for the user: by which held-out losses the best checkpoint is selected.

        If there is no such loss, the note says that the last checkpoint is exported. For each objective whose loss
        cannot select, it gives the reason. Call this method only if `training.eval_data` is not set, because the note
        says so.
        """
        picking = "the last checkpoint is exported, since no held-out loss can pick one"
        if self.judging:
            picking = f"the best checkpoint is picked by the held-out loss of {', '.join(self.judging)}"
        reasons = [f"that of objectives.{name} does not count ({reason})" for name, reason in self.unjudged.items()]
        return [f"training.eval_data is not set: {'; '.join([picking, *reasons])}"]

    @torch.no_grad()
    def metrics(self, engine: Any, quiet: bool = True) -> dict[str, float]:
        """Return the metrics of the objectives that read the datasets of `streams`, as means over batches and ranks.

        Every rank must call this method. The result is the same on every rank.

        Args:
            engine: DeepSpeed's engine, over a `Learner`.
            quiet: if true, no progress bar is shown.

        Returns:
            Name of a metric, with the prefix `validation/` -> its value. If `judging` is not empty, `validation/loss`
            is the weighted sum of the losses of the objectives in it.
        """
        learner, training = engine.module, engine.module.training
        engine.eval()
        means: dict[str, Tensor] = {}
        try:
            with autocast_cache(engine):
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
        """Return name of a metric -> the mean of this rank's values over the batches of a stream, a scalar in fp64.

        Metrics that count tokens are left out.

        Args:
            engine: DeepSpeed's engine, over a `Learner`.
            stream: the stream of a dataset's held-out examples.
            turn: the name of the turn whose objectives are evaluated.
            quiet: if true, no progress bar is shown.
        """
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
