"""What is said beside a sweep's figures: runs that end as they began, and why rows are equal."""

import csv
import json
from pathlib import Path

import pytest

from clearspan.train.card import UNCHANGED
from clearspan.train.config.recipe import load, to_file
from clearspan.train.engine.checkpoint import KIND
from clearspan.train.engine.integrity import seal_folder
from clearspan.train.export import WEIGHTS
from clearspan.train.sweeps import remarks, report
from clearspan.train.sweeps.grid import Grid, Run, parse_axis

GRID = Grid("demo", (parse_axis("training.seed=1,2"),))
RUNS = GRID.runs()
FOUND = {run.name: {"dev_score": 50.0} for run in RUNS}


def leave(run: Path, words: list[str], weights: bytes, losses: list[float], best: str = "step-00000002") -> None:
    """What a run leaves behind."""
    last = run / "checkpoints" / "step-00000002"
    for folder in (last, run / "model"):
        folder.mkdir(parents=True)
    seal_folder(last, KIND, {}, {"best": best})
    (run / "model" / WEIGHTS).write_bytes(weights)
    (run / "recipe.yaml").write_bytes(to_file(load("demo", ["data.text.path=d", *words, f"output={run}"])))
    lines = [{"step": step, "loss": loss} for step, loss in enumerate(losses, 1)] + [{"step": 2, "dev_score": 50.0}]
    (run / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


SEEDS = (["training.seed=1"], ["training.seed=2"])
EQUAL = {
    "one recipe": (
        (["training.seed=1"], ["training.seed=1"]),
        (b"a", b"a"),
        [2.0, 1.0],
        "comes to the same recipe in all",
    ),
    "nothing was better": (SEEDS, (b"a", b"a"), [2.0, 1.5], f"{UNCHANGED}, and all of them export that model"),
    "no effect": (SEEDS, (b"a", b"a"), [2.0, 1.0], "training.seed changes nothing that the rest of the recipe trains"),
    "a coarse score": (SEEDS, (b"a", b"b"), [2.0, 1.5], "their models differ, but the figures do not tell them apart"),
    "another way": (
        SEEDS,
        (b"a", b"a"),
        [2.0, 1.5],
        "their models are the same in every weight, whatever training.seed",
    ),
}


@pytest.mark.parametrize("case", EQUAL)
def test_two_equal_rows_are_explained(tmp_path: Path, case: str) -> None:
    words, weights, losses, why = EQUAL[case]
    best = "step-00000000" if case == "nothing was better" else "step-00000002"
    for run, own, file, second in zip(RUNS, words, weights, losses, strict=True):
        leave(tmp_path / run.name, own, file, [3.0, losses[0] if case in ("one recipe", "no effect") else second], best)
    (line,) = remarks.equal_rows(tmp_path, RUNS, FOUND)
    assert line.startswith("seed=1 and seed=2 have equal figures: ") and why in line
    told = dict.fromkeys(FOUND, UNCHANGED) if case == "nothing was better" else {}
    assert remarks.remarks(tmp_path, RUNS, FOUND) == told


def test_rows_that_differ_and_runs_without_a_score_need_no_explanation(tmp_path: Path) -> None:
    assert remarks.equal_rows(tmp_path, RUNS, {"seed=1": {"dev_score": 1.0}, "seed=2": {"dev_score": 2.0}}) == []
    assert remarks.equal_rows(tmp_path, RUNS, {"seed=1": {"dev_score": 1.0}}) == []
    assert remarks.remarks(tmp_path, RUNS, {}) == dict.fromkeys(FOUND, "without a score")


def test_of_many_equal_rows_a_few_are_named(tmp_path: Path) -> None:
    runs = [Run(f"seed={seed}", {"training.seed": str(seed)}) for seed in range(6)]
    for run in runs:
        leave(tmp_path / run.name, [f"training.seed={run.name[-1]}"], b"a", [1.0])
    (line,) = remarks.equal_rows(tmp_path, runs, {run.name: {"loss": 1.0} for run in runs})
    assert line.startswith("seed=0; seed=1; seed=2 and 3 others have equal figures: ")


def test_a_remark_is_a_column_and_a_note_is_in_the_report(tmp_path: Path) -> None:
    report.write(tmp_path, GRID, RUNS, FOUND, {"seed=1": UNCHANGED}, ["a note"])
    rows = list(csv.DictReader((tmp_path / "table.csv").open()))
    assert [row["remark"] for row in rows] == [UNCHANGED, ""]
    content = json.loads((tmp_path / "sweep.json").read_text())
    assert content["notes"] == ["a note"] and [run["remark"] for run in content["runs"]] == [UNCHANGED, ""]
    assert UNCHANGED in report.table(RUNS, FOUND, {"seed=1": UNCHANGED}).splitlines()[1]


def test_the_figure_has_an_axis_of_numbers_in_their_order() -> None:
    grid = Grid("demo", (parse_axis("optimizer.learning_rate=1e-4,1e-5"), parse_axis("training.seed=2,1")))
    found = {run.name: {"loss": float(number)} for number, run in enumerate(grid.runs())}
    drawn = report.draw(grid, grid.runs(), found).axes
    assert [[label.get_text() for label in axes.get_xticklabels()] for axes in drawn] == [
        ["1e-05", "0.0001"],
        ["1", "2"],
    ]
    values = {name: one["loss"] for name, one in found.items()}
    places = report.grouped(grid, "optimizer.learning_rate", grid.runs(), values)
    assert places == {"": {0: [2.0, 3.0], 1: [0.0, 1.0]}}
