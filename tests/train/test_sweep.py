"""Sweeps: what is started, what is skipped, what is refused; and the table of what was found."""

import csv
import functools
import hashlib
import json
import math
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import psutil
import pytest

from clearspan.common.checksummed_folder import write_manifest
from clearspan.common.plain_json import from_json, to_json
from clearspan.common.spawned import CommandError
from clearspan.eval.__main__ import Evaluate
from clearspan.eval.results import Results
from clearspan.train import run_folder, sweep
from clearspan.train.config.options import Recipe, RecipeError
from clearspan.train.engine.checkpoint import Checkpoints
from clearspan.train.recipe import load_recipe
from clearspan.train.request import LauncherOptions, TrainOptions
from clearspan.train.sweeps import report, running
from tests.conftest import ROOT, exit_code
from tests.train.ranks import environment
from tests.train.test_grid import ANCHORS

GRID = ["--grid", f"{ANCHORS}=1,2", "--grid", "objectives.spans.temperature=0.05,0.5"]
NAMES = [f"num_anchors={a},temperature={t}" for a in (1, 2) for t in (0.05, 0.5)]


class Processes:
    """Stands for `call`: notes the commands, and leaves what a training or an evaluation leaves."""

    def __init__(self) -> None:
        self.trained: list[str] = []
        self.commands: list[TrainOptions | Evaluate] = []
        self.launchers: list[object] = []
        self.fails = self.stops = ""

    def __call__(self, _: str, command: TrainOptions | Evaluate, *more: object, **__: object) -> None:
        self.launchers += more
        self.commands.append(from_json(type(command), to_json(command)))
        if isinstance(command, Evaluate):
            (out := command.output).mkdir(parents=True)
            averages = {"sts_simcse": {"value": 50.0, "missing": ["STS13"]}, "transfer_simcse": {"value": None}}
            scores = {"TREC": {"devacc": 70.0}, "MRPC": {"devacc": math.nan}}
            (out / "examples.npz").write_bytes(examples := b"of each score")
            made = Results("m", scores=scores, averages=averages, examples=hashlib.sha256(examples).hexdigest())
            (out / "results.json").write_text(made.to_json())
            return
        recipe = load_recipe("demo", command.overrides)
        run = Path(recipe.output)
        self.trained.append(run.name)
        run_folder.save(recipe)
        (run / "checkpoints" / "step-00000003").mkdir(parents=True, exist_ok=True)
        if run.name == self.stops:
            raise KeyboardInterrupt
        if run.name == self.fails:
            raise CommandError("the loss exploded", 1)
        logged = {"step": 3, "loss": 2.0 + run.name.count("=2"), "spans/loss": 1.5, "tokens": 9}
        (run / "metrics.jsonl").write_text(json.dumps(logged) + "\n")
        (run / "model").mkdir(exist_ok=True)
        write_manifest(run / "model", "model")
        run_folder.mark_finished(run)


@pytest.fixture
def processes(monkeypatch: pytest.MonkeyPatch) -> Processes:
    made = Processes()
    monkeypatch.setattr(running, "call", made)
    return made


@pytest.fixture
def base(dataset_folder: Path) -> list[str]:
    return [*GRID, "--recipe", "demo", f"data.text.path={dataset_folder}", "training.max_steps=3"]


def table(output: Path) -> list[dict[str, str]]:
    return list(csv.DictReader((output / "table.csv").open()))


def test_every_combination_is_a_run_and_a_row(processes: Processes, base: list[str], tmp_path: Path) -> None:
    assert sweep.main([*base, "--output", str(tmp_path), "--launcher-options", "--num_gpus 2 --master_port 29501"]) == 0
    assert processes.trained == NAMES
    keys = (f"{ANCHORS}=1", "objectives.spans.temperature=0.5", f"output={tmp_path / NAMES[1]}")
    assert processes.commands[1] == TrainOptions(recipe="demo", overrides=(*base[6:], *keys))
    assert processes.launchers[1] == LauncherOptions(num_gpus=2, master_port=29501)
    rows = table(tmp_path)
    assert list(rows[0]) == ["run", ANCHORS, "objectives.spans.temperature", "loss", "spans/loss"]
    assert [(row["run"], row["loss"]) for row in rows] == list(zip(NAMES, ["2.0", "2.0", "3.0", "3.0"], strict=True))


