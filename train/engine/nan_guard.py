"""What ends a run that has gone wrong: a loss that is not a number, or far above where it began; with which examples.

Losses are looked at where they are logged and before weights are saved, since a look waits for the device. Which step
was the first to go wrong is noted on the device meanwhile, and its examples are remembered until the next look.
"""

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from clearspan.common.files import write_text
from clearspan.train.engine.ranks import gathered

WATCHED = ("grad_norm", "weights_norm")
"""The metrics, beside losses, that say whether training goes on."""


def check_finite(metrics: Mapping[str, float], step: int) -> None:
    """Raises FloatingPointError naming the metric: a run whose loss is not a number does not mend itself."""
    for name, value in metrics.items():
        if (name.endswith("loss") or name.split("/")[0] in WATCHED) and not math.isfinite(value):
            raise FloatingPointError(
                f"{name} is {value} at step {step}: lower optimizer.learning_rate, or set training.bf16=false"
            )


def check_limit(loss: float, limit: float, step: int) -> None:
    """Raises FloatingPointError for a loss above `training.loss_limit` times the highest that is to be expected."""
    if loss > limit:
        raise FloatingPointError(
            f"loss is {loss:.4g} at step {step}, above {limit:.4g}: lower optimizer.learning_rate, or where it may be "
            "so high, raise training.loss_limit"
        )


class Recent:
    """The examples of this rank's steps since the last look, and the first step that went wrong since the beginning."""

    def __init__(self) -> None:
        self.ids: dict[int, dict[str, list[Tensor]]] = {}
        self.wrong: Tensor | None = None

    def add(self, step: int, ids: Mapping[str, list[Tensor]], figures: Sequence[Tensor]) -> None:
        """Takes note of a step: its examples' ids (n,) by dataset, and scalars that are to be finite. No sync."""
        self.ids[step] = dict(ids)
        wrong = ~torch.stack([figure.detach().to(figures[0].device).double() for figure in figures]).isfinite().all()
        now = torch.where(wrong, step, -1)
        self.wrong = now if self.wrong is None else torch.where(self.wrong >= 0, self.wrong, now)

    def looked(self) -> None:
        """Forgets the steps that were found right, all but the last: its weights may be wrong yet."""
        self.ids = {step: self.ids[step] for step in list(self.ids)[-1:]}

    def save(self, run: Path, step: int, problem: str) -> str:
        """Writes down the examples of the step that went wrong, of all ranks, `step` where none is known to have gone
        wrong before; every rank calls it. Returns what to say of it.

        Raises:
            OSError: it cannot be written.
        """
        found = [first for first in gathered(-1 if self.wrong is None else int(self.wrong)) if first >= 0]
        first = min([*found, step])
        own = {name: torch.cat(ids).tolist() for name, ids in self.ids.get(first, {}).items()}
        ranks = gathered(own)
        path = run / f"failed-step-{first:08d}.json"
        if torch.distributed.is_initialized() and torch.distributed.get_rank():
            return ""
        content = {
            "step": first,
            "problem": problem,
            "examples": {name: [id_ for rank in ranks for id_ in rank.get(name, [])] for name in ranks[0]},
        }
        write_text(path, json.dumps(content))
        since = f"first so at step {first}; " if first < step else ""
        return f"; {since}that step's examples are listed in {path}"
