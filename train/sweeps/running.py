"""Run a sweep: check all runs before the first one starts, train and evaluate each in processes, then compare them.

    options -> runs -> load every recipe -> for each run: train or resume, evaluate -> table

A run is scored by `clearspan eval` on the sweep's tasks if --data is given, and by its best dev score if it has one. If
it has neither, its last logged losses are listed. Losses do not rank runs that differ in data, batch size or objectives
(`train.sweeps.report`).
"""

import csv
import dataclasses
import functools
import io
import json
import shlex
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from clearspan.cli.command import Errors, Printed, Result
from clearspan.cli.parser import parse
from clearspan.common import files, terminal
from clearspan.common.checksummed_folder import set_aside
from clearspan.common.records import DataError
from clearspan.common.spawned import CommandError, call, parallel_map
from clearspan.common.terminal import as_printed
from clearspan.eval import results
from clearspan.eval.__main__ import Evaluate
from clearspan.eval.report.html import is_report
from clearspan.eval.tables.averages import AVERAGES, HALVES, average
from clearspan.eval.tasks.registry import family
from clearspan.train.config.keys import naming
from clearspan.train.config.options import DEV, GIVEN, Recipe, RecipeError, one_of, refuse
from clearspan.train.curves import lines_up_to
from clearspan.train.recipe import load_recipe, pinned
from clearspan.train.request import EXPECTED, TRAIN, LauncherOptions, TrainOptions
from clearspan.train.run_folder import METRICS, MODEL, check_metrics, repeated
from clearspan.train.sweeps import grid, report
from clearspan.train.sweeps.grid import RECIPE, Grid, GridRun, Sweep, short_names

EVAL, TABLE = "eval", "table.csv"
FAILED: Errors = (*EXPECTED, *Evaluate.expected)
"""Errors that end a run of a sweep, but not the others."""

Scores = dict[str, float]
"""Scores by name."""


def requested(options: Sweep) -> tuple[Grid, list[str]]:
    """Return (the sweep that the options describe, the `key=value` arguments that apply to all of its runs).

    Raises:
        RecipeError: the options contradict each other or name something unknown, or --data holds no data of the tasks.
    """
    names = [word for word in options.words if "=" not in word]
    overrides = [word for word in options.words if "=" in word]
    refuse((len(names) > 1, f"{', '.join(names)}: name one sweep"))
    axes = [grid.parse_axis(text) for text in options.grid]
    sweep = (grid.read(names[0]) if names else Grid([])).with_axes(axes)
    given = [word.strip() for word in options.tasks.split(",") if word.strip()]
    tasks = given or (sweep.tasks if options.data else [])
    sweep = dataclasses.replace(sweep, recipe=options.recipe or sweep.recipe, tasks=tasks)
    varied, known = {key for axis in sweep.grid for key in axis}, ["", *AVERAGES, *HALVES]
    keys = {override.split("=", 1)[0] for override in overrides}
    refuse(
        ("output" in varied | keys, "output: each run has its own folder in that of `output`"),
        *((key in keys, f"{key}: the grid varies it too: give its only value as `grid` {key}=VALUE") for key in varied),
        (bool(options.data) != bool(tasks), "`tasks` and `data` go together: give both or none"),
        (sweep.score not in known, f"unknown score {sweep.score!r}: give one of {one_of(sweep.score, known[1:])}"),
        (
            options.protocol != "full" and not tasks,
            f"`protocol` {options.protocol} has no effect without `tasks`",
        ),
    )
    with naming("`tasks`, `data`"):
        found = [task for word in tasks for task in family(word).load(Path(options.data)).tasks]
    refuse((bool(tasks) and not found, f"`data` {options.data}: holds no data of the tasks {', '.join(tasks)}"))
    return sweep, overrides


def recipe_of(run: GridRun, output: Path, overrides: Sequence[str]) -> Recipe:
    """Return the recipe of a run of a sweep, with the values of the grid and the run's output folder.

    Args:
        run: the run.
        output: the folder of the sweep.
        overrides: the `key=value` arguments that apply to all runs.

    Raises:
        RecipeError: the recipe cannot work; the message names the run.
    """
    with naming(run.name):
        return load_recipe(run.settings[RECIPE], [*overrides, *run.overrides(), f"output={output / run.name}"])


def train(run: GridRun, recipe: Recipe, overrides: Sequence[str], options: Sweep) -> None:
    """Train a run to its end, from the start or from its last checkpoint; do nothing if it has finished.

    Args:
        run: the run.
        recipe: the recipe of the run, from `recipe_of`.
        overrides: the `key=value` arguments that apply to all runs.
        options: the options of the sweep.

    Raises:
        CommandError, ValueError, OSError: the run failed, was stopped before its end, or its folder holds another run.
    """
    folder = options.output / run.name
    if (state := repeated(recipe)) == "finished":
        check_metrics(folder)
        return
    terminal.notice(f"run {run.name}, {state}")
    if (folder / EVAL).exists():  # of another model, which was trained here before
        terminal.notice(f"{folder / EVAL}: of an earlier training: moved to {set_aside(folder / EVAL, 'earlier')}")
    requested = TrainOptions(
        recipe=run.settings[RECIPE],
        overrides=(*overrides, *run.overrides(), *pinned(recipe), f"output={folder}"),
        resume=state == "halted",
        quiet=options.quiet,
    )
    launcher = parse(LauncherOptions, shlex.split(options.launcher), raises=True)
    call(TRAIN, requested, launcher, expected=EXPECTED, quiet=options.quiet)
    if repeated(recipe) != "finished":
        raise CommandError("was stopped before its end", 1)


