"""What a sweep's runs are compared by: tasks of `python -m eval` on the data that is there, and the score that counts.

    a sweep's `tasks` and `score`, or --tasks and --score  +  --data DIR  ->  Scoring
    Scoring + a finished run  ->  RUN/eval/TASKS/results.json  ->  the score first, then the other averages

Without --data nothing is evaluated: runs are compared by their best dev score, or else by their last losses. A score
over a part of its tasks says so in its name, and which data lacks is told before anything is trained.
"""

import argparse
import dataclasses
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from clearspan.eval.files import DataError
from clearspan.eval.tables.averages import AVERAGES, HALVES, average
from clearspan.eval.tasks.registry import FAMILIES
from clearspan.train.options import RecipeError, one_of, refuse
from clearspan.train.sweeps.grid import Grid

Scores = dict[str, float]
"""By a score's name."""
INCOMPLETE = ", incomplete"


@dataclasses.dataclass(frozen=True)
class Scoring:
    """How runs are evaluated.

    Args:
        tasks: families of `python -m eval`; (): runs are not evaluated.
        data: their folder.
        protocol: full, the papers', or fast.
        score: an average of `eval.tables.averages`, or TASK/METRIC, which comes first; "": none does.
    """

    tasks: tuple[str, ...] = ()
    data: str = ""
    protocol: str = "full"
    score: str = ""

    def results(self, run: Path) -> Path | None:
        """Where a run's evaluation lies; None: it has none."""
        name = "+".join(sorted(self.tasks)) + ("" if self.protocol == "full" else f",{self.protocol}")
        return run / "eval" / name / "results.json" if self.tasks else None

    def evaluated(self, run: Path) -> bool:
        """Whether a run's evaluation is there, of this folder of data."""
        results = self.results(run)
        if results is None or not results.is_file():
            return False
        return json.loads(results.read_text())["environment"].get("data_path") == str(Path(self.data))

    def command(self, run: Path, quiet: bool) -> list[str]:
        """What evaluates a run."""
        results = self.results(run)
        assert results is not None
        words = ["--model", str(run / "model"), "--tasks", ",".join(self.tasks), "--data", self.data, "--json"]
        words += ["--output", str(results.parent), *(["--quiet"] if quiet else [])]
        words += ["--protocol", self.protocol] if self.protocol != "full" else []
        return [sys.executable, "-m", "clearspan.eval", *words]

    def scores(self, results: Path) -> Scores:
        """A run's figures, the one that counts first, in percent. An average over a part of its tasks is called so.

        Raises:
            ValueError: a results.json is not one.
        """
        content = json.loads(results.read_text())
        tasks = {task: _numbers(metrics) for task, metrics in content.get("scores", {}).items()}
        task, slash, metric = self.score.rpartition("/")
        averages: dict[str, Any] = {}
        found: Scores = {}
        if slash:
            found = {self.score: tasks[task][metric]} if metric in tasks.get(task, {}) else {}
        elif self.score and (of := average(self.score, tasks, least=1)):
            averages = {self.score: of}
        for name, of in {**averages, **content["averages"]}.items():
            if of["value"] is not None:
                found[f"{name}{INCOMPLETE if of.get('missing') else ''}"] = float(of["value"])
        return found


def scoring(options: argparse.Namespace, grid: Grid) -> Scoring:
    """What a command and its sweep ask for; the command's own tasks are scored as it says, and not as the sweep does.

    Raises:
        RecipeError: it cannot be.
    """
    given = tuple(dict.fromkeys(word.strip() for word in options.tasks.split(",") if word.strip()))
    tasks = given or (grid.tasks if options.data else ())
    score = options.score or ("" if given else grid.score)
    unknown = next((word for word in (*given, *grid.tasks) if word not in FAMILIES), "")
    known = [*AVERAGES, *HALVES]
    refuse(
        (bool(options.data) and not tasks, "--data has no effect without --tasks"),
        (bool(given) and not options.data, "--tasks needs --data DIR"),
        (bool(options.score) and not tasks, "--score needs --tasks LIST and --data DIR"),
        (options.protocol != "full" and not tasks, f"--protocol {options.protocol} has no effect without --tasks"),
        (bool(unknown), f"unknown task {unknown!r}: choose from {one_of(unknown, FAMILIES)}"),
        (
            bool(score) and "/" not in score and score not in known,
            f"unknown score {score!r}: give TASK/METRIC, or one of {one_of(score, known)}",
        ),
    )
    return Scoring(tasks, options.data, options.protocol, score)


def missing(how: Scoring) -> str:
    """What to say of data that is not there, in one line; "": all is.

    Raises:
        RecipeError: none of it is, or what the score is of is not, or a file is malformed.
    """
    there: list[str] = []
    lacking: dict[str, str] = {}
    try:
        for word in how.tasks:
            loaded = FAMILIES[word].load(Path(how.data))
            there += [task.name for task in loaded.tasks]
            lacking |= loaded.missing
    except DataError as error:
        raise RecipeError(f"--data: {error}") from None
    wanted = _tasks_of(how.score)
    scored = [task for task in there if not wanted or task in wanted]
    if how.tasks and not scored:
        of = f"the score {how.score}" if there else f"the tasks {', '.join(how.tasks)}"
        raise RecipeError(f"--data {how.data}: holds no data of {of}; see `python -m eval.data check DIR`")
    absent = [task for task in wanted or lacking if task not in there]
    if not absent or not how.tasks:
        return ""
    no_data = f"--data {how.data}: no data of {', '.join(absent)}"
    if not wanted:
        return no_data
    return f"{no_data}: {how.score} is over {len(scored)} of {len(wanted)} tasks, and not comparable with the paper's"


def _tasks_of(score: str) -> list[str]:
    """The tasks that a score is over."""
    if "/" in score:
        return [score.rpartition("/")[0]]
    halves = HALVES.get(score, (score,) if score else ())
    return [task for half in halves for task in AVERAGES[half].metrics]


def _numbers(metrics: Mapping[str, Any]) -> Scores:
    """Those that are defined: JSON has null for the others."""
    return {name: float(value) for name, value in metrics.items() if value is not None}
