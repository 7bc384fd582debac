"""The bar charts at the top of a report: a chart for each task, family or average, with all models."""

import math
from types import SimpleNamespace
from typing import Any

import pytest

from clearspan.eval.report.figures import ScoreBar
from clearspan.eval.report.outcome import _bar, _bars, score_figures
from clearspan.eval.report.summary import ScoreSummary

FAMILIES = {"owls": "retrieval", "rain": "retrieval", "STS12": "sts", "spread": "geometry"}
MAIN = {"owls": "mrr", "rain": "ndcg@10", "STS12": "spearman_all", "spread": "uniformity"}


def scored(model: str, scores: dict[str, float], averages: dict[str, float] | None = None) -> Any:
    """An evaluation of a model; each score has an interval of its own."""
    main = {task: MAIN.get(task, "acc") for task in scores}
    tasks = {
        task: SimpleNamespace(main=main[task], headline=(main[task],), counts={"documents": 1400}) for task in scores
    }
    results = SimpleNamespace(
        model=model,
        scores={task: {main[task]: value, "other": -99.0} for task, value in scores.items()},
        intervals={task: {main[task]: (value - 1, value + 2)} for task, value in scores.items() if value < 90},
        averages={name: {"value": value, "tasks": 7, "of": 7} for name, value in (averages or {}).items()},
    )
    return SimpleNamespace(results=results, tasks=tasks, families={task: FAMILIES.get(task, "sts") for task in scores})


def bar(name: str, value: float, is_strong: bool = False) -> ScoreBar:
    return ScoreBar(name, value, value - 1, value + 2, is_strong=is_strong)


@pytest.mark.guarantee("evaluation-charts")
def test_a_bar_has_the_score_and_the_interval_of_its_metric() -> None:
    one = scored("one", {"owls": 40.0, "STS12": 95.0})
    assert _bar(one, "owls", "shown", "mrr") == bar("shown", 40.0)
    for task, metric, value in [("STS12", "spearman_all", 95.0), ("owls", "map", math.nan), ("rain", "mrr", math.nan)]:
        found = _bar(one, task, "shown", metric)
        assert found.value == pytest.approx(value, nan_ok=True) and math.isnan(found.low) and math.isnan(found.high)


@pytest.mark.guarantee("evaluation-charts")
def test_the_best_model_is_the_highest_or_the_lowest_where_less_is_better() -> None:
    models = {"one": 40.0, "two": 42.0, "three": 41.0}
    for task, order in (("owls", ["two", "three", "one"]), ("spread", ["one", "three", "two"])):
        each = [scored(name, {task: value}) for name, value in models.items()]
        summary = ScoreSummary([*each, scored("elsewhere", {"STS12": 50.0})])
        assert _bars(summary, task) == [bar(name, models[name]) for name in order]


@pytest.mark.guarantee("evaluation-charts")
def test_several_models_have_a_chart_for_each_task() -> None:
    models = [scored("one", {"owls": 40.0, "rain": 50.0}), scored("two", {"owls": 41.0, "rain": 49.0})]
    owls, rain = score_figures(ScoreSummary(models))
    assert owls.rows == [bar("two", 41.0, True), bar("one", 40.0)] and owls.caption == "owls"
    assert rain.rows == [bar("one", 50.0, True), bar("two", 49.0)] and rain.caption == "rain"
    assert (owls.unit, rain.unit) == ("MRR, %, among 1,400 texts", "nDCG@10, %, among 1,400 texts")
    (alone,) = score_figures(ScoreSummary([scored(name, {"owls": 40.0}) for name in ("one", "two")]))
    assert alone.caption == "" and [row.name for row in alone.rows] == ["one", "two"]


@pytest.mark.guarantee("evaluation-charts")
def test_one_model_has_a_chart_for_each_family_of_percentages() -> None:
    scores = {"owls": 40.0, "rain": 50.0, "STS12": 70.0, "STS13": 80.0, "spread": -2.0}
    retrieval, sts = score_figures(ScoreSummary([scored("one", scores)]))
    assert retrieval.rows == [bar("rain", 50.0), bar("owls", 40.0)]
    assert (retrieval.unit, retrieval.caption) == ("MRR, nDCG@10, %", "Retrieval")
    assert sts.rows == [bar("STS13", 80.0), bar("STS12", 70.0)] and sts.caption == "STS"
    two = score_figures(ScoreSummary([scored("one", {"owls": 40.0, "STS12": 70.0})]))
    assert [each.caption for each in two] == ["Retrieval", "STS"]
    (family,) = score_figures(ScoreSummary([scored("one", {"owls": 40.0, "rain": 50.0})]))
    assert family.caption == "" and len(family.rows) == 2
    (task,) = score_figures(ScoreSummary([scored("one", {"owls": 40.0})]))
    assert task.rows == [bar("one", 40.0)] and task.caption == ""
    mixed = ScoreSummary([scored("one", {"STS12": 70.0, "spread": -2.0})])
    mixed.scored[0].families["spread"] = "sts"
    assert score_figures(mixed) == [], "a family with a figure that is no percentage has no chart"


@pytest.mark.guarantee("evaluation-charts")
def test_models_with_more_than_six_tasks_have_a_chart_for_each_average(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ScoreSummary, "coverage", lambda self, name: "all tasks")
    six = {f"STS{number}": 70.0 + number for number in range(6)}
    assert len(score_figures(ScoreSummary([scored("one", six), scored("two", six)]))) == 6
    seven = {**six, "rain": 50.0}
    models = [
        scored("one", seven, {"sts_simcse": 70.0, "transfer": 80.0}),
        scored("two", seven, {"sts_simcse": 71.0}),
        scored("three", seven, {"sts_simcse": 69.0, "transfer": 81.0}),
        scored("four", seven),
    ]
    simcse, transfer = score_figures(ScoreSummary(models))
    assert [(row.name, row.value, row.is_strong) for row in simcse.rows] == [
        ("two", 71.0, True),
        ("one", 70.0, False),
        ("three", 69.0, False),
    ]
    assert [row.name for row in transfer.rows] == ["three", "one"] and transfer.caption == "transfer: all tasks"
