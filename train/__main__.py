"""Train on one or more devices: the deepspeed launcher on this package.

    --num_accelerators 2 ...  to the launcher        --recipe NAME key=value ...  to `train.run`, a process a device

`deepspeed --module train.run` would run a train.py of the working folder: what this starts takes no code from there.
"""

import os
import signal
from collections.abc import Sequence
from pathlib import Path

from shards import isolation, terminal
from train import run
from train.engine.stopping import ending_at_once, hand_signals_to_ranks

OPTIONS = {
    "num_accelerators": ("N", "devices of each machine to use, the first N (default: all)"),
    "num_gpus": ("N", "the same"),
    "include": ("DEVICES", "to use, as 0,2 or NODE:0,2@NODE"),
    "exclude": ("DEVICES", "not to use, likewise"),
    "master_port": ("PORT", "where the ranks meet (default 29500): another for each training on a machine"),
    "master_addr": ("ADDRESS", "where the ranks of several machines meet"),
    "hostfile": ("FILE", "the machines, a line 'NODE slots=N' each"),
    "num_nodes": ("N", "machines to use, the first N of the hostfile"),
    "node_rank": ("N", "which of them this is, with --no_ssh"),
    "launcher": ("NAME", "how to start on several machines: pdsh, openmpi, slurm, ..."),
    "launcher_args": ("WORDS", "options of that"),
    "ssh_port": ("PORT", "of the machines"),
    "venv_script": ("FILE", "to source on each machine first"),
    "bind_core_list": ("CORES", "to bind to, as 0,2-4"),
    "enable_each_rank_log": ("DIR", "each rank's output into a file there"),
    "log_level": ("LEVEL", "the launcher's: debug, info, warning, error, critical"),
}
SWITCHES = {
    "bind_cores_to_rank": "each rank on cores of its own",
    "no_ssh": "start on this machine alone, as one of several",
    "no_ssh_check": "do not try whether machines are reached",
    "force_multi": "as on several machines where there is one",
    "save_pid": "the launcher's process number into /tmp",
}
HOSTFILE = "/job/hostfile"
"""Where the launcher looks for one that is not named."""
USAGE = "clearspan-train [launcher's options] --recipe NAME-or-FILE [--resume] [--dry-run] [--quiet] [key=value ...]"


def parser() -> terminal.Parser:
    """Knows the launcher's options; all others are `train.run`'s."""
    root = terminal.Parser(
        prog="clearspan-train",
        usage=USAGE,
        description=__doc__,
        epilog=f"{'-' * 80}\n{run.parser().format_help()}",
    )
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
    return [*given, "--module", "train.run", *rest]


def main(argv: Sequence[str] | None = None) -> int:
    arguments = command(argv)
    os.environ.update(isolation.environment())
    return terminal.run("train", lambda: launch(arguments), (ValueError, RuntimeError))


def launch(arguments: Sequence[str]) -> int:
    """Runs to the end; a rank's exit code is this process's."""
    with ending_at_once("train", "run it again"):
        from deepspeed.launcher import runner

    if one_machine(arguments):
        hand_signals_to_ranks("train", "run it again")
    else:
        signal.signal(signal.SIGINT, lambda *_: None)  # Ctrl-C reaches the ranks too: what they save is waited for
    runner.main(arguments)
    return 0


def one_machine(arguments: Sequence[str]) -> bool:
    """Whether the ranks are this machine's: those of others are the launcher's to signal."""
    several = ("--hostfile=", "--num_nodes=", "--node_rank=", "--launcher=", "--no_ssh", "--force_multi")
    return not Path(HOSTFILE).is_file() and not any(argument.startswith(several) for argument in arguments)


if __name__ == "__main__":
    raise SystemExit(main())
