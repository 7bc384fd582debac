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


def dotted(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a nested mapping as one without nesting, whose keys are dotted, such as `training.seed`.

    Args:
        content: the nested mapping.
        prefix: text that is put before each key.
    """
    out: dict[str, Any] = {}
    for key, value in content.items():
        out |= dotted(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return out


def differing(saved: Recipe, current: Recipe) -> list[str]:
    """Return the dotted keys whose values differ between the recipe that a run saved and the current recipe.

    Three keys are ignored even if they differ:
        output: the output folder.
        training.bf16: if it is `auto` in the current recipe; a run saves true or false in its place.
        data.NAME.modality.OPTION: if the current recipe does not set it; a run saves the default options too.
    """
    before, after = (dotted(dataclasses.asdict(recipe)) for recipe in (saved, current))
    filled_in = {key for key in before if ".modality." in key and key not in after} | {"output"}
    if after["training.bf16"] == "auto":
        filled_in.add("training.bf16")
    return sorted(key for key in (before.keys() | after.keys()) - filled_in if before.get(key) != after.get(key))


def blocking_keys(saved: Recipe, current: Recipe) -> list[str]:
    """Return the dotted keys that prevent a run from resuming: they differ, and they affect its training steps.

    Args:
        saved: the recipe that the run saved.
        current: the recipe of the command that would resume the run.
    """
    return [key for key in differing(saved, current) if not matches(key, FREE)]


def matches(key: str, patterns: Iterable[str]) -> bool:
    """Return whether a dotted key matches one of the patterns, in which `*` stands for any text: `data.*.path`."""
    return any(fnmatch(key, pattern) for pattern in patterns)


def length_note(step: int, old_total: int, total: int, optimizers: Mapping[str, OptimizerConfig]) -> list[str]:
    """Return a list with one note for the user if the length of a resumed run has changed; otherwise [].

    The note states both lengths and, if steps remain, the next learning rates.

    Args:
        step: the step at which the run resumes.
        old_total, total: the old and the new length of the run, in steps.
        optimizers: name of a turn -> the options of its optimizer.
    """
    if old_total == total:
        return []
    note = f"{total:,} steps in place of {old_total:,}"
    if step < total:
        rates = ", ".join(f"{learning_rate(step, total, options):.2g}" for options in optimizers.values())
        note += f"; the learning rate follows the schedule of the new length, next {rates}"
    return [note]
