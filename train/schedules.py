"""Options of AdamW, and its learning-rate schedules: pure functions of the step, without state to save.

A schedule maps a step in 0..total - 1, the total and the optimizer's options to a fraction of the peak learning rate.
"""

import dataclasses
import math
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Len, Lt

PARTS = ("embeddings", "heads")
"""The parts of a model that may have options of their own."""
LAYERS = "layers"
"""The rest of a model."""
Positive = Annotated[float, Gt(0), Lt(math.inf)]
"""The type of an option that is a finite number above 0."""
NotNegative = Annotated[float, Ge(0), Lt(math.inf)]
"""The type of an option that is a finite number of 0 or more."""
Finite = Annotated[float, Gt(-math.inf), Lt(math.inf)]
"""The type of an option that is any finite number."""


@dataclasses.dataclass
class PartConfig:
    """The options in which a part of the model differs from the rest of it. The schedule is the same.

    Args:
        learning_rate: the peak of the schedule for this part. null: `learning_rate` of the rest.
        weight_decay: decoupled weight decay of this part. null: `weight_decay` of the rest.
    """

    learning_rate: Positive | None = None
    weight_decay: NotNegative | None = None


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
        cut_fraction: slanted_triangular only: the fraction of the steps in which the rate rises, unless `warmup_steps`
            gives their number.
        ratio: slanted_triangular only: the peak divided by the lowest rate.
        warmup_steps: the number of steps in which the rate rises. 0: it starts at the peak, or, for slanted_triangular,
            `cut_fraction` decides.
        embeddings: what differs for the table of token embeddings, to which a masked-LM head's decoder may be tied. The
            embeddings of positions and types, and the normalization after them, belong to the rest.
        heads: what differs for everything outside the encoder's base model: layers after the pooling, the masked-LM
            head, heads of objectives, patch embeddings.
    """

    learning_rate: Positive = 5e-5
    betas: Annotated[list[Annotated[float, Ge(0), Lt(1)]], Len(2, 2)] = dataclasses.field(
        default_factory=lambda: [0.9, 0.999]
    )
    eps: Positive = 1e-6
    weight_decay: NotNegative = 0.1
    max_grad_norm: NotNegative = 1.0
    schedule: Literal["slanted_triangular", "linear", "cosine", "constant"] = "slanted_triangular"
    cut_fraction: Annotated[float, Gt(0), Lt(1)] = 0.1
    ratio: Annotated[float, Ge(1), Lt(math.inf)] = 32.0
    warmup_steps: Annotated[int, Ge(0)] = 0
    embeddings: PartConfig = dataclasses.field(default_factory=PartConfig)
    heads: PartConfig = dataclasses.field(default_factory=PartConfig)

    def parts(self) -> dict[str, tuple[float, float]]:
        """Return (learning rate, weight decay) of the rest and of the parts that have options of their own."""
        rest = self.learning_rate, self.weight_decay
        parts = {LAYERS: rest}
        for name in PARTS:
            own: PartConfig = getattr(self, name)
            if own != PartConfig():
                values = zip((own.learning_rate, own.weight_decay), rest, strict=True)
                rate, decay = (default if value is None else value for value, default in values)
                parts[name] = rate, decay
        return parts


def whole(steps: float) -> int:
    """Return the whole steps in a product that rounding made too small, such as 0.57 x 100 = 56.99999999999999."""
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
    """Rise to the peak as `linear` does, then stay there."""
    return linear(step, total, options) if step < options.warmup_steps else 1.0


SCHEDULES = {"slanted_triangular": slanted_triangular, "linear": linear, "cosine": cosine, "constant": constant}


def fraction_of_peak(step: int, total: int, options: OptimizerConfig) -> float:
    """Return the learning rate of a step in 0..total - 1 as a fraction of the peak; parts may differ in the peak."""
    return SCHEDULES[options.schedule](step, total, options)


def learning_rate(step: int, total: int, options: OptimizerConfig) -> float:
    """Return the learning rate of a step in 0..total - 1, but for parts with a peak of their own."""
    return options.learning_rate * fraction_of_peak(step, total, options)
