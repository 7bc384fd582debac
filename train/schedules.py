"""Options of AdamW, and its learning-rate schedules: pure functions of the step, without state to save.

A schedule maps a step in 0..total - 1, the total and the optimizer's options to a fraction of the peak learning rate.
"""

import dataclasses
import math
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Len, Lt


@dataclasses.dataclass
class OptimizerConfig:
    """AdamW with bias correction, and its learning-rate schedule.

    Args:
        learning_rate: the peak of the schedule.
        betas: the decay rates of the running means of the gradient and of its square.
        eps: the term added to the denominator.
        weight_decay: decoupled weight decay; none for biases and normalization weights.
        max_grad_norm: the norm to which a longer gradient is scaled down. 0: no clipping.
        schedule: slanted_triangular: a short linear rise, a long linear fall (Howard & Ruder 2018, Eq. 3); linear: a
            linear warm-up and decay to 0; cosine: a linear warm-up and cosine decay to 0; constant.
        cut_fraction: slanted_triangular only: the fraction of the steps in which the rate rises.
        ratio: slanted_triangular only: the peak divided by the lowest rate.
        warmup_steps: linear and cosine only: the number of steps in which the rate rises.
    """

    learning_rate: Annotated[float, Gt(0), Lt(math.inf)] = 5e-5
    betas: Annotated[list[Annotated[float, Ge(0), Lt(1)]], Len(2, 2)] = dataclasses.field(
        default_factory=lambda: [0.9, 0.999]
    )
    eps: Annotated[float, Gt(0), Lt(math.inf)] = 1e-6
    weight_decay: Annotated[float, Ge(0), Lt(math.inf)] = 0.1
    max_grad_norm: Annotated[float, Ge(0), Lt(math.inf)] = 1.0
    schedule: Literal["slanted_triangular", "linear", "cosine", "constant"] = "slanted_triangular"
    cut_fraction: Annotated[float, Gt(0), Lt(1)] = 0.1
    ratio: Annotated[float, Ge(1), Lt(math.inf)] = 32.0
    warmup_steps: Annotated[int, Ge(0)] = 0


def whole(steps: float) -> int:
    """Return the whole steps in a product that rounding made too small, such as 0.57 x 100 = 56.99999999999999."""
    return math.floor(round(steps, 6))


def slanted_triangular(step: int, total: int, options: OptimizerConfig) -> float:
    """Rise for a short time, then fall for a long time (Howard & Ruder 2018, Eq. 3).

    The fraction starts at 1 / ratio, peaks after `cut_fraction` of the steps and ends near 1 / ratio.
    """
    cut = max(1, whole(total * options.cut_fraction))
    progress = step / cut if step < cut else max(0.0, 1 - (step - cut) / max(1, total - cut))
    return (1 + progress * (options.ratio - 1)) / options.ratio


def linear(step: int, total: int, options: OptimizerConfig) -> float:
    """Rise to the peak in `warmup_steps`, then fall linearly, to 0 after the last step.

    This is RoBERTa's schedule as in its authors' trainer: the first step uses the rate of the second, which is not 0.
    """
    warmup = options.warmup_steps
    return max(step, 1) / warmup if step < warmup else (total - step) / (total - warmup)


def cosine(step: int, total: int, options: OptimizerConfig) -> float:
    """Rise to the peak as `linear` does, then fall along half a cosine, to 0 after the last step."""
    height = linear(step, total, options)
    return height if step < options.warmup_steps else (1 - math.cos(math.pi * height)) / 2


def constant(step: int, total: int, options: OptimizerConfig) -> float:
    """Stay at the peak."""
    return 1.0


SCHEDULES = {"slanted_triangular": slanted_triangular, "linear": linear, "cosine": cosine, "constant": constant}
WARMED = ("linear", "cosine")
"""The schedules that use `warmup_steps`."""


def learning_rate(step: int, total: int, options: OptimizerConfig) -> float:
    """Return the learning rate of a step in 0..total - 1."""
    return options.learning_rate * SCHEDULES[options.schedule](step, total, options)
