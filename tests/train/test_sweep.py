"""Sweeps: what is started, what is skipped, what is refused; and the table of what was found."""

import csv
import dataclasses
import json
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from clearspan.common.options import parse
from clearspan.train import sweep
from clearspan.train.config.recipe import load, to_file
from clearspan.train.engine.checkpoint import Checkpoints
from clearspan.train.export import WEIGHTS
from clearspan.train.options import RecipeError
from clearspan.train.run_folder import write_inputs
from clearspan.train.sweeps import report, running
from clearspan.train.sweeps.grid import Run
from clearspan.train.sweeps.options import Sweep
from clearspan.train.sweeps.scores import Scoring
from tests.conftest import ROOT
from tests.train.conftest import write_dataset
from tests.train.ranks import environment, train_alone
from tests.train.test_grid import ANCHORS

TEMPERATURES = "objectives.spans.temperature=0.05,0.5"
NAMES = [f"num_anchors={a},temperature={t}" for a in (1, 2) for t in (0.05, 0.5)]
BASE = ["--recipe", "demo", "data.text.path=shards", "training.max_steps=3"]


def options(output: Path, *words: str) -> Sweep:
    """Of a sweep of four runs."""
    given = ["--grid", f"{ANCHORS}=1,2", "--grid", TEMPERATURES, *BASE, *words, "--output", str(output)]
    return parse(Sweep, given)


def output_of(command: list[str]) -> Path:
    return Path(next(word.removeprefix("output=") for word in command if word.startswith("output=")))


