"""The command `clearspan train`, which trains on one or more devices: DeepSpeed's launcher starts `train.run` on each.

The command takes the options of DeepSpeed's launcher and of `train.run`:

    --num_accelerators 2 ...           options of the launcher
    --recipe NAME --resume key=value   options of `train.run`, which the launcher starts once for each device
"""

import contextlib
import io
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, ClassVar

from annotated_types import Ge

from clearspan.common import files
from clearspan.common.command import Command, Errors, Printed, Result
from clearspan.common.options import Flag, Options, words_of
from clearspan.train import run
from clearspan.train.engine.signals import PREFIX, Launcher
from clearspan.train.request import TrainOptions

TRAINER = "clearspan.train.run"
LAUNCHERS = {"--include_devices": "--include", "--exclude_devices": "--exclude"}
"""Option of this command -> the launcher's option, whose name has a different meaning in other commands."""
DEVICES = "number of devices to use on each machine (default: all)"
HOSTFILE = "file that lists the machines, with one line 'NODE slots=N' for each"
LOG_LEVEL = "level of the launcher's messages: debug, info, warning, error or critical (default)"

_Text = Annotated[str | None, Flag("", "VALUE")]
_Number = Annotated[int | None, Flag("", "VALUE")]
_Switch = Annotated[bool, Flag("")]


@dataclass(frozen=True, kw_only=True)
class LauncherOptions(Options):
    """Options of DeepSpeed's launcher. `deepspeed --help` explains those that have no help here."""

    heading: ClassVar[str] = "the launcher's options (`deepspeed --help` explains all of them)"
    underscores: ClassVar[bool] = True

    num_accelerators: Annotated[int | None, Flag(DEVICES, "VALUE"), Ge(1)] = None
    num_gpus: Annotated[int | None, Flag("", "VALUE"), Ge(1)] = None
    include_devices: Annotated[str | None, Flag("devices to use, e.g. 0,2 or NODE:0,2@NODE", "VALUE")] = None
    exclude_devices: Annotated[str | None, Flag("devices not to use, e.g. 0,2 or NODE:0,2@NODE", "VALUE")] = None
    hostfile: Annotated[str | None, Flag(HOSTFILE, "VALUE", path=True)] = None
    num_nodes: Annotated[int | None, Flag("", "VALUE"), Ge(1)] = None
    node_rank: _Number = None
    master_addr: _Text = None
    master_port: _Number = None
    launcher: _Text = None
    launcher_args: _Text = None
    ssh_port: _Number = None
    venv_script: Annotated[str | None, Flag("", "VALUE", path=True)] = None
    bind_core_list: _Text = None
    enable_each_rank_log: Annotated[
        str | None, Flag("folder for the log files, one for each rank", "VALUE", path=True)
    ] = None
    log_level: Annotated[str | None, Flag(LOG_LEVEL, "VALUE")] = None
    bind_cores_to_rank: _Switch = False
    no_ssh: _Switch = False
    no_ssh_check: _Switch = False
    force_multi: _Switch = False
    save_pid: _Switch = False

    def words(self) -> list[str]:
        """Return the words of the launcher's command line that set these options."""
        named = (word.partition("=") for word in words_of(self))
        return [f"{LAUNCHERS.get(option, option)}{equals}{value}" for option, equals, value in named]


@dataclass(frozen=True, kw_only=True)
class Train(TrainOptions, Command):
    """The command `train`: checks the recipe, and starts a process for each device."""

    description: ClassVar[str] = str(run.__doc__)
    usage: ClassVar[str] = "--recipe NAME-or-FILE [options] [launcher's options] [key=value ...]"
    example: ClassVar[str] = run.EXAMPLE
    error_prefix: ClassVar[str] = PREFIX
    expected: ClassVar[Errors] = (ValueError, RuntimeError, OSError)
    remedy: ClassVar[str] = "run it again"

    launcher: LauncherOptions = LauncherOptions()

    def run(self) -> Result:
        """Check the recipe, start a rank on each device, and wait until all ranks have ended.

        The ranks print what happens, so the result holds only an exit code. If `--list` is given, nothing is trained,
        and the result is the list of recipes.

        Raises:
            RecipeError, ManifestError, OSError: the recipe cannot work, or its data or its output folder is unusable.
        """
        if self.list:
            return run.catalog()
        check(self)
        return Printed(code=launch(self.command(), verbose=self.launcher.log_level is not None))

    def command(self) -> list[str]:
        """Return the command-line arguments of DeepSpeed's launcher.

        They are the launcher's options, the module that each rank runs, and the arguments of that module.
        """
        return [*self.launcher.words(), "--module", TRAINER, *words_of(self, left_out=("list",))]


def check(options: TrainOptions) -> None:
    """Check the recipe, its datasets' manifests and its output folder before ranks start.

    Raises:
        RecipeError, ManifestError, OSError: the recipe cannot work, or its data or its output folder is unusable.
    """
    from clearspan.shards import Dataset
    from clearspan.train import run_folder
    from clearspan.train.recipe import load_recipe

    recipe = load_recipe(options.recipe, options.overrides)
    for data in recipe.data.values():
        Dataset(data.path)
    run_folder.check(recipe, options.resume)
    with files.locked(recipe.output) if Path(recipe.output).is_dir() else contextlib.nullcontext():
        pass


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

    runner.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": Launcher})
    try:
        with contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO()):
            runner.main(arguments if verbose else ["--log_level=critical", *arguments])
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


main = Train.main


if __name__ == "__main__":
    raise SystemExit(main())
