"""Train on one or more devices: the deepspeed launcher on this package.

--num_accelerators 2 ...  to the launcher        --recipe NAME key=value ...  to `train.run`, a process a device
"""

import contextlib
import io
import subprocess
from collections.abc import Sequence
from types import SimpleNamespace

from clearspan.common import terminal
from clearspan.train import run
from clearspan.train.engine.signals import Launcher, ending_at_once

OPTIONS = {
    "num_accelerators": ("N", "devices of each machine to use, the first N (default: all)"),
    "num_gpus": ("N", "the same"),
    "include": ("DEVICES", "to use, as 0,2 or NODE:0,2@NODE"),
    "exclude": ("DEVICES", "not to use, likewise"),
    "master_port": ("PORT", "where the ranks of several machines meet (default 29500)"),
    "master_addr": ("ADDRESS", "the first machine's, for the others"),
    "hostfile": ("FILE", "the machines, a line 'NODE slots=N' each"),
    "num_nodes": ("N", "machines to use, the first N of the hostfile"),
    "node_rank": ("N", "which of them this is, with --no_ssh"),
    "launcher": ("NAME", "how to start on several machines: pdsh, openmpi, slurm, ..."),
    "launcher_args": ("WORDS", "options of that"),
    "ssh_port": ("PORT", "of the machines"),
    "venv_script": ("FILE", "to source on each machine first"),
    "bind_core_list": ("CORES", "to bind to, as 0,2-4"),
    "enable_each_rank_log": ("DIR", "each rank's output into a file there"),
    "log_level": ("LEVEL", "what the launcher prints: debug, info, warning, error, critical (default)"),
}
SWITCHES = {
    "bind_cores_to_rank": "each rank on cores of its own",
    "no_ssh": "start on this machine alone, as one of several",
    "no_ssh_check": "do not try whether machines are reached",
    "force_multi": "as on several machines where there is one",
    "save_pid": "the launcher's process number into /tmp",
}
USAGE = "clearspan-train [launcher's options] --recipe NAME-or-FILE [--resume] [--dry-run] [--quiet] [key=value ...]"


def parser() -> terminal.Parser:
    """Knows the launcher's options; all others are `train.run`'s."""
    root = terminal.Parser(
        prog="clearspan-train",
        usage=USAGE,
        description=__doc__,
        epilog=f"{'-' * 80}\n{run.parser().format_help()}",
    )
    root.add_argument("--list", action=run.ListRecipes)
    root.add_argument("--version", action="version", version=terminal.version())
    launcher = root.add_argument_group("the launcher's options (`deepspeed --help` says more)")
    for name, (metavar, text) in OPTIONS.items():
        launcher.add_argument(f"--{name}", metavar=metavar, help=text)
    for name, text in SWITCHES.items():
        launcher.add_argument(f"--{name}", action="store_true", help=text)
    return root


def command(argv: Sequence[str] | None = None) -> list[str]:
    """The deepspeed command's arguments; an option that neither the launcher nor `train.run` has ends the command."""
    root, own = parser(), run.parser()._option_string_actions
    options, rest = root.parse_known_args(argv)
    if mistyped := [word for word in rest if word.startswith("-") and word.split("=", 1)[0] not in own]:
        root.error(root.unknown(mistyped, own))
    given = [f"--{name}={value}" for name in OPTIONS if (value := getattr(options, name)) is not None]
    given += [f"--{name}" for name in SWITCHES if getattr(options, name)]
    return [*given, "--module", "clearspan.train.run", *rest]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = command(argv)
    return terminal.run("train", lambda: launch(arguments), (ValueError, RuntimeError))


def launch(arguments: Sequence[str]) -> int:
    """Run the launcher to its end. A rank's exit code is this process's, by SystemExit.

    Unless its log is asked for, the launcher prints nothing: ranks and this process say more of what fails.
    """
    shown = any(word.startswith("--log_level=") for word in arguments)
    with ending_at_once("train", "run it again"):
        from clearspan.train.engine.ranks import name_accelerator

        name_accelerator()
        from deepspeed.launcher import runner

        runner.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": Launcher})
        with contextlib.nullcontext() if shown else contextlib.redirect_stdout(io.StringIO()):
            runner.main(arguments if shown else ["--log_level=critical", *arguments])
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
