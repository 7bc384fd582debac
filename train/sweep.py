"""Train a grid of runs, one after the other, and compare them: `python -m train.sweep`.

    recipe x grid -> OUTPUT/NAME, a run each, started as a user would -> scores -> table.csv, sweep.json, figure.png

The same command goes on where it stopped: finished runs stay, halted ones resume, and values that a grid has more are
trained too. `train/sweeps` holds the ablations of the papers by name.
"""

import argparse
import dataclasses
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

from clearspan.train.engine.signals import ending_at_once

if TYPE_CHECKING:
    from clearspan.common.terminal import Parser
    from clearspan.train.sweeps.grid import Grid, Run
    from clearspan.train.sweeps.scores import Scoring

EXAMPLE = """examples:
  python -m train.sweep declutr-figure-2 data.text.path=data/train model.path=MODEL --output sweeps/figure-2
  python -m train.sweep --recipe declutr-small --grid objectives.spans.sampler.num_anchors=1,2 \\
      --grid "optimizer.learning_rate=5e-5,1e-4;training.epochs=1,2" --output sweeps/mine data.text.path=data/train
"""
LEFT_BEHIND_S = 60
"""How long a run is waited for that a killed sweep left: its ranks save and end within a step."""


def parser() -> "Parser":
    from clearspan.common import terminal
    from clearspan.train.sweeps import grid

    root = terminal.Parser(prog="python -m train.sweep", description=__doc__, epilog=EXAMPLE)
    root.add_argument(
        "words", nargs="*", metavar="SWEEP | key=value", help=f"{', '.join(grid.names())}, or YAML; recipe keys"
    )
    root.add_argument("--recipe", default="", metavar="NAME-or-FILE", help="what all runs have (default: the sweep's)")
    root.add_argument(
        "--grid",
        action="append",
        default=[],
        metavar="KEY=A,B[;KEY=C,D]",
        help="values to train each of; keys beside each other vary together; in place of a sweep's axis of that key",
    )
    root.add_argument(
        "--output", required=True, type=Path, metavar="DIR", help="a folder of runs, new or a sweep's own"
    )
    root.add_argument("--launcher", default="", metavar="ARGS", help='the deepspeed launcher\'s, e.g. "--num_gpus 4"')
    root.add_argument("--tasks", default="", metavar="LIST", help="of `python -m eval` (default: the sweep's)")
    root.add_argument("--data", default="", metavar="DIR", help="the folder of these tasks; without it none is scored")
    root.add_argument(
        "--score",
        default="",
        metavar="NAME",
        help="what the figure shows: an average of these tasks, e.g. downstream_declutr_dev, or TASK/METRIC",
    )
    root.add_argument("--protocol", choices=("full", "fast"), default="full", help="of `python -m eval`")
    root.add_argument("--by", action="append", default=[], metavar="KEY", help="a panel of the figure (default: all)")
    root.add_argument("--colour", default="", metavar="KEY", help="what the figure tells apart by colour")
    root.add_argument("--dry-run", action="store_true", help="list the runs and what each changes; no training")
    root.add_argument("--quiet", action="store_true", help="no progress bars")
    root.add_argument("--version", action="version", version=terminal.version())
    return root


@dataclasses.dataclass(frozen=True)
class Plan:
    """A sweep, checked: every run's recipe loads."""

    grid: "Grid"
    runs: list["Run"]
    overrides: list[str]
    scoring: "Scoring"


def planned(options: argparse.Namespace) -> Plan:
    """What a command asks for.

    Raises:
        RecipeError: a grid, an override or a run's recipe cannot work, or a run that is there is of another recipe.
    """
    from clearspan.train.options import RecipeError, refuse
    from clearspan.train.sweeps import grid
    from clearspan.train.sweeps.scores import scoring

    overrides = [word for word in options.words if "=" in word]
    named = [word for word in options.words if "=" not in word]
    keys = {override.split("=", 1)[0] for override in overrides}
    axes = [grid.parse_axis(text) for text in options.grid]
    refuse(
        (len(named) > 1, f"{', '.join(named)}: name one sweep"),
        ("output" in keys, "output: each run has a folder of its own in that of --output"),
        (any("output" in axis.keys for axis in axes), "--grid output: each run has a folder of its own"),
    )
    whole = grid.read(named[0]).with_axes(axes) if named else grid.Grid(options.recipe, tuple(axes))
    whole = dataclasses.replace(
        whole,
        recipe=options.recipe or whole.recipe,
        by=tuple(options.by) or whole.by,
        colour=options.colour or whole.colour,
    )
    varied = [key for axis in whole.axes for key in axis.keys]
    if twice := next((key for key in varied if key in keys), None):
        raise RecipeError(f"{twice}: is given, and varied by the grid too: give its only value as --grid {twice}=VALUE")
    how = scoring(options, whole)
    runs = whole.runs()
    check_own(options.output)
    for run in runs:
        check(run, options.output, overrides)
    return Plan(whole, runs, overrides, how)


