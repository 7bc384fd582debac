"""What a run may have otherwise when it is taken up again: its length, and what decides no step of it.

Everything else in a recipe shapes the run: with another value, a resumed run would be neither this one nor that one.
"""

import dataclasses
from collections.abc import Mapping
from fnmatch import fnmatch
from typing import Any

from clearspan.train.options import Recipe
from clearspan.train.schedules import OptimizerConfig, learning_rate

FREE = (
    "output",
    "data.*.path",  # whose contents are compared with those that the run began with, by their hashes
    "data.*.validation",
    "training.epochs",
    "training.max_steps",
    *(f"training.{name}" for name in ("logging_steps", "save_steps", "eval_steps", "eval_data", "max_hours")),
    *(f"training.{name}" for name in ("loss_limit", "gradient_norms", "activation_checkpointing", "compile", "wandb")),
    "training.zero_stage",  # AdamW is the same at each; its state is cut anew
)
"""Keys that may differ, `*` standing for a dataset's name."""


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones."""
    out: dict[str, Any] = {}
    for key, value in content.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return out


def shaping(began: Recipe, now: Recipe) -> list[str]:
    """The keys that differ, and shape a run."""
    before, after = (flat(dataclasses.asdict(one)) for one in (began, now))
    keys = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    return [key for key in keys if not any(fnmatch(key, free) for free in FREE)]


def lengthened(step: int, before: int, total: int, optimizers: Mapping[str, OptimizerConfig]) -> list[str]:
    """What to say of a run that goes on from a step, and is to be of another number of steps than before."""
    if before == total:
        return []
    said = f"{total:,} steps in place of {before:,}"
    if step < total:
        rates = ", ".join(f"{learning_rate(step, total, options):.2g}" for options in optimizers.values())
        said += f"; the learning rate goes on as theirs does, next {rates}"
    return [said]
