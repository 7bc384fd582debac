"""Precision of a run: `training.bf16` is set to true or false before the model is built, the same on all ranks.

    recipe, device, saved recipe if a run is resumed -> recipe with true or false, and lines about it for the user

The value `auto` becomes true if the device multiplies bfloat16 in hardware, and otherwise false.
"""

import os
from pathlib import Path

import torch

from clearspan.common.compute import resolve
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.engine.ranks import gathered
from clearspan.train.recipe import load_saved
from clearspan.train.run_folder import RECIPE, tags

KEY = "training.bf16"
OFF = f"{KEY}=false"


def resolve_precision(recipe: Recipe, resume: bool) -> list[str]:
    """Set `training.bf16` of the recipe to true or false, on this rank; return lines about it for the user.

    If it is `auto`, a run that is resumed gets the value that it began with. A new run gets true if this rank's device
    multiplies bfloat16 in hardware, and otherwise false.

    Args:
        recipe: the recipe, which is changed.
        resume: True to resume the run in the recipe's output folder, if it has a checkpoint.

    Raises:
        RecipeError: the value is true, and this rank's GPU does not multiply bfloat16 in hardware.
    """
    training, run = recipe.training, Path(recipe.output)
    device = f"cuda:{os.environ.get('LOCAL_RANK', 0)}" if torch.cuda.is_available() else "cpu"
    asked, lines = training.bf16, []
    if resume and (run / RECIPE).is_file() and tags(run):
        began = load_saved(run / RECIPE, recipe).training.bf16
        if training.bf16 == "auto":
            training.bf16 = began
        elif training.bf16 != began:
            changed = f"{KEY} {str(training.bf16).lower()} in place of {str(began).lower()}"
            lines.append(f"{run}: {changed}: from here on losses differ by rounding")
    precision = training.bf16 if isinstance(training.bf16, str) else "bf16" if training.bf16 else "fp32"
    choice = resolve(device, precision, KEY, OFF)
    if choice.slow and device != "cpu":
        raise RecipeError(choice.message)
    if choice.message and asked == "auto" and choice.slow:
        lines.append(f"{choice.message}; the run began with bf16 and keeps it")
    elif choice.message:
        lines.append(choice.message)
    training.bf16 = choice.precision == "bf16"
    return lines


def check_ranks(recipe: Recipe) -> None:
    """Raise RecipeError, on every rank, if `training.bf16` is true on some ranks and false on others."""
    values = gathered(recipe.training.bf16)
    if len(set(values)) > 1:
        ranks = ", ".join(str(rank) for rank, value in enumerate(values) if value)
        raise RecipeError(
            f"{KEY} auto: only the devices of some ranks ({ranks}) multiply bfloat16 in hardware: set {OFF}, or true"
        )