def evaluate(run: Path, sweep: Grid, options: Sweep) -> Path:
    """Evaluate a finished run on the tasks of the sweep; return the path of the run's results.json.

    If the run has undamaged results from an earlier evaluation, it is not evaluated again. If the sweep has no tasks,
    the run is not evaluated, and the file may be missing.

    Args:
        run: the folder of the run.
        sweep: the description of the sweep, with its tasks.
        options: the options of the sweep.

    Raises:
        CommandError, UsageError: the evaluation failed.
    """
    protocol = "" if options.protocol == "full" else f",{options.protocol}"
    scored = run / EVAL / f"{options.tasks or 'tasks'}{protocol}" / "results.json"
    if scored.exists():
        try:
            results.check(scored)
        except DataError as error:
            aside = set_aside(scored.parent)
            terminal.notice(f"{error}: run {run.name} will be evaluated again, and these results are now in {aside}")
    if sweep.tasks and not scored.is_file():
        evaluate = Evaluate(
            model=(str(run / MODEL),),
            tasks=tuple(sweep.tasks),
            data=Path(options.data),
            output=scored.parent,
            protocol=options.protocol,
            allow_missing=True,
            quiet=options.quiet,
        )
        call(*evaluate.request(), expected=Evaluate.expected, quiet=True)
    return scored


def scores_of(run: Path, results: Path, score: str) -> Scores:
    """Return name -> value of a run's scores, rounded, or of its last logged losses if it has no scores.

    The scores are averages over tasks and the best dev score. If the run has no result for some tasks of an average,
    the name of the average ends in ", incomplete".

    Args:
        run: the folder of the run.
        results: the path of the run's results.json; the file is missing if the run was not evaluated.
        score: the name of the average that comes first and ranks the runs; "" if the sweep names none.

    Raises:
        RecipeError: metrics.jsonl is missing, or holds no step.
    """
    scores: Scores = {}
    if results.is_file():
        content = json.loads(results.read_text())
        tasks = {task: {k: v for k, v in each.items() if v is not None} for task, each in content["scores"].items()}
        chosen = average(score, tasks, min_tasks=1) if score else None
        for name, mean in {**({score: chosen} if chosen else {}), **content["averages"]}.items():
            if mean["value"] is not None:
                scores[f"{name}{', incomplete' if mean.get('missing') else ''}"] = round(mean["value"], 4)
    lines = [json.loads(line) for line in lines_up_to(run / METRICS)]
    refuse((not lines, f"{run}: its metrics.jsonl is missing or holds no step: delete the folder to train it again"))
    if dev := [line[name] for line in lines for name in (DEV, f"{GIVEN}{DEV}") if name in line]:
        scores[DEV] = round(max(dev), 4)
    losses: Scores = next((line for line in reversed(lines) if "loss" in line), {})
    return scores or {
        name: round(value, 6) for name, value in losses.items() if name == "loss" or name.endswith("/loss")
    }


