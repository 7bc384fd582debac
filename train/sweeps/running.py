"""The runs of a sweep: checked before the first one starts, trained and evaluated as processes, then compared.

options -> Plan: every run's recipe loads -> for each run: train or resume, evaluate -> report
"""

import dataclasses
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, TracebackType

from clearspan.common import files, terminal
from clearspan.common.progress import LONG_S, about, counted
from clearspan.train.config.recipe import load, load_saved
from clearspan.train.config.resume_policy import differing
from clearspan.train.engine.checkpoint import Checkpoints
from clearspan.train.export import WEIGHTS
from clearspan.train.options import RecipeError, refuse
from clearspan.train.run_folder import INPUTS, inputs, replaced
from clearspan.train.sweeps import grid, report
from clearspan.train.sweeps.grid import RECIPE, Grid, Run
from clearspan.train.sweeps.options import Sweep
from clearspan.train.sweeps.remarks import equal_rows, remarks
from clearspan.train.sweeps.scores import Scores, Scoring, scoring

LEFT_BEHIND_S = 60
"""Seconds to wait for a run that a killed sweep left behind: its ranks save and end within a step."""


@dataclasses.dataclass(frozen=True)
class Plan:
    """A sweep whose runs all have a recipe that loads."""

    grid: Grid
    runs: list[Run]
    overrides: list[str]
    scoring: Scoring


def planned(options: Sweep) -> Plan:
    """Return the sweep that a command line describes.

    Raises:
        RecipeError: the grid, an override or a run's recipe cannot work, or the folder holds something else.
    """
    overrides = [word for word in options.words if "=" in word]
    names = [word for word in options.words if "=" not in word]
    keys = {override.split("=", 1)[0] for override in overrides}
    axes = [grid.parse_axis(text) for text in options.grid]
    refuse(
        (len(names) > 1, f"{', '.join(names)}: name one sweep"),
        ("output" in keys, "output: each run has its own folder in that of --output"),
        (any("output" in axis.keys for axis in axes), "--grid output: each run has its own folder"),
    )
    chosen = grid.read(names[0]).with_axes(axes) if names else Grid(options.recipe, tuple(axes))
    chosen = dataclasses.replace(
        chosen,
        recipe=options.recipe or chosen.recipe,
        by=tuple(options.by) or chosen.by,
        color=options.color or chosen.color,
    )
    varied = [key for axis in chosen.axes for key in axis.keys]
    if twice := next((key for key in varied if key in keys), None):
        raise RecipeError(f"{twice}: the grid varies it too: give its only value as --grid {twice}=VALUE")
    evaluation, runs = scoring(options, chosen), chosen.runs()
    _check_folder(options.output)
    for run in runs:
        _check_run(run, options.output, overrides)
    return Plan(chosen, runs, overrides, evaluation)


def _check_folder(output: Path) -> None:
    """Raise RecipeError for a folder with files that no sweep wrote; hidden files are ignored."""
    entries = sorted(output.iterdir()) if output.is_dir() else []
    files_there = [path.name for path in entries if path.is_file() and not path.name.startswith(".")]
    if files_there and (report.FILES[0] not in files_there or not set(files_there) <= set(report.FILES)):
        other = next((name for name in files_there if name not in report.FILES), files_there[0])
        raise RecipeError(f"--output {output}: holds files of something else ({other}): name a new or an empty folder")


def _check_run(run: Run, output: Path, overrides: Sequence[str]) -> None:
    """Raise RecipeError if a run's recipe cannot work, or if its folder holds a run of another recipe
    or other data.
    """
    folder = output / run.name
    try:
        recipe = load(run.settings[RECIPE], [*overrides, *run.overrides(), f"output={folder}"])
    except RecipeError as error:
        raise RecipeError(f"{run.name}: {error}") from None
    saved = folder / "recipe.yaml"
    if not saved.is_file() or state(folder) == "new":
        return
    if changed := differing(load_saved(saved, recipe), recipe):
        raise RecipeError(
            f"{folder}: its run has another {', '.join(changed)}; see {saved}, or use another --output for this sweep"
        )
    for key in replaced(folder, recipe, inputs(recipe, readable=True)) if (folder / INPUTS).is_file() else ():
        raise RecipeError(
            f"{folder}: its run read another {key} than is there now: put it back, or use another --output for this "
            "sweep"
        )


def state(run: Path) -> str:
    """Return "finished", "halted" (there is a checkpoint to resume from) or "new"."""
    if (run / "model" / WEIGHTS).is_file():  # the last file that an export moves into place
        return "finished"
    return "halted" if Checkpoints(run).tags() else "new"


