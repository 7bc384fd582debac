"""The averages that papers print, against values computed by hand and published rows."""

import pytest

from eval.tables.averages import SIMCSE_STS, simcse_sts

PUBLISHED_ROWS = {  # STS12-16, STS-B, SICK-R, average
    "sup-simcse-bert-base": ([75.30, 84.67, 80.19, 85.40, 80.82, 84.26, 80.39], 81.58),
    "unsup-simcse-bert-base": ([68.40, 82.41, 74.38, 80.91, 78.56, 76.85, 72.23], 76.25),
    "bert-base avg_first_last": ([45.09, 64.30, 54.56, 70.52, 67.87, 59.05, 63.75], 60.73),
}


@pytest.mark.parametrize("model", PUBLISHED_ROWS)
def test_simcse_average_of_published_rows_is_the_published_average(model: str) -> None:
    values, published = PUBLISHED_ROWS[model]
    keys = zip(SIMCSE_STS.items(), values, strict=True)
    average = simcse_sts({task: {metric: value} for (task, metric), value in keys})["sts_simcse"]
    assert round(average["value"], 2) == published
    assert average["missing"] == []


def test_simcse_average_is_of_values_already_rounded() -> None:
    scores = {task: {metric: 70.004} for task, metric in SIMCSE_STS.items()}
    assert simcse_sts(scores)["sts_simcse"]["value"] == pytest.approx(70.0, abs=1e-9)


def test_simcse_average_says_what_it_lacks() -> None:
    scores = {"STS12": {"spearman_all": 60.0}, "STSBenchmark": {"spearman": 80.0}, "retrieval/x": {"mrr": 1.0}}
    average = simcse_sts(scores)["sts_simcse"]
    assert average["value"] == pytest.approx(70.0)
    assert average["tasks"] == ["STS12", "STSBenchmark"]
    assert average["missing"] == ["STS13", "STS14", "STS15", "STS16", "SICKRelatedness"]
    assert simcse_sts({"retrieval/x": {"mrr": 1.0}}) == {}
