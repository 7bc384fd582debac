"""Guard against runs that diverge: stop at a loss that is not finite or has exploded, and save the step's examples.

Losses are checked when they are logged and before weights are saved, since a check waits for the device. Between
checks, the first step that went wrong is recorded on the device, and the ids of the examples on the host.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from clearspan.common.files import write_text
from clearspan.train.collectives import world
from clearspan.train.engine.ranks import gathered

WATCHED = ("grad_norm", "weights_norm")
"""Metrics besides the losses that must be finite."""


def check_finite(metrics: Mapping[str, float], step: int) -> None:
    """Raise FloatingPointError, which names the metric: a run whose loss is not finite does not recover."""
    for name, value in metrics.items():
        if (name.endswith("loss") or name.split("/")[0] in WATCHED) and not math.isfinite(value):
            raise FloatingPointError(
                f"{name} is {value} at step {step}: lower optimizer.learning_rate, or set training.bf16=false"
            )


def check_limit(loss: float, limit: float, step: int) -> None:
    """Raise FloatingPointError for a loss above `limit`: `training.loss_limit` times the highest expected loss."""
    if loss > limit:
        raise FloatingPointError(
            f"loss is {loss:.4g} at step {step}, above {limit:.4g}: lower optimizer.learning_rate, or if so high "
            "a loss is normal, raise training.loss_limit"
        )


class Recent:
    """The example ids of this rank's steps since the last check, and the first step of the run that went wrong."""

    def __init__(self) -> None:
        self.ids: dict[int, dict[str, list[Tensor]]] = {}
        self.wrong: Tensor | None = None

    def add(self, step: int, ids: Mapping[str, list[Tensor]], figures: Sequence[Tensor]) -> None:
        """Record a step, without waiting for the device.

        Args:
            ids: by dataset, the ids (n,) of each micro-batch.
            figures: scalars that must be finite.
        """
        self.ids[step] = dict(ids)
        wrong = ~torch.stack([figure.detach().to(figures[0].device).double() for figure in figures]).isfinite().all()
        failed = torch.where(wrong, step, -1)
        self.wrong = failed if self.wrong is None else torch.where(self.wrong >= 0, self.wrong, failed)

    def checked(self) -> None:
        """Forget the steps that passed a check, except the last one: it may have damaged the weights."""
        self.ids = {step: self.ids[step] for step in list(self.ids)[-1:]}

    def save(self, run: Path, step: int, problem: str) -> str:
        """Write the examples of the first step that went wrong, of all ranks, to a file in the run's folder.

        Every rank calls it.

        Args:
            step: the step to save if no earlier one is known to have gone wrong.

        Returns:
            The end of the error message, which names the file; "" on other ranks than the first.

        Raises:
            OSError: the file cannot be written.
        """
        wrong = [first for first in gathered(-1 if self.wrong is None else int(self.wrong)) if first >= 0]
        first = min([*wrong, step])
        ranks = gathered({name: torch.cat(ids).tolist() for name, ids in self.ids.get(first, {}).items()})
        path = run / f"failed-step-{first:08d}.json"
        if world()[0]:
            return ""
        content = {
            "step": first,
            "problem": problem,
            "examples": {name: [id_ for rank in ranks for id_ in rank.get(name, [])] for name in ranks[0]},
        }
        write_text(path, json.dumps(content))
        since = f"step {first} was the first to go wrong; " if first < step else ""
        return f"; {since}that step's examples are listed in {path}"
