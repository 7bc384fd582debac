"""The papers' averages, checked against values computed by hand and against every printed row."""

import math

import pytest

from clearspan.eval.data.senteval import PROBING
from clearspan.eval.tables.averages import AVERAGES, HALVES, SUPERVISED, YEARS, average, averages
from clearspan.eval.tables.published import Cell, Column, PaperTable, TableRow, tables

STS_SCORES = {
    **{year: {"spearman_all": 70.0, "spearman_mean": 60.0, "spearman_wmean": 0.0} for year in YEARS},
    "STSBenchmark": {"spearman": 80.0, "pearson": 0.0},
    "SICKRelatedness": {"spearman": 66.0, "pearson": 0.0},
}
CLASSIFIED = {
    task: {"acc": 80.0 + place, "devacc": 70.0 + place}
    for place, task in enumerate(("CR", "MR", "MPQA", "SUBJ", "SST2", "SST5", "TREC", "SICKEntailment"))
}
SENTEVAL = {
    **STS_SCORES,
    **CLASSIFIED,  # 80 ... 87, 668 together; 70 ... 77 on dev, 588
    "MRPC": {"acc": 70.0, "f1": 80.0, "devacc": 60.0},
    "SICKRelatedness-finetune": {"spearman": 78.0, "pearson": 0.0, "mse": 0.0, "devpearson": 79.0, "devspearman": 0.0},
    "STSBenchmark-finetune": {"spearman": 72.0, "pearson": 0.0, "mse": 0.0, "devpearson": 73.0, "devspearman": 0.0},
    "ImageCaptionRetrieval": {"acc": 50.0, "devacc": 40.0},
    "SNLI": {"acc": 73.0, "devacc": 55.0},
    **{task: {"acc": 64.0, "devacc": 62.0} for task in PROBING},
}
GLUE = {
    "glue/MNLI": {"accuracy": 84.0, "accuracy_matched": 83.0, "accuracy_mismatched": 85.0},
    "glue/QNLI": {"accuracy": 90.0},
    "glue/RTE": {"accuracy": 70.0},
    "glue/SST-2": {"accuracy": 92.0},
    "glue/QQP": {"accuracy": 0.0, "f1": 0.0, "mean": 88.0},
    "glue/MRPC": {"accuracy": 0.0, "f1": 0.0, "mean": 86.0},
    "glue/CoLA": {"matthews": 50.0},
    "glue/STS-B": {"pearson": 0.0, "spearman": 0.0, "mean": 89.0},
}
DOWNSTREAM = 668 + 75 + 78 + 72 + 50 + 5 * 60
DOWNSTREAM_DEV = 588 + 60 + 79 + 73 + 40 + 5 * 60
BY_HAND = {
    "sts_simcse": (5 * 70 + 80 + 66) / 7,
    "transfer_simcse": (81 + 80 + 83 + 82 + 84 + 86 + 70) / 7,
    "downstream_declutr": DOWNSTREAM / 17,
    "downstream_declutr_snli": (DOWNSTREAM + 73) / 18,
    "probing_declutr": 64,
    "downstream_declutr_dev": DOWNSTREAM_DEV / 17,
    "downstream_declutr_snli_dev": (DOWNSTREAM_DEV + 55) / 18,
    "probing_declutr_dev": 62,
    "clear_sts": (78 + 72 + 5 * 60) / 7,
    "glue_clear": (84 + 90 + 70 + 92 + 88 + 86 + 50 + 89) / 8,
    "glue_clear_matched": (83 + 90 + 70 + 92 + 88 + 86 + 50 + 89) / 8,
    "declutr_v1": ((DOWNSTREAM + 73) / 18 + 64) / 2,
    "declutr_v1_dev": ((DOWNSTREAM_DEV + 55) / 18 + 62) / 2,
}


def test_every_average_has_a_value_by_hand() -> None:
    assert set(BY_HAND) == {*AVERAGES, *HALVES}


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize("name", BY_HAND)
def test_an_average_is_that_computed_by_hand(name: str) -> None:
    found = average(name, {**SENTEVAL, **GLUE})
    assert found is not None
    assert found["value"] == pytest.approx(BY_HAND[name], abs=1e-9)
    assert found["missing"] == []


