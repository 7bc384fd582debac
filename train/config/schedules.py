"""Learning-rate schedules: pure functions of the step, without state to save.

A schedule maps a step in 0..total - 1, the total and the optimizer's options to a fraction of the peak learning rate.
"""

import math

from clearspan.train.config.optimizer import OptimizerConfig


def whole(steps: float) -> int:
    """Round a number of steps down, but up if only a floating-point error is missing: 56.999... (0.57 x 100) to 57."""
    return math.floor(round(steps, 6))


def slanted_triangular(step: int, total: int, options: OptimizerConfig) -> float:
    """Rise for a short time, then fall for a long time (Howard & Ruder 2018, Eq. 3).

    The fraction starts at 1 / ratio, peaks after `warmup_steps`, or else `cut_fraction` of the steps, and ends near
    1 / ratio.
    """
    cut = options.warmup_steps or max(1, whole(total * options.cut_fraction))
    progress = step / cut if step < cut else max(0.0, 1 - (step - cut) / max(1, total - cut))
    return (1 + progress * (options.ratio - 1)) / options.ratio


def linear(step: int, total: int, options: OptimizerConfig) -> float:
    """Rise linearly to the peak in `warmup_steps`, then fall linearly, to 0 after the last step.

    As in the trainer of RoBERTa's authors, step 0 of a warm-up has the rate of step 1, so that it is not 0.
    """
    warmup = options.warmup_steps
    return max(step, 1) / warmup if step < warmup else (total - step) / (total - warmup)


def cosine(step: int, total: int, options: OptimizerConfig) -> float:
    """Rise to the peak as `linear` does, then fall along half a cosine, to 0 after the last step."""
    height = linear(step, total, options)
    return height if step < options.warmup_steps else (1 - math.cos(math.pi * height)) / 2


def constant(step: int, total: int, options: OptimizerConfig) -> float:
    """Rise to the peak as `linear` does, then stay there."""
    return linear(step, total, options) if step < options.warmup_steps else 1.0


SCHEDULES = {"slanted_triangular": slanted_triangular, "linear": linear, "cosine": cosine, "constant": constant}


def fraction_of_peak(step: int, total: int, options: OptimizerConfig) -> float:
    """Return the learning rate of a step in 0..total - 1 as a fraction of the peak learning rate."""
    return SCHEDULES[options.schedule](step, total, options)


def learning_rate(step: int, total: int, options: OptimizerConfig) -> float:
    """Return the learning rate of a step in 0..total - 1, for parts of the model without their own `learning_rate`."""
    return options.learning_rate * fraction_of_peak(step, total, options)
