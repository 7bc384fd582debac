"""Options that the command `train` (`train.__main__`) and each rank that it starts (`train.run`) have in common."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from clearspan.cli.words import words_of
from clearspan.common.options import REQUIRED, Flag, Options

TRAIN = "clearspan.train.__main__:train"
"""Name of the function that trains, for `common.spawned`."""
EXPECTED = (ValueError, RuntimeError, OSError)
"""Errors that mean that a training failed, in addition to those that a rank reports."""
LAUNCHERS = {"--include_devices": "--include", "--exclude_devices": "--exclude"}
"""Option of this command -> the launcher's option, whose name has a different meaning in other commands."""

_Text = Annotated[str | None, Flag("VALUE")]
_Number = Annotated[int | None, Flag("VALUE")]
_Switch = Annotated[bool, Flag()]


@dataclass(frozen=True, kw_only=True)
class LauncherOptions(Options):
    """Options of DeepSpeed's launcher. `deepspeed --help` explains those that have no help here."""

    heading: ClassVar[str] = "the launcher's options (`deepspeed --help` explains all of them)"
    underscores: ClassVar[bool] = True

    num_accelerators: Annotated[int | None, Flag("VALUE"), Ge(1)] = None
    """Number of devices to use on each machine (default: all)."""
    num_gpus: Annotated[int | None, Flag("VALUE"), Ge(1)] = None
    include_devices: Annotated[str | None, Flag("VALUE")] = None
    """Devices to use, e.g. 0,2 or NODE:0,2@NODE."""
    exclude_devices: Annotated[str | None, Flag("VALUE")] = None
    """Devices not to use, e.g. 0,2 or NODE:0,2@NODE."""
    hostfile: Annotated[str | None, Flag("VALUE", path=True)] = None
    """File that lists the machines, with one line 'NODE slots=N' for each."""
    num_nodes: Annotated[int | None, Flag("VALUE"), Ge(1)] = None
    node_rank: _Number = None
    master_addr: _Text = None
    master_port: _Number = None
    launcher: _Text = None
    launcher_args: _Text = None
    ssh_port: _Number = None
    venv_script: Annotated[str | None, Flag("VALUE", path=True)] = None
    bind_core_list: _Text = None
    enable_each_rank_log: Annotated[str | None, Flag("VALUE", path=True)] = None
    """Folder for the log files, one for each rank."""
    log_level: Annotated[str | None, Flag("VALUE")] = None
    """Level of the launcher's messages: debug, info, warning, error or critical (default)."""
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
class TrainOptions(Options):
    """Options of the command `train`. Its launcher passes them on, except for `list`, to the process of each rank."""

    overrides: Annotated[tuple[str, ...], Flag("key=value", positional=True)] = ()
    """Recipe keys to change, e.g. data.text.batch_size=32."""
    recipe: Annotated[str, Flag("NAME-or-FILE", path=True)] = ""
    """Name of a recipe (see --list), or a YAML file of your own."""
    list: Annotated[bool, Flag()] = False
    """List the recipes, and exit."""
    resume: Annotated[bool, Flag()] = False
    """Continue from the last complete checkpoint in the output folder; without a checkpoint, start from the beginning.
    """
    dry_run: Annotated[bool, Flag()] = False
    """Check everything; print the recipe, parameters, device, data, token budget and memory; do not train."""
    quiet: Annotated[bool, Flag()] = False
    """Show no progress bar, and print no metrics."""

    def validate(self) -> None:
        super().validate()
        if not self.recipe and not self.list:
            raise ValueError(f"{REQUIRED}`recipe`")
