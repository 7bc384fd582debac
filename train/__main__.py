"""Train on one or more devices: `clearspan train`, DeepSpeed's launcher with this package's trainer.

--num_accelerators 2 ...  to the launcher        --recipe NAME key=value ...  to `train.run`, one process per device
"""

import argparse
import contextlib
import io
import subprocess
from collections.abc import Sequence
from types import SimpleNamespace

from clearspan.common import terminal
from clearspan.common.flags import flag
from clearspan.common.options import add_fields, checked, from_namespace
from clearspan.train import run
from clearspan.train.engine.signals import Launcher

PROG = "python -m train"
TRAINER = "clearspan.train.run"
OPTIONS = (
    *("num_accelerators", "num_gpus", "include_devices", "exclude_devices", "hostfile", "num_nodes", "node_rank"),
    *("master_addr", "master_port", "launcher", "launcher_args", "ssh_port", "venv_script", "bind_core_list"),
    *("enable_each_rank_log", "log_level"),
)
NUMBERS = {"num_accelerators", "num_gpus", "num_nodes", "node_rank", "master_port", "ssh_port"}
SWITCHES = ("bind_cores_to_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid")
LAUNCHERS = {"include_devices": "include", "exclude_devices": "exclude"}
"""Option of this command -> name of the launcher's option, which has a different meaning in other commands."""
HELP = {
    "num_accelerators": "devices to use on each machine, the first N (default: all)",
    "include_devices": "devices to use, as 0,2 or NODE:0,2@NODE",
    "exclude_devices": "devices not to use, in the same form",
    "hostfile": "file with the machines, one line 'NODE slots=N' each",
    "enable_each_rank_log": "folder for a log file of each rank",
    "log_level": "what the launcher prints: debug, info, warning, error or critical (default)",
}


def parser(prog: str = PROG) -> terminal.Parser:
    """Return the parser of the options of `train.run`, and of the launcher."""
    usage = f"{prog} --recipe NAME-or-FILE [options] [launcher's options] [key=value ...]"
    root = terminal.Parser(prog=prog, usage=usage, description=run.__doc__, epilog=run.EXAMPLE)
    add_fields(root, run.Training)
    launcher = root.add_argument_group("the launcher's options (`deepspeed --help` explains all of them)")
    for name in OPTIONS:
        type_ = int if name in NUMBERS else str
        launcher.add_argument(f"--{name}", type=type_, metavar="VALUE", help=HELP.get(name))
    for name in SWITCHES:
        launcher.add_argument(f"--{name}", action="store_true")
    return root


def command(given: argparse.Namespace) -> list[str]:
    """Return the arguments of the deepspeed command for a command line."""
    values = {LAUNCHERS.get(name, name): getattr(given, name) for name in OPTIONS}
    words = [f"--{name}={value}" for name, value in values.items() if value is not None]
    words += [f"--{name}" for name in SWITCHES if getattr(given, name)]
    return [*words, "--module", TRAINER, *run.words(from_namespace(run.Training, given))]


def main(argv: Sequence[str] | None = None, prog: str = PROG) -> int:
    expected = (ValueError, RuntimeError, OSError)
    return terminal.run("train", lambda: work(parser(prog), argv), expected, remedy="run it again")


def work(root: terminal.Parser, argv: Sequence[str] | None) -> int:
    """Check the recipe, then train; return the exit code."""
    given = root.parse_intermixed_args(argv)
    for name in ("num_accelerators", "num_gpus", "num_nodes"):
        if getattr(given, name) == 0:
            root.error(f"{flag('--' + name)} must be at least 1")
    options = checked(root, run.Training, given)
    if options.list:
        terminal.say(str(run.catalog()))
        return 0
    run.check(options)
    return launch(command(given))


def launch(arguments: Sequence[str]) -> int:
    """Run the launcher to its end. A rank's exit code becomes this process's, by SystemExit.

    Without --log_level the launcher prints nothing: the ranks and this process report failures better.
    """
    verbose = any(word.startswith("--log_level=") for word in arguments)
    from clearspan.train.engine.ranks import name_accelerator

    name_accelerator()
    from deepspeed.launcher import runner

    runner.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": Launcher})
    with contextlib.nullcontext() if verbose else contextlib.redirect_stdout(io.StringIO()):
        runner.main(arguments if verbose else [f"{flag('--log_level')}=critical", *arguments])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
