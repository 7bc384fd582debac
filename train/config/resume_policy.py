"""Keys that may change when a run resumes: its length, and keys that do not affect a training step.

All other keys shape the run: with another value, a resumed run would equal neither the old nor a new one.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from fnmatch import fnmatch
from typing import Any

from clearspan.train.config.optimizer import OptimizerConfig
from clearspan.train.config.options import Recipe
from clearspan.train.config.schedules import learning_rate

FREE = (
    "output",
    "data.*.path",  # the shards' hashes are compared with those of the run's start
    "data.*.validation",
    "training.epochs",
    "training.max_steps",
    *(f"training.{name}" for name in ("logging_steps", "save_steps", "eval_steps", "eval_data", "max_hours")),
    *(
        f"training.{name}"
        for name in ("loss_limit", "loggers", "gradient_norms", "activation_checkpointing", "compile")
    ),
    "training.zero_stage",  # AdamW is the same at each stage; its state is partitioned again
    "training.bf16",  # products are rounded otherwise; another machine may have no fast bfloat16
)
"""Keys that may differ; `*` stands for a dataset's name."""


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping with dotted keys."""
    out: dict[str, Any] = {}
    for key, value in content.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out


def differing(saved: Recipe, current: Recipe) -> list[str]:
    """Return the keys whose values differ between the recipe that a run saved and the current one.

    The output folder, and values that the run fills in itself (for `training.bf16: auto`, and options of a modality),
    are not compared.
    """
    before, after = (flat(dataclasses.asdict(recipe)) for recipe in (saved, current))
    filled_in = {key for key in before if ".modality." in key and key not in after} | {"output"}
    if after["training.bf16"] == "auto":
        filled_in.add("training.bf16")
    return sorted(key for key in (before.keys() | after.keys()) - filled_in if before.get(key) != after.get(key))


def shaping(saved: Recipe, current: Recipe) -> list[str]:
    """Return the keys that shape a run and differ between its saved recipe and the current one."""
    return [key for key in differing(saved, current) if not matches(key, FREE)]


def matches(key: str, patterns: Iterable[str]) -> bool:
    """Return whether a key matches one of the patterns."""
    return any(fnmatch(key, pattern) for pattern in patterns)


def lengthened(step: int, old_total: int, total: int, optimizers: Mapping[str, OptimizerConfig]) -> list[str]:
    """Return a note if the total number of steps of a resumed run has changed; else [].

    Args:
        step: the step at which the run resumes.
        old_total, total: the old and the new total number of steps.
        optimizers: the optimizer's options of each turn.
    """
    if old_total == total:
        return []
    note = f"{total:,} steps in place of {old_total:,}"
    if step < total:
        rates = ", ".join(f"{learning_rate(step, total, options):.2g}" for options in optimizers.values())
        note += f"; the learning rate follows the schedule of the new length, next {rates}"
    return [note]