def names_of(by_run: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Return the names of all metrics that at least one run has, each once, in the order of the runs.

    Args:
        by_run: name of a run -> name of a metric -> its value as text.
    """
    return list(dict.fromkeys(name for figures in by_run.values() for name in figures))


def without_losses(by_run: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    """Return the runs' metrics without losses, because losses of runs with different settings cannot be compared.

    Args:
        by_run: name of a run -> name of a metric -> its value as text. The result has the same form.
    """
    return {
        run: {name: value for name, value in figures.items() if not report.is_loss(name)}
        for run, figures in by_run.items()
    }


def rows_of(runs: Sequence[GridRun], by_run: Mapping[str, Mapping[str, str]]) -> list[list[str]]:
    """Return the table of a sweep as rows of text: the headings, then a row for each run.

    A row has the run's name, its value of each key that varies in the grid, and its metrics; "" for a metric that the
    run does not have.

    Args:
        runs: the runs, in the order of the rows.
        by_run: name of a run -> name of a metric -> its value as text. A run that failed is missing.
    """
    keys = [key for key in runs[0].settings if len({run.settings[key] for run in runs}) > 1 or key != RECIPE]
    names = names_of(by_run)
    rows = [
        [run.name, *(run.settings[key] for key in keys), *(by_run.get(run.name, {}).get(name, "") for name in names)]
        for run in runs
    ]
    return [["run", *keys, *names], *rows]


def printed(rows: Sequence[Sequence[str]]) -> str:
    """Return the table of a sweep as text for the terminal.

    The column of run names is left out, because a name only repeats the run's grid values.

    Args:
        rows: the table as rows of text, headings first.
    """
    short = short_names(rows[0])
    return terminal.table([short[name] for name in rows[0][1:]], [row[1:] for row in rows[1:]])


def is_table(path: Path, names: Collection[str]) -> bool:
    """Return whether a file is a table that a sweep wrote.

    It is one if its first heading is `run`, and each row begins with the name of a run: a name in `names`, or the name
    of a folder that lies beside the file and holds a recipe.yaml.

    Args:
        path: the path of the file.
        names: the names of the sweep's runs.
    """
    try:
        head, *rows = csv.reader(io.StringIO(path.read_text(encoding="utf-8")), strict=True)
        runs = {row[0] for row in rows}
    except (ValueError, IndexError, csv.Error):
        return False
    return head[:1] == ["run"] and all(run in names or (path.parent / run / "recipe.yaml").is_file() for run in runs)


@dataclasses.dataclass(frozen=True)
class SweepResult(Result):
    """The result of a sweep that has trained its runs.

    Attributes:
        rows: the table as rows of text, headings first: the run's name, its grid values and its metrics.
        lines: lines to print below the table: a sentence on the best run, a bar for each run, and remarks.
        table: the path of the table, table.csv.
        page: the path of the report, an HTML page.
        failure: the names of the runs that failed, with the reasons; "" if none failed.
    """

    rows: Sequence[Sequence[str]]
    lines: Sequence[str]
    table: Path
    page: Path
    failure: str = ""

    def __str__(self) -> str:
        return as_printed("\n".join([printed(self.rows), *self.lines, f"{self.table}; report: {self.page}"]))


def sweep(options: Sweep) -> Result:
    """Train and evaluate the runs that are not finished, and write the table and the report.

    If `options.dry_run` is true, the runs are only listed. If `options.part` is given, this process has a part of the
    runs while others have the rest, and nothing is written but the runs. If a run fails, the other runs continue, and
    the result has exit code 1.

    Raises:
        RecipeError: a run's recipe cannot work, or its folder holds something else than this run.
        InUseError: another sweep writes to the folder.
    """
    chosen, overrides = requested(options)
    every = chosen.runs()
    runs = options.chosen(every)
    recipes = {run.name: recipe_of(run, options.output, overrides) for run in every}
    states = {run.name: {"state": repeated(recipes[run.name])} for run in runs}
    table, page = options.output / TABLE, options.output / report.REPORT
    for path, is_ours in ((table, functools.partial(is_table, names=set(recipes))), (page, is_report)):
        if files.is_foreign(path, is_ours):
            raise RecipeError(f"{path}: was not written by a sweep: name a new or an empty folder as `output`")
    foreseen = report.expected(recipes, bool(chosen.tasks)).reason
    if options.dry_run:
        names = ", ".join(dict.fromkeys(run.settings[RECIPE] for run in runs))
        heading = f"{len(runs)} runs of {names}" + (f" with {' '.join(overrides)}" if overrides else "")
        lines = [heading, *(f"  {run.name}" for run in runs), printed(rows_of(runs, states))]
        return Printed("\n".join([*lines, *([as_printed(f"note: {foreseen}")] if foreseen else [])]))
    if foreseen:
        terminal.notice(f"note: {foreseen}")
    failed: list[str] = []
    of_run = dataclasses.replace(options, quiet=True) if options.at_once > 1 else options  # lines of runs would mix

    def figures_of(run: GridRun) -> dict[str, str]:
        """Train and evaluate a run; return its scores or losses as name -> value as text, or {} if the run failed."""
        folder = options.output / run.name
        try:
            train(run, recipes[run.name], overrides, of_run)
            scores = scores_of(folder, evaluate(folder, chosen, of_run), chosen.score)
        except FAILED as error:
            failed.append(f"{run.name}: {terminal.one_line(error)}")
            print(f"sweep: {failed[-1]}; the other runs continue", file=sys.stderr)
            return {}
        return {name: str(score) for name, score in scores.items()}

    with files.locked(options.output, shared=bool(options.part)):
        figures = parallel_map(figures_of, runs, options.at_once)
        by_run = {run.name: each for run, each in zip(runs, figures, strict=True) if each}
        ranked = report.ranking(recipes, names_of(by_run))
        shown = rows_of(runs, by_run if ranked.figure else without_losses(by_run))
        problem = f"{len(failed)} of {len(runs)} runs failed: {'; '.join(failed)}" if failed else ""
        if options.part:
            rest = f"part {options.part}: {len(runs)} of {len(every)} runs; without `part`, the command writes {table}"
            return Printed(as_printed(f"{printed(shown)}\n{rest}"), failure=problem)
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows_of(runs, by_run))
        files.write_text(table, text.getvalue())
        report.write(options.output, shown, ranked, by_run)
    lines = report.lines(ranked, by_run, options.output, terminal.width())
    return SweepResult(shown, lines, table, page, problem)