def test_a_stopped_sweep_says_so_and_continues_with_what_is_missing(
    processes: Processes, base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*base, "--output", str(tmp_path)]
    processes.stops = NAMES[1]
    assert sweep.main(given) == 130
    assert capsys.readouterr().err == "sweep: stopped: run the same command again to continue\n"
    assert processes.trained == NAMES[:2] and not (tmp_path / "table.csv").exists()
    processes.stops = ""
    assert sweep.main(given) == 0 and processes.trained[2:] == NAMES[1:]
    assert [command.resume for command in processes.commands[2:]] == [True, False, False]  # type: ignore[union-attr]
    given[1] = f"{ANCHORS}=1,2,3"
    assert sweep.main(given) == 0 and len(table(tmp_path)) == 6
    assert processes.trained[5:] == ["num_anchors=3,temperature=0.05", "num_anchors=3,temperature=0.5"]


def test_a_run_that_fails_is_named_and_the_others_continue(
    processes: Processes, base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    processes.fails = NAMES[0]
    assert sweep.main([*base, "--output", str(tmp_path)]) == 1 and processes.trained == NAMES
    assert capsys.readouterr().err.splitlines()[-1] == f"sweep: 1 of 4 runs failed: {NAMES[0]}: the loss exploded"
    assert [row["loss"] for row in table(tmp_path)] == ["", "2.0", "3.0", "3.0"]


def test_the_result_of_a_sweep_holds_its_table_and_what_failed(
    processes: Processes, base: list[str], tmp_path: Path
) -> None:
    processes.fails = NAMES[0]
    result = sweep.SweepCommand.parsed([*base, "--output", str(tmp_path)]).run()
    assert isinstance(result, running.SweepResult) and [row[0] for row in result.rows] == ["run", *NAMES]
    assert result.failure == f"1 of 4 runs failed: {NAMES[0]}: the loss exploded"
    assert str(result).endswith(f"{result.table}; report: {result.page}") and result.table.is_file()


def test_runs_at_once_are_side_by_side_and_quiet_and_one_that_fails_is_named(
    processes: Processes,
    base: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    two = threading.Barrier(2, timeout=20)

    def call(function: str, command: TrainOptions, *more: object, **_: object) -> None:
        two.wait()
        processes(function, command, *more)

    monkeypatch.setattr(running, "call", call)
    processes.fails = NAMES[2]
    assert sweep.main([*base, "--output", str(tmp_path), "--at-once", "2"]) == 1
    assert sorted(processes.trained) == sorted(NAMES) and all(command.quiet for command in processes.commands)
    assert [(row["run"], row["loss"]) for row in table(tmp_path)] == list(
        zip(NAMES, ["2.0", "2.0", "", "3.0"], strict=True)
    )
    assert capsys.readouterr().err.splitlines()[-1] == f"sweep: 1 of 4 runs failed: {NAMES[2]}: the loss exploded"


def test_parts_train_every_run_once_and_the_whole_command_writes_their_table(
    processes: Processes, base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*base, "--output", str(tmp_path)]
    for part, names in (("2/3", NAMES[1:2]), ("1/3", [NAMES[0], NAMES[3]]), ("3/3", NAMES[2:3])):
        assert sweep.main([*given, "--part", part]) == 0 and processes.trained == names
        said = f"part {part}: {len(names)} of 4 runs; without --part, the command writes {tmp_path / 'table.csv'}"
        assert capsys.readouterr().out.splitlines()[-1] == said
        assert not (tmp_path / "table.csv").exists() and not (tmp_path / "report.html").exists()
        processes.trained.clear()
    assert sweep.main(given) == 0 and not processes.trained
    assert [row["run"] for row in table(tmp_path)] == NAMES


@pytest.mark.parametrize("part", ["0/3", "4/3", "3", "1/0", "/2", "a/2", "1/2/3", "-1/2"])
def test_a_part_that_is_none_is_refused(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str
) -> None:
    assert exit_code(sweep.main, *base, "--output", str(tmp_path / "out"), f"--part={part}") == 2
    error = capsys.readouterr().err
    assert f"sweep: --part {part}: give K/N with K from 1 to N, e.g. 2/4" in error and error.count("\n") == 1


def test_more_parts_than_runs_are_refused(base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sweep.main([*base, "--output", str(tmp_path / "out"), "--part", "5/5"]) == 2
    assert capsys.readouterr().err == "sweep: --part 5/5: the grid has 4 runs: give as many parts at most\n"


def test_parts_share_the_folder_with_each_other_and_not_with_the_whole_sweep(
    processes: Processes,
    base: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*base, "--output", str(tmp_path)]

    def call(*arguments: object, **options: object) -> None:
        monkeypatch.setattr(running, "call", processes)
        assert sweep.main([*given, "--part", "2/2"]) == 0 and sweep.main(given) == 1
        processes(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(running, "call", call)
    assert sweep.main([*given, "--part", "1/2"]) == 0 and len(processes.trained) == 4
    assert f"{tmp_path}: another run is writing to this folder" in capsys.readouterr().err


@pytest.mark.guarantee("output-kept")
def test_a_folder_with_other_runs_or_files_is_refused(
    processes: Processes, base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*base, "--output", str(tmp_path)]
    assert sweep.main(given) == 0
    assert sweep.main([*given, "optimizer.learning_rate=0.5"]) == 2
    assert "the run in it has another optimizer.learning_rate" in capsys.readouterr().err
    for mine in ("mine", "run,score\nthe one of June,71.2\n", ""):
        (tmp_path / "table.csv").write_text(mine)
        assert sweep.main(given) == 2 and "was not written by a sweep" in capsys.readouterr().err
        assert (tmp_path / "table.csv").read_text() == mine
    assert len(processes.trained) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["output=x"], "each run has its own folder"),
        ([f"{ANCHORS}=3"], "the grid varies it too"),
        (["--tasks", "sts"], "--tasks and --data go together"),
        (["--data", "senteval"], "--tasks and --data go together"),
        (["--tasks", "stss", "--data", "senteval"], "unknown task 'stss'; choose from sts, transfer"),
        (["--tasks", "sts", "--data", "no-such-folder"], "no-such-folder: holds no data of the tasks sts"),
        (["--protocol", "fast"], "--protocol fast has no effect without --tasks"),
        (["objectives.spans.temperatur=1"], r"num_anchors=1,temperature=0.05: .*unknown key"),
        (["declutr-figure-2", "declutr-figure-3"], "name one sweep"),
        (["declutr-figure-9"], "no sweep 'declutr-figure-9'"),
    ],
)
def test_what_cannot_work_is_one_line_and_exit_2(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert sweep.main([*base, *words, "--output", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and not (tmp_path / "out").exists()
    assert re.search(said, error), error


def test_a_dry_run_lists_the_runs_and_writes_nothing(
    base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep.main([*base, "--output", str(tmp_path / "out"), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert "4 runs of demo" in printed and all(name in printed for name in NAMES) and printed.count(" new") == 4
    assert not (tmp_path / "out").exists()


@pytest.mark.guarantee("output-kept")
@pytest.mark.slow
def test_finished_runs_are_scored_once_by_the_chosen_score_first(
    processes: Processes, base: list[str], shared_data: Path, tmp_path: Path
) -> None:
    """Two tasks are fewer than the nine of which `clearspan eval` gives this average; a run trained anew is scored
    anew.
    """
    shutil.copytree(shared_data / "senteval" / "downstream" / "TREC", tmp_path / "data" / "downstream" / "TREC")
    (tmp_path / "own.yaml").write_text("grid: []\ntasks: [transfer]\nscore: downstream_declutr_dev\n")
    given = [*base, str(tmp_path / "own.yaml"), "--data", str(tmp_path / "data"), "--output", str(tmp_path / "out")]
    for _ in range(2):
        assert sweep.main(given) == 0 and len(processes.commands) == 8
    assert processes.commands[1].allow_missing  # type: ignore[union-attr]
    columns = list(table(tmp_path / "out")[0].items())[3:]
    assert columns == [("downstream_declutr_dev, incomplete", "70.0"), ("sts_simcse, incomplete", "50.0")]
    (tmp_path / "out" / NAMES[1] / "eval" / "notes.txt").write_text("mine")
    for name in ("model", "checkpoints"):
        shutil.rmtree(tmp_path / "out" / NAMES[1] / name, ignore_errors=True)
    assert sweep.main(given) == 0
    assert [type(command) for command in processes.commands[8:]] == [TrainOptions, Evaluate]
    assert (tmp_path / "out" / NAMES[1] / "eval.earlier" / "notes.txt").read_text() == "mine"


@pytest.mark.guarantee("finished-work-checked")
@pytest.mark.slow
def test_damaged_scores_are_made_again_and_a_run_with_damaged_metrics_is_named(
    processes: Processes, base: list[str], shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(shared_data / "senteval" / "downstream" / "TREC", tmp_path / "data" / "downstream" / "TREC")
    output = tmp_path / "out"
    given = [*base, "--tasks", "transfer", "--data", str(tmp_path / "data"), "--output", str(output)]
    assert sweep.main(given) == 0 and len(processes.commands) == 8
    (scored,) = (output / NAMES[2]).rglob("results.json")
    scored.write_text(scored.read_text()[:-9])
    (scored.parent / "notes.txt").write_text("mine")
    capsys.readouterr()
    assert sweep.main(given) == 0 and len(processes.commands) == 9
    assert f"{scored}: not a results.json" in (said := capsys.readouterr().out) and "will be evaluated again" in said
    assert (scored.parent.with_name(f"{scored.parent.name}.damaged") / "notes.txt").read_text() == "mine"
    metrics = output / NAMES[1] / "metrics.jsonl"
    metrics.write_text(metrics.read_text().replace("1.5", "0.5"))
    assert sweep.main(given) == 1
    assert f"{metrics}: missing or changed since the run ended" in capsys.readouterr().err.splitlines()[-1]


def report_of(folder: Path) -> str:
    return (folder / "report.html").read_text("utf-8")


@pytest.mark.guarantee("losses-not-ranked")
def test_losses_of_other_batch_sizes_are_not_ranked_and_the_remedy_is_said_before_and_after(
    processes: Processes, base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--grid", "data.text.batch_size=8,16", *base[4:], "--output", str(tmp_path)]
    said = (
        "losses of other data.text.batch_size (8, 16) cannot be compared (a contrastive loss depends on the number of "
        "in-batch negatives): rank by a score: training.eval_data=heldout"
    )
    assert sweep.main([*given, "--dry-run"]) == 0 and f"note: {said}" in capsys.readouterr().out
    assert sweep.main(given) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"note: {said}") and f"Not ranked: {said}" in printed
    assert "loss " not in printed.splitlines()[3] and "lowest" not in printed, "no column of losses, no best run"
    page = report_of(tmp_path)
    assert "Not ranked: losses of other data.text.batch_size (8, 16)" in page and "<svg" not in page
    assert [row["loss"] for row in table(tmp_path)] == ["2.0", "2.0"], "the losses stay in the file"


@pytest.mark.guarantee("losses-not-ranked")
def test_gradient_accumulation_changes_the_number_of_negatives_and_the_learning_rate_does_not(base: list[str]) -> None:
    def recipes(*changes: str) -> dict[str, Recipe]:
        return {change: load_recipe("demo", [*base[6:], "output=x", *change.split()]) for change in changes}

    halves = recipes("data.text.batch_size=16", "training.gradient_accumulation_steps=2 data.text.batch_size=16")
    assert "data.text.batch_size (16, 8)" in report.ranking(halves, ["loss"]).reason
    cached = "data.text.batch_size=16 training.gradient_accumulation_steps=2 training.gradient_caching=true"
    assert report.ranking(recipes("data.text.batch_size=16", cached), ["loss"]).figure == "loss"
    rates = recipes("optimizer.learning_rate=1e-4", "optimizer.learning_rate=1e-5")
    assert report.ranking(rates, ["loss"]) == report.Ranking("loss")
    colder = recipes("objectives.spans.temperature=0.05", "objectives.spans.temperature=0.5")
    assert report.ranking(colder, ["loss"]).reason.startswith(
        "losses of other objectives.spans.temperature (0.05, 0.5)"
    )
    assert report.ranking(halves, ["dev_score", "loss"]).figure == "dev_score"


def test_the_report_ranks_runs_by_their_score_with_bars_curves_and_what_bettered_nothing(tmp_path: Path) -> None:
    scores = {"a": [60.0, 62.0, 64.5], "b": [60.0, 59.0, 58.0]}
    for name, values in scores.items():
        (tmp_path / name).mkdir()
        lines = [json.dumps({"step": 10 * i, "dev_score": value}) for i, value in enumerate(values)]
        (tmp_path / name / "metrics.jsonl").write_text("\n".join(lines))
    by_run = {"b": {"dev_score": "60.0"}, "a": {"dev_score": "64.5"}}
    ranked = report.Ranking("dev_score")
    assert report.sentence(ranked, by_run) == "a has the highest dev_score, 64.5; then b with 60."
    assert report.lines(ranked, by_run, tmp_path, 100)[-1] == "b: no step was better than the start, which is exported"
    report.write(tmp_path, [["run", "dev_score"], ["b", "60.0"], ["a", "64.5"]], ranked, by_run)
    page = report_of(tmp_path)
    assert page.index("a has the highest dev_score") < page.index(">64.50<") < page.index(">60.00<")
    assert "best 64.50 at step 20" in page and "b: no step was better than the start, which is exported" in page


@pytest.mark.guarantee("output-kept")
def test_a_report_that_no_sweep_wrote_stays(
    processes: Processes, base: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "report.html").write_text("mine")
    assert sweep.main([*base, "--output", str(tmp_path)]) == 2
    assert "was not written by a sweep" in capsys.readouterr().err and report_of(tmp_path) == "mine"
    (tmp_path / "report.html").unlink()
    for name in ("report.html", running.TABLE):
        path = tmp_path / name
        for put in (lambda path: path.symlink_to(tmp_path / "drive" / path.name), Path.mkdir):
            put(path)
            assert sweep.main([*base, "--output", str(tmp_path)]) == 2
            assert f"{path}: was not written by a sweep" in capsys.readouterr().err
            path.unlink() if path.is_symlink() else path.rmdir()


def test_without_an_evaluation_the_best_dev_score_counts(tmp_path: Path) -> None:
    lines = [{"step": 1, "loss": 3.0}, {"step": 1, "dev_score": 61.5}, {"step": 2, "dev_score": 60.0}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step"')
    assert running.scores_of(tmp_path, tmp_path / "none.json", "") == {"dev_score": 61.5}
    (tmp_path / "metrics.jsonl").write_text("")
    with pytest.raises(RecipeError, match="missing or holds no step"):
        running.scores_of(tmp_path, tmp_path / "none.json", "")


@pytest.mark.exhaustive
def test_a_sweep_that_is_interrupted_saves_and_continues(tiny: list[str], tmp_path: Path) -> None:
    """The command itself, with the launcher below it: signaled when it has trained for a while."""
    words = ["--recipe", "demo", *tiny, "training.max_steps=60", "--grid", "training.seed=1,2"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}

    def started() -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "train.sweep", *words, "--output", str(tmp_path / "out")]
        # A process in a shell's background begins with SIGINT ignored, and so would its children.
        heeding = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        return subprocess.Popen(command, cwd=ROOT, env=environment(), preexec_fn=heeding, **pipes)

    process = started()
    assert process.stdout is not None
    printed = next((line for line in process.stdout if "step 20/60" in line), "")
    assert printed, process.communicate()[1]
    below = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=200)
    assert process.returncode == 130 and "Traceback" not in err and "stopped and saved at step" in out
    assert err.splitlines()[-1] == "sweep: stopped: run the same command again to continue"
    assert Checkpoints(tmp_path / "out" / "seed=1").last() and not (tmp_path / "out" / "seed=2").exists()
    assert len(below) >= 3 and not any(each.is_running() for each in below)
    process = started()
    assert process.communicate(timeout=200)[1] == "" and process.returncode == 0
    assert len({row["loss"] for row in table(tmp_path / "out")}) == 2