@pytest.mark.guarantee("coco-captions")
def test_simcse_averages_values_already_rounded_and_declutr_does_not() -> None:
    scores = {**SENTEVAL, **{year: {"spearman_all": 70.004, "spearman_mean": 60.004} for year in YEARS}}
    simcse, declutr = average("sts_simcse", scores), average("downstream_declutr", scores)
    assert simcse is not None and declutr is not None
    assert simcse["value"] == pytest.approx(BY_HAND["sts_simcse"], abs=1e-9)
    assert declutr["value"] == pytest.approx((DOWNSTREAM + 5 * 0.004) / 17, abs=1e-9)


@pytest.mark.guarantee("coco-captions")
def test_an_average_says_what_it_lacks() -> None:
    scores = {"STS12": {"spearman_all": 60.0}, "STSBenchmark": {"spearman": 80.0}, "retrieval/x": {"mrr": 1.0}}
    assert averages(scores) == {
        "sts_simcse": {
            "value": 70.0,
            "tasks": ["STS12", "STSBenchmark"],
            "missing": ["STS13", "STS14", "STS15", "STS16", "SICKRelatedness"],
        }
    }
    assert averages({"retrieval/x": {"mrr": 1.0}}) == {}


def test_averages_of_nearly_every_task_are_not_given_for_the_similarity_tasks_alone() -> None:
    assert list(averages(STS_SCORES)) == ["sts_simcse"]
    assert "clear_sts" in averages({**STS_SCORES, **{task: SENTEVAL[task] for task in SUPERVISED}})


@pytest.mark.guarantee("coco-captions")
def test_a_task_without_one_of_its_metrics_is_missing() -> None:
    found = average("downstream_declutr", {**SENTEVAL, "MRPC": {"acc": 70.0}})
    assert found is not None
    assert found["missing"] == ["MRPC"]
    assert found["value"] == pytest.approx((DOWNSTREAM - 75) / 16)


@pytest.mark.guarantee("coco-captions")
def test_an_undefined_score_makes_its_average_undefined() -> None:
    found = average("sts_simcse", {**STS_SCORES, "STS14": {"spearman_all": math.nan}})
    assert found is not None
    assert math.isnan(found["value"])
    found = average("downstream_declutr", {**SENTEVAL, "ImageCaptionRetrieval": {"acc": math.nan}})
    assert found is not None and math.isnan(found["value"]) and found["missing"] == []


MISPRINTS = {("nonling-g1", "BERT (SimCLR)"): (77.00, 76.99)}
"""Table and row -> the average as printed, and as computed from the row."""


def head_cells(table: PaperTable, row: TableRow) -> dict[str, Cell]:
    return dict(zip((column.head for column in table.columns), row.cells, strict=True))


def scores_of(*rows: tuple[PaperTable, TableRow]) -> dict[str, dict[str, float]]:
    """Return the printed figures of rows in the form of an evaluation's scores."""
    found: dict[str, dict[str, float]] = {}
    for table, row in rows:
        for column, cell in zip(table.columns, row.cells, strict=True):
            values = cell if isinstance(cell, tuple) else (cell,)
            for (task, metric), value in zip(column.of, values, strict=False):
                if isinstance(value, float):
                    found.setdefault(task, {})[metric] = value
    return found


AVERAGED = [
    pytest.param(table, row, column, id=f"{table.name} {row.name} {column.head}")
    for table in tables().values()
    for row in table.rows
    for column in table.columns
    if column.average in AVERAGES and any(column.of for column in table.columns) and row.name != "QuickThoughts"
]


@pytest.mark.parametrize(("table", "row", "column"), AVERAGED)
def test_a_printed_average_is_ours_of_the_printed_figures(table: PaperTable, row: TableRow, column: Column) -> None:
    """Equality is up to rounding: only SimCSE averages the figures as printed."""
    assert column.average
    found = average(column.average, scores_of((table, row)))
    assert found is not None and not found["missing"]
    printed = head_cells(table, row)[column.head]
    if misprint := MISPRINTS.get((table.name, row.name)):
        assert printed == misprint[0]
        printed = misprint[1]
    assert isinstance(printed, float)
    half_unit = 0.5 * 10**-table.decimals
    tolerance = half_unit if AVERAGES[column.average].rounded else 2 * half_unit
    assert abs(printed - found["value"]) <= tolerance + 1e-9, f"printed {printed}, of its figures {found['value']:.4f}"


