"""An optimizer of your own: Lion (Chen et al. 2023, algorithm 2). Put this file into the working folder:

    clearspan train --recipe demo ... optimizer.type=lion:Lion optimizer.learning_rate=1e-4

`optimizer.options.betas=[0.95,0.98]` sets an argument. The schedule, clipping and `--resume` work as with AdamW.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch


class Lion(torch.optim.Optimizer):
    """Step by the sign of an interpolated momentum, with decoupled weight decay."""

    def __init__(self, groups: Iterable[dict[str, Any]], lr: float, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            rate, (first, second) = group["lr"], group["betas"]
            for parameter in (each for each in group["params"] if each.grad is not None):
                momentum = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                parameter.mul_(1 - rate * group["weight_decay"])
                parameter.add_(momentum.lerp(parameter.grad, 1 - first).sign_(), alpha=-rate)
                momentum.lerp_(parameter.grad, 1 - second)