def describe(plan: Plan, output: Path) -> str:
    """Return what `--dry-run` prints: the runs, what each changes, and its state."""
    keys = report.columns(plan.runs)
    short = grid.short_names(keys)
    rows = [[run.name, *(run.settings[key] for key in keys), state(output / run.name)] for run in plan.runs]
    lines = [f"{len(plan.runs)} runs of {', '.join(dict.fromkeys(run.settings[RECIPE] for run in plan.runs))}"]
    lines += [f"all with {' '.join(plan.overrides)}"] if plan.overrides else []
    return "\n".join([*lines, terminal.table(["run", *(short[key] for key in keys), ""], rows)])


def train_command(run: Run, output: Path, overrides: Sequence[str], options: Sweep) -> list[str]:
    """Return the command that trains a run, as a user would write it."""
    folder = output / run.name
    words = ["--recipe", run.settings[RECIPE], *overrides, *run.overrides(), f"output={folder}"]
    words += ["--resume"] if state(folder) == "halted" else []
    words += ["--quiet"] if options.quiet else []
    return [sys.executable, "-m", "clearspan.train", *shlex.split(options.launcher), *words]


class Starter:
    """A context that runs commands one after the other. A signal to this process is passed to the running command,
    which saves what it can.

    Commands run in their own session, so that Ctrl-C reaches them through this process alone: the ranks are signaled,
    and the launcher ends when they are done.
    """

    def __init__(self) -> None:
        self.signal = ""
        self.process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> "Starter":
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        self._handlers = {number: signal.signal(number, self._signalled) for number in numbers}
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def run(self, command: list[str], silent: bool = False) -> int:
        """Run a command, with `silent` without its standard output; return its exit code."""
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL if silent else None, start_new_session=True)
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
    """Wait until a run that a killed sweep left behind has saved and ended."""
    for second in range(LEFT_BEHIND_S if run.is_dir() else 0):
        try:
            with files.locked(run):
                return
        except files.InUseError:
            if second == 0:
                terminal.notice(f"{run.name}: waits for the end of its run, which a killed sweep left behind")
            time.sleep(1)


def sweep(options: Sweep, plan: Plan, start: Callable[[list[str], bool], int], stopped: Callable[[], str]) -> int:
    """Train and evaluate what is missing, and report; return the exit code.

    Args:
        start: runs a command to its end, without its output if the second argument is true; returns its exit code.
        stopped: returns the signal that is to end the sweep, or "".
    """
    failed: list[str] = []
    by_run: dict[str, Scores] = {}
    times: list[float] = []
    for number, run in enumerate(plan.runs, 1):
        folder, problem, began = options.output / run.name, "", time.perf_counter()
        wait_for(folder)
        if (before := state(folder)) != "finished" and not stopped():
            left = sum(state(options.output / each.name) != "finished" for each in plan.runs[number - 1 :])
            seconds = left * sum(times) / max(1, len(times))
            rest = f"; {about(seconds, counted(left, 'run'))}" if seconds >= LONG_S else ""
            terminal.notice(f"run {number} of {len(plan.runs)}, {before}: {run.name}{rest}")
            if earlier := plan.scoring.results(folder):
                earlier.unlink(missing_ok=True)  # of another model, which was trained here before
            code = start(train_command(run, options.output, plan.overrides, options), False)
            problem = f"training ended with exit code {code}" if code else ""
            if not code and state(folder) != "finished" and not stopped():
                problem = "was stopped before its end"
        done = state(folder) == "finished"
        if done and plan.scoring.tasks and not plan.scoring.evaluated(folder) and not stopped():
            code = start(plan.scoring.command(folder, options.quiet), True)
            problem = f"clearspan eval ended with exit code {code}" if code else ""
        if before == "new" and not problem:
            times.append(time.perf_counter() - began)
        if problem and not stopped():
            failed.append(terminal.visible(f"{run.name}: {problem}"))
            print(f"sweep: {failed[-1]}; the other runs continue", file=sys.stderr)
        if done and (not plan.scoring.tasks or plan.scoring.evaluated(folder)):
            by_run[run.name] = report.scores(folder, plan.scoring)
    if name := stopped():
        progress = f"{len(by_run)} of {len(plan.runs)} runs are done"
        print(f"sweep: stopped by {name}: {progress}; the same command continues", file=sys.stderr)
        return 1
    comments = remarks(options.output, plan.runs, by_run)
    notes = equal_rows(options.output, plan.runs, by_run)
    report.write(options.output, plan.grid, plan.runs, by_run, comments, notes)
    best = report.highest(by_run, plan.scoring.score)
    written = f"{options.output}: table.csv, sweep.json{', figure.png' if by_run else ''}"
    terminal.say("\n".join([report.table(plan.runs, by_run, comments), *notes, *([best] if best else []), written]))
    if failed:
        print(f"sweep: {len(failed)} of {len(plan.runs)} runs failed: {'; '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0
