"""Precision of a run: `training.bf16` is set to true or false once, before the model is built, alike on all ranks.

    recipe, device, recipe of the run that resumes -> recipe with true or false, and lines about it for the user

`auto` means bf16 only if the device multiplies bfloat16 in hardware.
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
    """Set `training.bf16` of the recipe to true or false; return lines about it for the user.

    If it is `auto`, a run that resumes keeps its value, and a new run uses bf16 if the device multiplies bfloat16 in
    hardware.

    Raises:
        RecipeError: the value is true and the GPU has no bfloat16.
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
    """Raise RecipeError on every rank unless all ranks compute in the same precision."""
    values = gathered(recipe.training.bf16)
    if len(set(values)) > 1:
        ranks = ", ".join(str(rank) for rank, value in enumerate(values) if value)
        raise RecipeError(
            f"{KEY} auto: only the devices of some ranks ({ranks}) multiply bfloat16 in hardware: set {OFF}, or true"
        )
