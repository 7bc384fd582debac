"""Guard against runs that diverge: stop if a loss is not finite or has exploded.

Losses are checked when they are logged and before weights are saved, not at every step, because a check waits for the
device.
"""

import math
from collections.abc import Mapping

WATCHED = ("grad_norm", "weights_norm")
"""Metrics that must be finite, in addition to the losses."""


def check_finite(metrics: Mapping[str, float], step: int) -> None:
    """Raise FloatingPointError if a loss, a gradient norm or the norm of the weights is NaN or infinite.

    Args:
        metrics: name of a metric -> its value. Metrics that are neither losses nor these norms are not checked.
        step: the step, for the message.
    """
    for name, value in metrics.items():
        if (name.endswith("loss") or name.split("/")[0] in WATCHED) and not math.isfinite(value):
            raise FloatingPointError(
                f"{name} is {value} at step {step}: lower optimizer.learning_rate, or set training.bf16=false"
            )


def check_limit(loss: float, limit: float, step: int) -> None:
    """Raise FloatingPointError if the loss is above `limit`.

    Args:
        limit: the highest allowed loss: `training.loss_limit` times the highest loss that is expected at the start.
        step: the step, for the message.
    """
    if loss > limit:
        raise FloatingPointError(
            f"loss is {loss:.4g} at step {step}, above {limit:.4g}: lower optimizer.learning_rate, or if so high "
            "a loss is normal, raise training.loss_limit"
        )
