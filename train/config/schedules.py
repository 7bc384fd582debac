"""Learning-rate schedules: pure functions of the step, without state to save.

A schedule maps a step in 0..total - 1, the total and the optimizer's options to a fraction of the peak learning rate.
"""

import math

from clearspan.train.config.optimizer import OptimizerConfig


def round_down(steps: float) -> int:
    """Round a number of steps down; a number that only a floating-point error puts below an integer gives that integer.

    0.57 x 100, for example, is 56.99999999999999 in floating point, and gives 57.
    """
    return math.floor(round(steps, 6))


def slanted_triangular(step: int, total: int, options: OptimizerConfig) -> float:
    """Return a fraction of the peak learning rate that rises for a short time, then falls for a long time.

    This is Eq. 3 of Howard & Ruder (2018). The result starts at 1 / `ratio`, reaches 1 at the end of the rise, and ends
    near 1 / `ratio`. The rise takes `warmup_steps` steps; if `warmup_steps` is 0, it takes `cut_fraction` x `total`.
    """
    cut = options.warmup_steps or max(1, round_down(total * options.cut_fraction))
    progress = step / cut if step < cut else max(0.0, 1 - (step - cut) / max(1, total - cut))
    return (1 + progress * (options.ratio - 1)) / options.ratio


def linear(step: int, total: int, options: OptimizerConfig) -> float:
    """Return a fraction of the peak learning rate that rises linearly to 1, then falls linearly.

    The rise takes `warmup_steps` steps. In the step after the last one the fraction would be 0. As in the trainer of
    RoBERTa's authors, step 0 of the rise has the fraction of step 1, so that it is not 0.
    """
    warmup = options.warmup_steps
    return max(step, 1) / warmup if step < warmup else (total - step) / (total - warmup)


def cosine(step: int, total: int, options: OptimizerConfig) -> float:
    """Return a fraction of the peak learning rate that rises linearly to 1, then falls along half a cosine.

    The rise takes `warmup_steps` steps; step 0 of it has the fraction of step 1. In the step after the last one the
    fraction would be 0.
    """
    height = linear(step, total, options)
    return height if step < options.warmup_steps else (1 - math.cos(math.pi * height)) / 2


def constant(step: int, total: int, options: OptimizerConfig) -> float:
    """Return a fraction of the peak learning rate that rises linearly to 1 in `warmup_steps` steps, then stays 1.

    Step 0 of the rise has the fraction of step 1.
    """
    return linear(step, total, options) if step < options.warmup_steps else 1.0


SCHEDULES = {"slanted_triangular": slanted_triangular, "linear": linear, "cosine": cosine, "constant": constant}


def fraction_of_peak(step: int, total: int, options: OptimizerConfig) -> float:
    """Return the learning rate of a step in 0..total - 1 as a fraction of the peak learning rate."""
    return SCHEDULES[options.schedule](step, total, options)


def learning_rate(step: int, total: int, options: OptimizerConfig) -> float:
    """Return the learning rate of a step in 0..total - 1.

    Embeddings and heads have another rate if `options` sets a learning rate for them.
    """
    return options.learning_rate * fraction_of_peak(step, total, options)
