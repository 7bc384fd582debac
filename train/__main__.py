"""The command `clearspan train`, which trains on one or more devices: DeepSpeed's launcher starts `train.run` on each.

The command takes the options of DeepSpeed's launcher and of `train.run`:

    --num_accelerators 2 ...           options of the launcher
    --recipe NAME --resume key=value   options of `train.run`, which the launcher starts once for each device
"""

import contextlib
import dataclasses
import functools
import io
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

from clearspan.cli.command import Command, Errors, Printed, Result
from clearspan.cli.words import words_of
from clearspan.common import files
from clearspan.train import hostfile, run
from clearspan.train.engine.signals import PREFIX, Launcher
from clearspan.train.request import EXPECTED, LauncherOptions, TrainOptions

TRAINER = "clearspan.train.run"


@dataclass(frozen=True, kw_only=True)
class Train(TrainOptions, Command):
    """The command `train`: checks the recipe, and starts a process for each device."""

    description: ClassVar[str] = str(run.__doc__)
    usage: ClassVar[str] = "--recipe NAME-or-FILE [options] [launcher's options] [key=value ...]"
    example: ClassVar[str] = run.EXAMPLE
    error_prefix: ClassVar[str] = PREFIX
    expected: ClassVar[Errors] = EXPECTED
    remedy: ClassVar[str] = "run it again"

    launcher: LauncherOptions = dataclasses.field(default_factory=LauncherOptions)

    def run(self) -> Result:
        """Check the recipe, start a rank on each device, and wait until all ranks have ended.

        The ranks print what happens, so the result holds only an exit code. If `--list` is given, nothing is trained,
        and the result is the list of recipes.

        Raises:
            RecipeError, ManifestError, OSError: the recipe cannot work, or its data or its output folder is unusable.
        """
        if self.list:
            return run.catalog()
        hostfile.prepare(self.launcher)
        models = check(self)
        command = dataclasses.replace(self, overrides=(*self.overrides, *models)).command()
        return Printed(code=launch(command, verbose=self.launcher.log_level is not None))

    def command(self) -> list[str]:
        """Return the command-line arguments of DeepSpeed's launcher.

        They are the launcher's options, the module that each rank runs, and the arguments of that module.
        """
        return [*self.launcher.words(), "--module", TRAINER, *words_of(self, left_out=("list",))]


def train(options: TrainOptions, launcher: LauncherOptions) -> Train:
    """Return the command that trains, with options that another process has sent."""
    given = {field.name: getattr(options, field.name) for field in dataclasses.fields(options)}
    return Train(**given, launcher=launcher)


def check(options: TrainOptions) -> list[str]:
    """Check the recipe, its datasets' manifests and its output folder before ranks start.

    Returns:
        The models of the hub that the recipe names, as further overrides for the ranks (`train.recipe.pinned`).

    Raises:
        RecipeError, ManifestError, OSError: the recipe cannot work, or its data or its output folder is unusable.
    """
    from clearspan.shards import Dataset
    from clearspan.train import run_folder
    from clearspan.train.recipe import load_recipe, pinned

    recipe = load_recipe(options.recipe, options.overrides)
    for data in recipe.data.values():
        Dataset(data.path)
    run_folder.check(recipe, options.resume)
    with files.locked(recipe.output) if Path(recipe.output).is_dir() else contextlib.nullcontext():
        pass
    return pinned(recipe)


def launch(arguments: Sequence[str], verbose: bool = False) -> int:
    """Run DeepSpeed's launcher until all ranks have ended; return its exit code, which is 0 if no rank failed.

    Args:
        arguments: the arguments of the launcher.
        verbose: whether the launcher prints its own messages. If not, failures are still reported, by the ranks and by
            this process.
    """
    from clearspan.train.engine.ranks import name_accelerator

    name_accelerator()
    from deepspeed.launcher import runner

    popen = functools.partial(Launcher, quiet=not verbose)
    runner.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": popen})
    try:
        with contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO()):
            runner.main(arguments if verbose else ["--log_level=critical", *arguments])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


main = Train.main


if __name__ == "__main__":
    raise SystemExit(main())