def check_own(output: Path) -> None:
    """Raises RecipeError where a folder holds files that no sweep wrote; hidden ones do not count."""
    from clearspan.train.options import RecipeError
    from clearspan.train.sweeps.report import FILES

    entries = sorted(output.iterdir()) if output.is_dir() else []
    files = [path.name for path in entries if path.is_file() and not path.name.startswith(".")]
    if files and (FILES[0] not in files or not set(files) <= set(FILES)):
        other = next((name for name in files if name not in FILES), files[0])
        raise RecipeError(f"--output {output}: holds files of something else ({other}): name a new or an empty folder")


def check(run: "Run", output: Path, overrides: Sequence[str]) -> None:
    """Raises RecipeError where a run's recipe cannot work, or where its folder's run is of another one."""
    from clearspan.train.config.recipe import load
    from clearspan.train.config.resume_policy import flat
    from clearspan.train.options import RecipeError

    folder = output / run.name
    try:
        recipe = load(run.settings["recipe"], [*overrides, *run.overrides(), f"output={folder}"])
    except RecipeError as error:
        raise RecipeError(f"{run.name}: {error}") from None
    saved = folder / "recipe.yaml"
    if not saved.is_file() or state(folder) == "new":
        return
    before, now = (flat(dataclasses.asdict(one)) for one in (load(str(saved)), recipe))
    # What a run fills in itself is no other recipe.
    keys = [key for key in before.keys() | now.keys() if key in now or ".modality." not in key]
    if changed := sorted(key for key in keys if before.get(key) != now.get(key) and key != "output"):
        raise RecipeError(
            f"{folder}: its run has another {', '.join(changed)}; see {saved}, or take another --output for this sweep"
        )


def state(run: Path) -> str:
    """finished, halted (there is something to resume from) or new."""
    from clearspan.train.engine.checkpoint import Checkpoints
    from clearspan.train.export import WEIGHTS

    if (run / "model" / WEIGHTS).is_file():  # the last file that an export puts in its place
        return "finished"
    return "halted" if Checkpoints(run).tags() else "new"


def train_command(run: "Run", output: Path, overrides: Sequence[str], options: argparse.Namespace) -> list[str]:
    """The launcher's command line of a run, as a user would write it."""
    folder = output / run.name
    words = ["--recipe", run.settings["recipe"], *overrides, *run.overrides(), f"output={folder}"]
    words += ["--resume"] if state(folder) == "halted" else []
    words += ["--quiet"] if options.quiet else []
    return [sys.executable, "-m", "clearspan.train", *shlex.split(options.launcher), *words]


