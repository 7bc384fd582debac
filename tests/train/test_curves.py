"""Learning curves, read back from a run's metrics."""

import json
from pathlib import Path

import pytest

from clearspan.eval.report.figures import Curve
from clearspan.train.curves import learning_curves, never_better


def metrics(path: Path, *lines: dict[str, float]) -> Path:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


@pytest.mark.guarantee("evaluation-charts")
def test_the_dev_score_is_drawn_with_its_best_step_marked(tmp_path: Path) -> None:
    path = metrics(
        tmp_path / "m.jsonl", {"step": 0, "dev_score": 4.0}, {"step": 10, "loss": 2.5}, {"step": 10, "dev_score": 9.0},
        {"step": 20, "loss": 1.5}, {"step": 20, "dev_score": 8.0},
    )  # fmt: skip
    (curves,) = learning_curves({"run": path})
    assert curves.series == [Curve("run", [(0, 4.0), (10, 9.0), (20, 8.0)], marked=1)]
    assert curves.y == "dev score"


@pytest.mark.guarantee("evaluation-charts")
def test_runs_are_drawn_by_a_figure_that_all_of_them_have(tmp_path: Path) -> None:
    both = [{"step": step, "dev_score": 1.0 + step, "validation/loss": 3.0 - step, "loss": 9.0} for step in (0, 1)]
    one = metrics(tmp_path / "a.jsonl", *both)
    other = metrics(tmp_path / "b.jsonl", *({k: v for k, v in line.items() if k != "dev_score"} for line in both))
    (curves,) = learning_curves({"one": one, "other": other})
    assert curves.y == "loss on held-out examples"
    assert [curve.marked for curve in curves.series] == [1, 1], "the lowest loss"


@pytest.mark.guarantee("evaluation-charts")
def test_a_loss_in_training_marks_no_best_step_and_few_points_are_no_curve(tmp_path: Path) -> None:
    path = metrics(tmp_path / "m.jsonl", {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0})
    (curves,) = learning_curves({"run": path})
    assert curves.series == [Curve("run", [(1, 2.0), (2, 1.0)])]
    assert learning_curves({"run": metrics(tmp_path / "m.jsonl", {"step": 1, "loss": 2.0})}) == []
    assert learning_curves({"run": tmp_path / "none.jsonl"}) == []


@pytest.mark.guarantee("evaluation-charts")
def test_each_run_is_a_curve_of_all_its_points_under_the_caption(tmp_path: Path) -> None:
    values = {"one": [4.0, 9.0, 8.0, 9.0], "other": [3.0, 2.0], "third": [1.0, 1.5, 2.5]}
    runs = {
        name: metrics(
            tmp_path / f"{name}.jsonl",
            *(
                {"step": 10 * step, "dev_score": value, "validation/loss": -value, "loss": 9.0}
                for step, value in enumerate(each)
            ),
        )
        for name, each in values.items()
    }
    (curves,) = learning_curves(runs, "Two sweeps")
    assert (curves.caption, curves.x, curves.y) == ("Two sweeps", "step", "dev score")
    assert curves.series == [
        Curve(name, [(10.0 * step, value) for step, value in enumerate(each)], marked)
        for (name, each), marked in zip(values.items(), (1, 0, 2), strict=True)
    ]
    assert learning_curves(dict(list(runs.items())[:1]))[0].caption == "While training"
    metrics(
        tmp_path / "third.jsonl", {"step": 0, "dev_score": 1.0}, {"step": 10, "loss": 2.0}, {"step": 0, "loss": 3.0}
    )
    assert [curves.y for curves in learning_curves(runs)] == ["loss in training"], "which all have at two steps"
    metrics(tmp_path / "third.jsonl", {"step": 0, "dev_score": 1.0})
    assert learning_curves(runs) == [] and learning_curves({}) == []