class Started:
    """Stands for the processes: notes what is started, and leaves what a training or an evaluation leaves."""

    def __init__(self, fails: str = "", stops: str = "") -> None:
        self.commands: list[list[str]] = []
        self.fails, self.stops, self.signal = fails, stops, ""

    def __call__(self, command: list[str], silent: bool) -> int:
        self.commands.append(command)
        if command[2] == "clearspan.eval":
            out = Path(command[command.index("--output") + 1])
            out.mkdir(parents=True, exist_ok=True)
            averages = {"sts": {"value": 50.0 + len(str(out.parents[1])) % 2, "tasks": ["STS12"], "missing": []}}
            words = command[command.index("--tasks") + 1].split(",")
            content = Scoring(tuple(words), command[command.index("--data") + 1]).content
            data = {task: {f"a/{number}": sha256 for number, sha256 in enumerate(content[task])} for task in content}
            (out / "results.json").write_text(json.dumps({"averages": averages, "data": data}))
            return 0
        run = output_of(command)
        (run / "checkpoints" / "step-00000003").mkdir(parents=True, exist_ok=True)
        overrides = [word for word in command[5:] if "=" in word and not word.startswith("-")]
        (run / "recipe.yaml").write_bytes(to_file(load("demo", overrides)))
        if run.name == self.fails:
            return 1
        if run.name == self.stops:
            self.signal = "SIGINT"
            return 0
        (run / "model").mkdir()
        (run / "model" / WEIGHTS).touch()
        line = {"step": 3, "loss": 2.0 + run.name.count("=2"), "spans/loss": 1.5}
        (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
        return 0

    @property
    def trained(self) -> list[str]:
        return [output_of(command).name for command in self.commands if command[2] == "clearspan.train"]


def done(given: Sweep, start: Started) -> int:
    given.output.mkdir(exist_ok=True)
    return running.sweep(given, running.planned(given), start, lambda: start.signal)


def test_every_combination_is_a_run_through_the_launcher(tmp_path: Path) -> None:
    start = Started()
    assert done(options(tmp_path / "out", "--launcher-options", "--num_gpus 2 --master_port 29501"), start) == 0
    assert start.trained == NAMES
    assert start.commands[1] == [
        *(sys.executable, "-m", "clearspan.train", "--num_gpus", "2", "--master_port", "29501"),
        *("--recipe", "demo", "data.text.path=shards", "training.max_steps=3", f"{ANCHORS}=1"),
        *("objectives.spans.temperature=0.5", f"output={tmp_path / 'out' / NAMES[1]}"),
    ]


@pytest.mark.slow
def test_finished_runs_are_skipped_and_halted_ones_resume(tmp_path: Path) -> None:
    stopped = Started(stops=NAMES[1])
    assert done(options(tmp_path), stopped) == 1 and stopped.trained == NAMES[:2]
    again = Started()
    assert done(options(tmp_path), again) == 0 and again.trained == NAMES[1:]
    assert ["--resume" in command for command in again.commands] == [True, False, False]
    nothing = Started()
    assert done(options(tmp_path), nothing) == 0 and not nothing.commands


def test_a_later_run_says_how_long_the_runs_that_are_left_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    now = [0.0]
    monkeypatch.setattr(running, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    started = Started()

    def start(command: list[str], silent: bool) -> int:
        now[0] += 100
        return started(command, silent)

    given = options(tmp_path)
    running.sweep(given, running.planned(given), start, lambda: "")
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run ")]
    rests = ["", "; about 5.0 min for 3 runs", "; about 3.3 min for 2 runs", "; about 100 s for 1 run"]
    names = zip(range(1, 5), NAMES, rests, strict=True)
    assert lines == [f"run {number} of 4, new: {name}{rest}" for number, name, rest in names]


def test_a_sweep_that_is_stopped_says_so_in_one_line_and_starts_nothing_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert done(options(tmp_path), Started(stops=NAMES[1])) == 1
    assert capsys.readouterr().err == ("sweep: stopped by SIGINT: 1 of 4 runs are done; the same command continues\n")
    assert not (tmp_path / "table.csv").exists()


def test_a_run_that_fails_is_named_and_the_others_go_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start = Started(fails=NAMES[0])
    assert done(options(tmp_path), start) == 1 and start.trained == NAMES
    said = capsys.readouterr()
    assert f"1 of 4 runs failed: {NAMES[0]}: training ended with exit code 1" in said.err.splitlines()[-1]
    assert "without a score" in said.out
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert [row["loss"] for row in rows][:2] == ["", "2.0"]


@pytest.mark.slow
def test_a_changed_grid_adds_runs(tmp_path: Path) -> None:
    done(options(tmp_path), Started())
    more = Started()
    wider = dataclasses.replace(options(tmp_path), grid=(f"{ANCHORS}=1,2,3", TEMPERATURES))
    assert done(wider, more) == 0
    assert more.trained == ["num_anchors=3,temperature=0.05", "num_anchors=3,temperature=0.5"]
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 1 + 6


def test_a_changed_recipe_is_refused_with_what_differs(tmp_path: Path) -> None:
    done(options(tmp_path), Started())
    with pytest.raises(RecipeError, match=r"its run has another optimizer\.learning_rate; see .*another --output"):
        running.planned(options(tmp_path, "optimizer.learning_rate=0.5"))


def test_options_that_a_run_filled_in_itself_are_no_other_recipe(tmp_path: Path) -> None:
    """A run's recipe states a modality's options; the command need not."""
    done(options(tmp_path), Started())
    saved = tmp_path / NAMES[0] / "recipe.yaml"
    recipe = load(str(saved))
    recipe.data["text"].modality = {"size": 224}
    saved.write_bytes(to_file(recipe))
    assert len(running.planned(options(tmp_path)).runs) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["output=x"], "each run has its own folder"),
        ([f"{ANCHORS}=3"], "the grid varies it too"),
        (["--tasks", "sts"], "--tasks needs --data"),
        (["--data", "senteval"], "--data has no effect without --tasks"),
        (["--tasks", "stss", "--data", "senteval"], "unknown task 'stss': choose from sts, transfer"),
        (["--tasks", "sts", "--data", "no-such-folder"], "no-such-folder: holds no data of the tasks sts"),
        (
            ["--tasks", "sts", "--data", "d", "--score", "sts"],
            "unknown score 'sts': give TASK/METRIC, or one of sts_simcse",
        ),
        (["--score", "sts_simcse"], "--score needs --tasks LIST and --data DIR"),
        (["objectives.spans.temperatur=1"], r"num_anchors=1,temperature=0.05: .*unknown key"),
        (["declutr-figure-2", "declutr-figure-3"], "name one sweep"),
        (["--grid", "recipe=demo,declutr-base"], "--recipe demo has no effect: the grid varies recipe"),
        (["declutr-figure-9"], "no sweep 'declutr-figure-9'"),
        (["--by", "optimizer.eps"], "'optimizer.eps' is not the first key of an axis"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    given = ["--grid", f"{ANCHORS}=1,2", "--grid", TEMPERATURES, *BASE, *words, "--output", str(tmp_path / "out")]
    assert sweep.main(given) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and not (tmp_path / "out").exists()
    assert re.search(said, error), error


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "table.csv").write_text("mine")
    with pytest.raises(RecipeError, match=r"holds files of something else \(table.csv\)"):
        running.planned(options(tmp_path))


def test_a_dry_run_lists_the_runs_and_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--grid", f"{ANCHORS}=1,2", "--grid", TEMPERATURES, *BASE, "--output", str(tmp_path / "out"), "--dry-run"]
    assert sweep.main(given) == 0
    printed = capsys.readouterr().out
    assert "4 runs of demo" in printed and all(name in printed for name in NAMES) and printed.count(" new") == 4
    assert not (tmp_path / "out").exists()


@pytest.mark.exhaustive
def test_tasks_are_scored_by_a_process_each_and_once(shared_data: Path, tmp_path: Path) -> None:
    """And again when the data has changed: an edited file, or a task that was missing; not when it has moved."""
    data, runs = tmp_path / "senteval", tmp_path / "runs"
    copy_task(shared_data, data, "TREC")
    words = ["--tasks", "transfer,sts", "--data", str(data)]
    start = Started()
    assert done(options(runs, *words), start) == 0
    scored = [command for command in start.commands if command[2] == "clearspan.eval"]
    model, out = str(runs / NAMES[0] / "model"), str(runs / NAMES[0] / "eval" / "sts+transfer")
    asked = ["--model", model, "--tasks", "transfer,sts", "--data", str(data), "--json", "--output", out]
    assert len(scored) == 4 and scored[0] == [sys.executable, "-m", "clearspan.eval", *asked, "--allow-missing"]

    def scored_again(folder: Path) -> int:
        again = Started()
        assert done(options(runs, *words[:-1], str(folder)), again) == 0 and not again.trained
        return len(again.commands)

    moved = data.rename(tmp_path / "moved")
    assert scored_again(moved) == 0
    copy_task(shared_data, moved, "MRPC")
    assert scored_again(moved) == 4 and scored_again(moved) == 0
    lines = (moved / "downstream" / "TREC" / "TREC_10.label").read_bytes().splitlines(keepends=True)
    (moved / "downstream" / "TREC" / "TREC_10.label").write_bytes(b"".join(lines[::-1]))
    assert scored_again(moved) == 4
    header, *rows = csv.reader((runs / "table.csv").open())
    assert header[-1] == "sts" and all(float(row[-1]) >= 50 for row in rows)


def copy_task(shared_data: Path, data: Path, task: str) -> None:
    shutil.copytree(shared_data / "senteval" / "downstream" / task, data / "downstream" / task)


@pytest.mark.slow
def test_a_run_that_is_trained_anew_is_scored_anew(shared_data: Path, tmp_path: Path) -> None:
    copy_task(shared_data, tmp_path / "senteval", "TREC")
    given = options(tmp_path / "runs", "--tasks", "transfer", "--data", str(tmp_path / "senteval"))
    assert done(given, Started()) == 0
    for name in ("model", "checkpoints"):
        shutil.rmtree(tmp_path / "runs" / NAMES[1] / name)
    again = Started()
    assert done(given, again) == 0
    assert [command[2] for command in again.commands] == ["clearspan.train", "clearspan.eval"]


@pytest.mark.slow
def test_a_run_on_data_that_has_changed_since_is_refused(
    documents: list[list[int]], tokenizer_folder: Path, tmp_path: Path
) -> None:
    """Beside it, runs on the new data would be compared with it."""
    shards = write_dataset(tmp_path / "shards", documents[:20], tokenizer_folder)
    given = options(tmp_path / "runs")
    words = tuple(f"data.text.path={shards}" if "data.text.path" in word else word for word in given.words)
    given = dataclasses.replace(given, words=words)
    assert done(given, Started()) == 0
    folder = tmp_path / "runs" / NAMES[0]
    write_inputs(load("demo", [*given.words, f"output={folder}"]), finished=True)
    assert len(running.planned(given).runs) == 4
    shutil.rmtree(shards)
    assert len(running.planned(given).runs) == 4, "finished runs need no data"
    write_dataset(shards, documents[:21], tokenizer_folder)
    with pytest.raises(RecipeError, match=r"its run read another data\.text\.path than is there now: put it back"):
        running.planned(given)


def write_metrics(run: Path, *lines: dict) -> Path:
    run.mkdir(exist_ok=True)
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return run


def test_the_score_is_the_best_on_the_dev_set_or_else_the_last_losses(tmp_path: Path) -> None:
    losses = [{"step": step, "loss": 3.0 / step, "mlm/loss": 2.0 / step, "tokens": 9} for step in (1, 2)]
    run = write_metrics(tmp_path / "run", *losses)
    assert report.scores(run) == {"loss": 1.5, "mlm/loss": 1.0}
    write_metrics(run, losses[0], {"step": 1, "dev_score": 61.5}, losses[1], {"step": 2, "dev_score": 60.0})
    assert report.scores(run) == {"dev_score": 61.5}


def test_an_average_that_lacks_tasks_says_so(tmp_path: Path) -> None:
    averages = {"a": {"value": 70, "missing": []}, "b": {"value": 60, "missing": ["STS13"]}, "c": {"value": None}}
    results = tmp_path / "eval" / "sts" / "results.json"
    results.parent.mkdir(parents=True)
    results.write_text(json.dumps({"averages": averages}))
    assert report.scores(write_metrics(tmp_path), Scoring(("sts",), "d")) == {"a": 70.0, "b, incomplete": 60.0}


def test_the_figure_groups_runs_by_a_key_and_tells_another_apart_by_colour(tmp_path: Path) -> None:
    plan = running.planned(options(tmp_path, "--by", ANCHORS, "--color", "objectives.spans.temperature"))
    found = {run.name: {"loss": float(number)} for number, run in enumerate(plan.runs)}
    groups = report.grouped(plan.grid, ANCHORS, plan.runs, {name: one["loss"] for name, one in found.items()})
    assert groups == {"0.05": {0: [0.0], 1: [2.0]}, "0.5": {0: [1.0], 1: [3.0]}}
    (axes,) = report.draw(plan.grid, plan.runs, found).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("num_anchors", "loss")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["0.05", "0.5"]


def test_without_a_choice_the_figure_has_a_panel_of_every_axis(tmp_path: Path) -> None:
    plan = running.planned(options(tmp_path))
    figure = report.draw(plan.grid, plan.runs, {run.name: {"loss": 1.0} for run in plan.runs})
    assert [axes.get_xlabel() for axes in figure.axes] == ["num_anchors", "temperature"]


def test_a_recipe_that_does_not_vary_is_no_column() -> None:
    runs = [Run("a", {"recipe": "demo", "seed": "1"}), Run("b", {"recipe": "demo", "seed": "2"})]
    assert report.columns(runs) == ["seed"]


@pytest.mark.exhaustive
def test_a_sweep_of_four_killed_and_run_again_gives_the_same_table(tiny: list[str], tmp_path: Path) -> None:
    """Trainings are processes; the second one of the killed sweep ends at its second step."""

    def starting(killed: list[str]) -> Callable[[list[str], bool], int]:
        def start(command: list[str], silent: bool) -> int:
            run = output_of(command).name
            script = "tests/train/terminated_at.py" if run in killed else "train/run.py"
            trained = train_alone(*command[6:], script=script, at=2)
            assert trained.returncode == 0, trained.stderr
            signals.extend(["SIGTERM"] * (run in killed))
            return trained.returncode

        return start

    tables = {}
    for name in ("whole", "killed"):
        given = options(tmp_path / name, *tiny, "training.max_steps=3", "training.save_steps=100")
        given.output.mkdir()
        for killed in ([NAMES[1]], []) if name == "killed" else ([],):
            signals: list[str] = []
            code = running.sweep(given, running.planned(given), starting(killed), lambda: "".join(signals))  # noqa: B023
            assert code == len(killed)
        tables[name] = [(given.output / file).read_bytes() for file in ("table.csv", "sweep.json")]
        assert (given.output / "figure.png").stat().st_size > 1000
    assert tables["whole"] == tables["killed"]
    assert len({row["loss"] for row in json_rows(tables["whole"][1])}) == 4


def json_rows(content: bytes) -> list[dict[str, float]]:
    return [run["scores"] for run in json.loads(content)["runs"]]


@pytest.mark.exhaustive
def test_ctrl_c_reaches_the_ranks_of_the_run_which_saves(tiny: list[str], tmp_path: Path) -> None:
    """The command itself, with the launcher below it: signalled when a second epoch begins."""
    grid = ["--grid", "training.seed=1,2"]
    words = ["--recipe", "demo", *tiny, "training.max_steps=30000", *grid, "--output", str(tmp_path / "out")]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    command = [sys.executable, "-m", "train.sweep", *words]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(), **pipes)
    assert process.stdout is not None
    printed = next((line for line in process.stdout if "starts epoch" in line), "")
    assert printed, process.communicate()[1]
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 1
    assert err.splitlines()[-1] == "sweep: stopped by SIGINT: 0 of 2 runs are done; the same command continues"
    assert "Traceback" not in err and "stopped and saved at step" in out
    assert Checkpoints(tmp_path / "out" / "seed=1").last() and not (tmp_path / "out" / "seed=2").exists()
    assert len(below) >= 3 and not any(one.is_running() for one in below)