class Starter:
    """Runs commands one after the other. A signal to this process ends the one that runs, which saves what it can.

    They are in a session of their own, so that Ctrl-C reaches them through this process alone: the ranks are told, and
    the launcher ends as it does when they are done.
    """

    def __init__(self) -> None:
        self.signal = ""
        self.process: subprocess.Popen | None = None

    def __enter__(self) -> "Starter":
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._handlers = {number: signal.signal(number, self._signalled) for number in numbers}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def run(self, command: list[str], silent: bool = False) -> int:
        """The command's exit code; `silent`: what it prints is not shown."""
        where = subprocess.DEVNULL if silent else None
        self.process = subprocess.Popen(command, stdout=where, start_new_session=True)
        if self.signal:
            self.process.terminate()
        code = self.process.wait()
        self.process = None
        return code

    def _signalled(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        if self.process is not None:
            self.process.terminate()


def wait_for(run: Path) -> None:
    """Waits until the run of a killed sweep has saved and ended."""
    from clearspan.common import files, terminal

    for second in range(LEFT_BEHIND_S if run.is_dir() else 0):
        try:
            with files.locked(run):
                return
        except files.InUseError:
            if second == 0:
                terminal.notice(f"{run.name}: waits for its run to end, which a killed sweep left behind")
            time.sleep(1)


def sweep(options: argparse.Namespace, plan: Plan, start: Callable[[list[str], bool], int], stopped: Callable) -> int:
    """Trains and scores what is not there yet; the exit code.

    Args:
        start: runs a command to its end, silently or not; its exit code.
        stopped: whether and by which signal the sweep is to end; "": it is not.
    """
    from clearspan.common import terminal
    from clearspan.train.sweeps import remarks as sweep_remarks
    from clearspan.train.sweeps import report

    failed: list[str] = []
    found: dict[str, dict[str, float]] = {}
    for number, run in enumerate(plan.runs, 1):
        folder, wrong = options.output / run.name, ""
        wait_for(folder)
        if (before := state(folder)) != "finished" and not stopped():
            terminal.notice(f"run {number} of {len(plan.runs)}, {before}: {run.name}")
            code = start(train_command(run, options.output, plan.overrides, options), False)
            wrong = f"training ended with exit code {code}" if code else ""
            if not code and state(folder) != "finished" and not stopped():
                wrong = "was stopped before its end"
        done = state(folder) == "finished"
        if done and plan.scoring.tasks and not plan.scoring.evaluated(folder) and not stopped():
            code = start(plan.scoring.command(folder, options.quiet), True)
            wrong = f"python -m eval ended with exit code {code}" if code else ""
        if wrong and not stopped():
            failed.append(f"{run.name}: {wrong}")
            print(f"sweep: {terminal.visible(failed[-1])}; the others go on", file=sys.stderr)
        if done and (not plan.scoring.tasks or plan.scoring.evaluated(folder)):
            found[run.name] = report.scores(folder, plan.scoring)
    if name := stopped():
        print(
            f"sweep: stopped by {name}: {len(found)} of {len(plan.runs)} runs are done; the same command goes on",
            file=sys.stderr,
        )
        return 1
    remarks = sweep_remarks.remarks(options.output, plan.runs, found)
    notes = sweep_remarks.equal_rows(options.output, plan.runs, found)
    report.write(options.output, plan.grid, plan.runs, found, remarks, notes)
    terminal.say("\n".join([report.table(plan.runs, found, remarks), *notes]))
    if line := report.highest(found, plan.scoring.score):
        terminal.say(line)
    terminal.say(f"{options.output}: table.csv, sweep.json{', figure.png' if found else ''}")
    if failed:
        print(
            f"sweep: {len(failed)} of {len(plan.runs)} runs failed: {terminal.visible('; '.join(failed))}",
            file=sys.stderr,
        )
    return 1 if failed else 0


def describe(plan: Plan, output: Path) -> str:
    """What `--dry-run` prints: the runs, what each changes, and how far it is."""
    from clearspan.common import terminal
    from clearspan.train.sweeps import report
    from clearspan.train.sweeps.grid import short_names

    keys = report.columns(plan.runs)
    short = short_names(keys)
    rows = [[run.name, *(run.settings[key] for key in keys), state(output / run.name)] for run in plan.runs]
    lines = [f"{len(plan.runs)} runs of {', '.join(dict.fromkeys(run.settings['recipe'] for run in plan.runs))}"]
    lines += [f"all with {' '.join(plan.overrides)}"] if plan.overrides else []
    return "\n".join([*lines, terminal.table(["run", *(short[key] for key in keys), ""], rows)])


def work(options: argparse.Namespace) -> int:
    """The exit code: 0, 1 where a run failed or the sweep was stopped, 2 where the sweep cannot work."""
    from clearspan.common import files, terminal
    from clearspan.train.options import RecipeError
    from clearspan.train.sweeps.scores import missing

    try:
        with ending_at_once("sweep", "run it again"):
            plan = planned(options)
            if lacking := missing(plan.scoring):
                terminal.notice(lacking)
            elif plan.grid.score and not plan.scoring.tasks:
                terminal.notice(f"no --data DIR of {', '.join(plan.grid.tasks)}: runs go without {plan.grid.score}")
        if options.dry_run:
            terminal.say(describe(plan, options.output))
            return 0
        with files.locked(options.output), Starter() as starter:
            return sweep(options, plan, starter.run, lambda: starter.signal)
    except RecipeError as error:
        print(f"sweep: {terminal.one_line(error)}", file=sys.stderr)
        return 2


def main(argv: list[str] | None = None) -> int:
    with ending_at_once("sweep", "run it again"):
        from clearspan.common import terminal

        options = parser().parse_intermixed_args(argv)
    return terminal.run("sweep", lambda: work(options), (ValueError, OSError))


if __name__ == "__main__":
    raise SystemExit(main())