@pytest.mark.guarantee("export-of-the-start")
def test_a_run_that_bettered_nothing_is_told_from_its_metrics(tmp_path: Path) -> None:
    def told(*lines: dict[str, float]) -> bool:
        return never_better(metrics(tmp_path / "m.jsonl", *lines))

    start = {"step": 0, "dev_score": 60.0}
    assert told(start, {"step": 10, "dev_score": 59.0}, {"step": 20, "dev_score": 60.0})
    assert not told(start, {"step": 10, "dev_score": 60.1}, {"step": 20, "dev_score": 50.0})
    given = {"step": 0, "given/dev_score": 65.0}
    assert told(given, start, {"step": 10, "dev_score": 64.0}), "better than the pooled start, not than the model given"
    assert told({"step": 0, "validation/loss": 2.0}, {"step": 10, "validation/loss": 2.5})
    assert not told({"step": 0, "validation/loss": 2.0}, {"step": 10, "validation/loss": 1.5})
    assert not told({"step": 10, "loss": 2.0}), "nothing picks a checkpoint"
    assert not told(start, {"step": 10, "dev_score": 59.0}, {"step": 20, "dev_score": 61.0}), "the last is better"
    assert told({"step": 0, "loss": 9.0}, given, start, {"step": 10, "loss": 1.0}, {"step": 20, "dev_score": 64.0})
    assert not told(given, {"step": 0, "dev_score": 70.0}, {"step": 10, "dev_score": 71.0})
    assert not told(start) and not told({"step": 10, "dev_score": 59.0}), "one of both was not measured"
    loss = {"step": 0, "given/validation/loss": 1.75}
    assert told(loss, {"step": 0, "validation/loss": 2.0}, {"step": 10, "validation/loss": 1.8})
    assert told(start, loss, {"step": 10, "dev_score": 59.0, "validation/loss": 1.0}), "a dev score counts first"
    later = [{"step": step, "dev_score": 50.0, "loss": 2.0} for step in range(10, 30_000, 10)]
    assert told(start, *later), "a long run has a start too"
    assert not told(start, {"step": 5, "dev_score": 60.001}, *later)
    nothing = {"step": 0, "dev_score": 0.0}
    assert told(nothing, {"step": 10, "dev_score": -4.0}) and told(nothing, {"step": 10, "dev_score": 0.0})
    assert not told({"step": 0, "dev_score": -4.0}, {"step": 10, "dev_score": 0.0})


@pytest.mark.guarantee("evaluation-charts")
def test_a_run_that_was_killed_and_continued_is_drawn_to_its_end(tmp_path: Path) -> None:
    runs = {name: tmp_path / name / "metrics.jsonl" for name in ("killed", "whole")}
    points = [(10.0 * step, 40.0 + step % 7 - step / 1000) for step in range(40)]
    for name, path in runs.items():
        path.parent.mkdir()
        metrics(path, *({"step": step, "dev_score": score} for step, score in points[:20]))
        if name == "killed":
            with path.open("ab") as file:
                file.write(b'{"step": 200, "dev_score": 9\n[]\n\n{"loss": 1.0}\n\xff\x00\n')
    assert [curve.points for curve in learning_curves(runs)[0].series] == [points[:20]] * 2
    for path in runs.values():
        with path.open("a") as file:
            file.writelines(json.dumps({"step": step, "dev_score": score}) + "\n" for step, score in points[20:])
    assert learning_curves(runs)[0].series == [Curve(name, points, 6) for name in runs]


@pytest.mark.guarantee("evaluation-charts")
def test_a_long_run_is_drawn_from_its_start(tmp_path: Path) -> None:
    lines = [{"step": step, "dev_score": 9.0 if step == 20 else 1.0} for step in range(0, 30_000, 10)]
    (path := tmp_path / "m.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    ((curve,),) = [curves.series for curves in learning_curves({"run": path})]
    assert curve.points == [(line["step"], line["dev_score"]) for line in lines] and curve.marked == 2