@pytest.mark.parametrize("row", tables()["declutr-v1-1"].rows, ids=lambda row: row.name)
def test_version_1s_averages_are_ours_of_its_supplement(row: TableRow) -> None:
    parts = [(tables()[name], one) for name in ("declutr-v1-s3", "declutr-v1-s4") for one in tables()[name].rows]
    scores = scores_of(*((table, one) for table, one in parts if one.name == row.name))
    cells = head_cells(tables()["declutr-v1-1"], row)
    for head, name in (
        ("Downstream", "downstream_declutr_snli"),
        ("Probing", "probing_declutr"),
        ("Avg.", "declutr_v1"),
    ):
        found = average(name, scores)
        assert found is not None and not found["missing"]
        assert cells[head] == pytest.approx(found["value"], abs=0.01)


@pytest.mark.parametrize(
    ("table", "column"), [(t, c) for t in tables().values() for c in t.columns if c.minus], ids=lambda one: None
)
def test_a_printed_difference_is_that_of_the_printed_averages(table: PaperTable, column: Column) -> None:
    assert column.minus
    head, other = column.minus
    for row in table.rows:
        cells = head_cells(table, row)
        if cells[column.head] is not None:
            value, base = cells[head], table.cell(other, head)
            assert isinstance(value, float) and isinstance(base, float)
            assert cells[column.head] == pytest.approx(value - base, abs=0.0101), row.name


@pytest.mark.guarantee("coco-captions")
@pytest.mark.parametrize(
    ("name", "num_tasks", "min_tasks", "is_given"),
    [
        ("downstream_declutr", 8, None, False),
        ("downstream_declutr", 9, None, True),
        ("downstream_declutr", 8, 8, True),
        ("downstream_declutr", 8, 9, False),
        ("downstream_declutr", 1, 0, True),
        ("downstream_declutr", 0, 0, False),
        ("sts_simcse", 1, None, True),
        ("sts_simcse", 1, 2, False),
        ("sts_simcse", 0, None, False),
        ("sts_simcse", 1, 1, True),
    ],
)
def test_an_average_needs_as_many_tasks_as_its_rule_or_the_caller_says(
    name: str, num_tasks: int, min_tasks: int | None, is_given: bool
) -> None:
    tasks = list(AVERAGES[name].metrics)
    some = {task: SENTEVAL[task] for task in tasks[:num_tasks]}
    found = average(name, some, min_tasks)
    assert (found is not None) is is_given
    if found is not None:
        assert found["tasks"] == list(some) and found["missing"] == tasks[num_tasks:]


@pytest.mark.guarantee("coco-captions")
def test_a_mean_of_two_averages_needs_both_and_names_the_tasks_of_both() -> None:
    downstream, probing = HALVES["declutr_v1"]
    scores = {task: score for task, score in SENTEVAL.items() if task not in ("MR", next(iter(PROBING)))}
    found = average("declutr_v1", scores)
    both = [average(half, scores) for half in (downstream, probing)]
    assert found is not None and all(each is not None for each in both)
    assert found == {
        "value": (both[0]["value"] + both[1]["value"]) / 2,  # type: ignore[index]
        "tasks": [task for each in both for task in each["tasks"]],  # type: ignore[index]
        "missing": ["MR", next(iter(PROBING))],
    }
    for half in (downstream, probing):
        others = {task: score for task, score in SENTEVAL.items() if task not in AVERAGES[half].metrics}
        assert average("declutr_v1", others) is None
    few = {task: SENTEVAL[task] for task in ("MR", next(iter(PROBING)))}
    assert average("declutr_v1", few) is None and average("declutr_v1", few, 1) is not None


@pytest.mark.guarantee("coco-captions")
def test_only_simcses_values_are_rounded_to_two_decimals() -> None:
    scores = {"STS12": {"spearman_all": 70.126}, "STS13": {"spearman_all": 70.121}}
    found = average("sts_simcse", scores)
    assert found is not None and found["value"] == pytest.approx((70.13 + 70.12) / 2, abs=1e-9)
    probing = {task: {"acc": 70.126} for task in PROBING}
    found = average("probing_declutr", probing)
    assert found is not None and found["value"] == pytest.approx(70.126, abs=1e-9)
