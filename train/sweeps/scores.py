"""The scores by which a sweep compares its runs: tasks of `clearspan eval` on the available data.

    a sweep's `tasks` and `score`, or --tasks and --score  +  --data DIR  ->  Scoring
    Scoring + a finished run  ->  RUN/eval/TASKS/results.json  ->  the chosen score, then the other averages

Without --data no run is evaluated: runs are compared by their best dev score, or else by their last losses. A score
over some of its tasks only is named "incomplete", and missing data is reported before the training starts.
"""

import dataclasses
import functools
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearspan.common.files import sha256
from clearspan.common.plugins import PluginError, is_spec
from clearspan.eval.files import DataError
from clearspan.eval.tables.averages import AVERAGES, HALVES, average
from clearspan.eval.tasks.registry import FAMILIES, family
from clearspan.train.options import RecipeError, one_of, refuse
from clearspan.train.sweeps.grid import Grid
from clearspan.train.sweeps.options import Sweep

Scores = dict[str, float]
"""Scores by name."""
INCOMPLETE = ", incomplete"


@dataclasses.dataclass(frozen=True)
class Scoring:
    """The evaluation of a sweep's runs.

    Args:
        tasks: task families of `clearspan eval`; (): runs are not evaluated.
        data: the folder with the tasks' data.
        protocol: full (the papers') or fast.
        score: the score to put first: an average of `eval.tables.averages`, or TASK/METRIC. "": none.
    """

    tasks: tuple[str, ...] = ()
    data: str = ""
    protocol: str = "full"
    score: str = ""

    def results(self, run: Path) -> Path | None:
        """Return the path of a run's evaluation, or None without tasks."""
        name = "+".join(sorted(self.tasks)) + ("" if self.protocol == "full" else f",{self.protocol}")
        return run / "eval" / name / "results.json" if self.tasks else None

    @functools.cached_property
    def available(self) -> tuple[dict[str, tuple[Path, ...]], dict[str, str]]:
        """(task -> its files, task -> the reason why it is missing) of the folder of data."""
        files: dict[str, tuple[Path, ...]] = {}
        without: dict[str, str] = {}
        for word in self.tasks:
            loaded = family(word).load(Path(self.data))
            files |= {task.name: task.files for task in loaded.tasks}
            without |= loaded.missing
        return files, without

    @functools.cached_property
    def content(self) -> dict[str, list[str]]:
        """Task -> the sorted hashes of its files."""
        return {task: sorted(map(sha256, files)) for task, files in self.available[0].items()}

    def evaluated(self, run: Path) -> bool:
        """Return whether a run has been evaluated on the data that is there now, wherever it was then."""
        results = self.results(run)
        if results is None or not results.is_file():
            return False
        data = json.loads(results.read_text()).get("data", {})
        return {task: sorted(files.values()) for task, files in data.items()} == self.content

    def command(self, run: Path, quiet: bool) -> list[str]:
        """Return the command that evaluates a run."""
        results = self.results(run)
        assert results is not None
        words = ["--model", str(run / "model"), "--tasks", ",".join(self.tasks), "--data", self.data, "--json"]
        words += ["--output", str(results.parent), "--allow-missing", *(["--quiet"] if quiet else [])]
        words += ["--protocol", self.protocol] if self.protocol != "full" else []
        return [sys.executable, "-m", "clearspan.eval", *words]

    def scores(self, results: Path) -> Scores:
        """Return a run's scores in percent, the chosen one first. An average over some of its tasks is named so.

        Raises:
            ValueError: the file is not a results.json.
        """
        content = json.loads(results.read_text())
        tasks = {task: _numbers(metrics) for task, metrics in content.get("scores", {}).items()}
        task, slash, metric = self.score.rpartition("/")
        averages: dict[str, Any] = {}
        scores: Scores = {}
        if slash:
            scores = {self.score: tasks[task][metric]} if metric in tasks.get(task, {}) else {}
        elif self.score and (mean := average(self.score, tasks, least=1)):
            averages = {self.score: mean}
        for name, mean in {**averages, **content["averages"]}.items():
            if mean["value"] is not None:
                scores[f"{name}{INCOMPLETE if mean.get('missing') else ''}"] = float(mean["value"])
        return scores


def scoring(options: Sweep, grid: Grid) -> Scoring:
    """Return the evaluation that a command line and its sweep choose. With --tasks the sweep's score does not apply.

    Raises:
        RecipeError: an option has no effect, or a task or score is unknown.
    """
    chosen = tuple(dict.fromkeys(word.strip() for word in options.tasks.split(",") if word.strip()))
    tasks = chosen or (grid.tasks if options.data else ())
    score = options.score or ("" if chosen else grid.score)
    unknown = next((word for word in (*chosen, *grid.tasks) if word not in FAMILIES and not is_spec(word)), "")
    known = [*AVERAGES, *HALVES]
    refuse(
        (bool(options.data) and not tasks, "--data has no effect without --tasks"),
        (bool(chosen) and not options.data, "--tasks needs --data DIR"),
        (bool(options.score) and not tasks, "--score needs --tasks LIST and --data DIR"),
        (options.protocol != "full" and not tasks, f"--protocol {options.protocol} has no effect without --tasks"),
        (bool(unknown), f"unknown task {unknown!r}: choose from {one_of(unknown, FAMILIES)}"),
        (
            bool(score) and "/" not in score and score not in known,
            f"unknown score {score!r}: give TASK/METRIC, or one of {one_of(score, known)}",
        ),
    )
    return Scoring(tasks, options.data, options.protocol, score)


def missing(evaluation: Scoring) -> str:
    """Return a line about missing data, or "".

    Raises:
        RecipeError: there is no data at all, none of the score's tasks has data, or a file is malformed.
    """
    try:
        available, without = evaluation.available
    except PluginError as error:
        raise RecipeError(f"--tasks: {error}") from None
    except DataError as error:
        raise RecipeError(f"--data: {error}") from None
    wanted = _tasks_of(evaluation.score)
    scored = [task for task in available if not wanted or task in wanted]
    if evaluation.tasks and not scored:
        subject = f"the score {evaluation.score}" if available else f"the tasks {', '.join(evaluation.tasks)}"
        raise RecipeError(f"--data {evaluation.data}: holds no data of {subject}; see `clearspan data check DIR`")
    absent = [task for task in wanted or without if task not in available]
    if not absent or not evaluation.tasks:
        return ""
    no_data = f"--data {evaluation.data}: no data of {', '.join(absent)}"
    if not wanted:
        return no_data
    coverage = f"{evaluation.score} is over {len(scored)} of {len(wanted)} tasks"
    return f"{no_data}: {coverage}, and not comparable with the paper's"


def _tasks_of(score: str) -> list[str]:
    """Return the tasks that a score averages; [] for no score."""
    if "/" in score:
        return [score.rpartition("/")[0]]
    halves = HALVES.get(score, (score,) if score else ())
    return [task for half in halves for task in AVERAGES[half].metrics]


def _numbers(metrics: Mapping[str, Any]) -> Scores:
    """Return the metrics that are defined; JSON has null for the others."""
    return {name: float(value) for name, value in metrics.items() if value is not None}
