"""What a sweep's runs are compared by: which figure comes first, and what is said of data that is not there."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clearspan.common.options import parse
from clearspan.eval.tables.averages import AVERAGES
from clearspan.train.options import RecipeError
from clearspan.train.sweeps import grid, report
from clearspan.train.sweeps.options import Sweep
from clearspan.train.sweeps.scores import Scoring, missing, scoring
from tests.processes import environment, run_commands
from tests.train.ranks import train_alone

DEV = "downstream_declutr_dev"


@pytest.fixture(scope="module")
def two_tasks(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SentEval's folder with TREC and MRPC alone."""
    folder = tmp_path_factory.mktemp("senteval")
    (folder / "downstream").mkdir()
    for task in ("TREC", "MRPC"):
        (folder / "downstream" / task).symlink_to(shared_data / "senteval" / "downstream" / task)
    return folder


def asked(*words: str, of: str = "declutr-figure-2") -> Scoring:
    """What a named sweep is scored by."""
    return scoring(parse(Sweep, [of, *words, "--output", "o"]), grid.read(of))


def left(run: Path, how: Scoring, scores: dict[str, dict[str, float | None]]) -> Path:
    """The results file of a run, with these figures."""
    results = how.results(run)
    assert results is not None
    results.parent.mkdir(parents=True)
    averages = {"transfer_simcse": {"value": 50.0, "missing": []}}
    results.write_text(json.dumps({"scores": scores, "averages": averages}))
    return results


@pytest.mark.parametrize("name", grid.names())
def test_a_papers_sweep_is_scored_as_its_figure_where_data_is_given(name: str) -> None:
    """By a dev average, or by GLUE's dev sets; without data by what the runs themselves have."""
    how = asked("--data", "d", of=name)
    assert how.score.endswith("_dev") or how.score == "glue_clear"
    assert AVERAGES[how.score] and how.tasks
    assert asked(of=name).tasks == ()


def test_tasks_of_ones_own_are_not_scored_as_the_sweeps() -> None:
    how = asked("--data", "d", "--tasks", "sts", "--protocol", "fast")
    assert (how.tasks, how.score, how.protocol) == (("sts",), "", "fast")
    assert how.results(Path("run")) == Path("run/eval/sts,fast/results.json")
    assert asked("--data", "d", "--score", "TREC/devacc").score == "TREC/devacc"


def test_the_score_comes_first_and_says_that_tasks_lack(tmp_path: Path) -> None:
    """Two tasks are fewer than the nine of which `python -m eval` gives this average."""
    how = Scoring(("transfer",), "d", score=DEV)
    results = left(tmp_path, how, {"TREC": {"devacc": 70.0, "acc": 1.0}, "MRPC": {"devacc": 60.0, "f1": None}})
    assert list(how.scores(results).items()) == [(f"{DEV}, incomplete", 65.0), ("transfer_simcse", 50.0)]
    assert Scoring(("transfer",), "d", score="TREC/acc").scores(results)["TREC/acc"] == 1.0
    assert list(Scoring(("transfer",), "d", score="SNLI/acc").scores(results)) == ["transfer_simcse"]


def test_the_run_with_the_highest_score_is_told() -> None:
    found = {"a": {f"{DEV}, incomplete": 60.0}, "b": {f"{DEV}, incomplete": 61.234}, "c": {"loss": 99.0}}
    assert report.highest(found, DEV) == f"highest {DEV}, incomplete: 61.23, b"
    assert report.highest({"c": {"loss": 99.0}}, DEV) == report.highest(found, "") == ""


def test_data_that_is_not_there_is_told_in_one_line_before_anything_is_trained(two_tasks: Path) -> None:
    said = missing(asked("--data", str(two_tasks)))
    assert said.startswith(f"--data {two_tasks}: no data of CR, MR, MPQA, SUBJ, SST2, SST5, SICKEntailment, ")
    assert said.endswith(f"{DEV} is over 2 of 17 tasks, and not comparable with the paper's") and "\n" not in said
    assert missing(asked("--data", str(two_tasks), "--tasks", "transfer", "--score", "TREC/acc")) == ""
    assert missing(Scoring()) == ""


def test_a_task_from_outside_is_checked_before_anything_is_trained(
    two_tasks: Path, own_module: Callable[[str], str]
) -> None:
    name = own_module("class Haiku:\n    name = 'haiku'\n    def __init__(self, data): ...\n")
    with pytest.raises(RecipeError, match=f"^--tasks: {name}:Haiku: not an evaluation task: it lacks files, score"):
        missing(asked("--data", str(two_tasks), "--tasks", f"{name}:Haiku"))


def test_a_score_none_of_whose_tasks_is_there_is_refused(two_tasks: Path) -> None:
    with pytest.raises(RecipeError, match="holds no data of the score SNLI/acc"):
        missing(asked("--data", str(two_tasks), "--score", "SNLI/acc"))
    with pytest.raises(RecipeError, match=r"holds no data of the tasks glue"):
        missing(asked("--data", str(two_tasks), of="clear-deletion"))


@pytest.mark.exhaustive
def test_a_run_is_scored_on_the_data_that_is_there(tiny: list[str], shared_data: Path, tmp_path: Path) -> None:
    """By SentEval's TREC alone."""
    (tmp_path / "data" / "downstream").mkdir(parents=True)
    (tmp_path / "data" / "downstream" / "TREC").symlink_to(shared_data / "senteval" / "downstream" / "TREC")
    run = tmp_path / "run"
    trained = train_alone(*tiny, "training.max_steps=1", f"output={run}")
    assert trained.returncode == 0, trained.stderr
    how = asked("--data", str(tmp_path / "data"), "--protocol", "fast")
    done = run_commands(how.command(run, True)[1:], [environment()])
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)["scores"]
    assert list(figures) == ["TREC"] and how.evaluated(run)
    assert next(iter(report.scores(run, how).items())) == (f"{DEV}, incomplete", figures["TREC"]["devacc"])
