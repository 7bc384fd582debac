"""Options of AdamW, and its learning-rate schedules: pure functions of the step, with no state to save.

A schedule takes a step in 0..total - 1, the total and the optimizer's options, and returns the fraction of the peak.
"""

import dataclasses
import math


@dataclasses.dataclass
class OptimizerConfig:
    """AdamW, bias-corrected, and its schedule.

    Args:
        learning_rate: the peak.
        betas: how much of the gradient's and of its square's running mean stays at a step.
        eps: what is added to the divisor.
        weight_decay: decoupled, and 0 for biases and normalisation.
        schedule: slanted_triangular, linear, cosine or constant.
    """

    learning_rate: float = 5e-5
    betas: list[float] = dataclasses.field(default_factory=lambda: [0.9, 0.999])
    eps: float = 1e-6
    weight_decay: float = 0.1
    max_grad_norm: float = 1.0  # a longer gradient is scaled down to it; 0: gradients are not clipped
    schedule: str = "slanted_triangular"
    cut_fraction: float = 0.1  # slanted_triangular: the fraction of steps that rise
    ratio: float = 32.0  # slanted_triangular: peak / lowest
    warmup_steps: int = 0  # linear and cosine: the steps that rise


def whole(steps: float) -> int:
    """The whole steps of a product such as 0.57 x 100, which is 56.99999999999999."""
    return math.floor(round(steps, 6))


def slanted_triangular(step: int, total: int, options: OptimizerConfig) -> float:
    """A short rise, a long fall (Howard & Ruder 2018, Eq. 3).

    Starts at 1 / ratio, peaks at `cut_fraction` of the way, ends near 1 / ratio.
    """
    cut = max(1, whole(total * options.cut_fraction))
    progress = step / cut if step < cut else max(0.0, 1 - (step - cut) / max(1, total - cut))
    return (1 + progress * (options.ratio - 1)) / options.ratio


def linear(step: int, total: int, options: OptimizerConfig) -> float:
    """Up to the peak in `warmup_steps`, then straight down to 0 when the last step is done.

    RoBERTa's, as its authors' trainer has it: the first step takes the rate of the second, so that it has an effect.
    """
    warmup = options.warmup_steps
    return max(step, 1) / warmup if step < warmup else (total - step) / (total - warmup)


def cosine(step: int, total: int, options: OptimizerConfig) -> float:
    """Up to the peak as `linear` goes, then down half a cosine, to 0 when the last step is done."""
    height = linear(step, total, options)
    return height if step < options.warmup_steps else (1 - math.cos(math.pi * height)) / 2


def constant(step: int, total: int, options: OptimizerConfig) -> float:
    return 1.0


SCHEDULES = {"slanted_triangular": slanted_triangular, "linear": linear, "cosine": cosine, "constant": constant}
WARMED = ("linear", "cosine")
"""Those that `warmup_steps` has an effect on."""


def learning_rate(step: int, total: int, options: OptimizerConfig) -> float:
    """The rate of a step in 0..total - 1."""
    return options.learning_rate * SCHEDULES[options.schedule](step, total, options)
