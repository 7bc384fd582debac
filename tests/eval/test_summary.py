"""The summary of one model or several, on the terminal and in the report's sections."""

import re
from dataclasses import replace

import numpy as np
import pytest

from clearspan.eval.details import Cell, cell_text
from clearspan.eval.report.html import Section
from clearspan.eval.report.summary import Summary, differences_table, report_lead, report_sections, terminal_summary
from clearspan.eval.results import Results, Scored, environment
from clearspan.eval.run import with_differences
from clearspan.eval.scores import Examples, TaskScores, difference
from tests.eval import made_up

ONE, OTHER = made_up.scored("one", 1), made_up.scored("other", 2)


@pytest.fixture(scope="module")
def summary() -> Summary:
    return Summary([ONE, OTHER])


def undefined() -> Scored:
    """Return an evaluation with an undefined correlation and a task without data."""
    scores = TaskScores(
        scores={"spearman": float("nan")},
        main="spearman",
        headline=("spearman",),
        counts={"pairs": 1379},
    )
    results = Results(model="collapsed", skipped={"STS13": "no folder STS13-en-test"}, environment=environment("cpu"))
    results.add("STSBenchmark", scores)
    results.averages["sts_simcse"] = {"value": float("nan"), "tasks": ["STSBenchmark"], "missing": ["STS13"]}
    return Scored(results, {"STSBenchmark": scores})


def texts(cells: list[Cell]) -> list[str]:
    return [cell_text(cell) for cell in cells]


def every(sections: list[Section]) -> dict[str, Section]:
    """Return heading -> section, subsections included."""
    by_heading = {}
    for section in sections:
        by_heading |= {section.heading: section, **every(list(section.sections))}
    return by_heading


def test_a_figure_has_each_models_value_and_interval(summary: Summary) -> None:
    values = texts(summary.values("STS12", "spearman_all"))
    for one, value in zip((ONE, OTHER), values, strict=True):
        low, high = one.results.intervals["STS12"]["spearman_all"]
        assert value == f"{one.results.scores['STS12']['spearman_all']:.2f} [{low:.1f}, {high:.1f}]"


def test_the_best_is_strong_the_lowest_where_less_is_better(summary: Summary) -> None:
    assert [cell.strong for cell in summary.values("average", "transfer")] == [False, True]
    assert [cell.strong for cell in summary.values("geometry", "alignment")] == [True, False]
    assert not any(cell.strong for cell in summary.values(made_up.UNDEFINED, "acc"))
    assert not any(cell.strong for cell in Summary([ONE]).values("STS12", "spearman_all"))


def test_the_terminal_shows_one_model_with_its_intervals() -> None:
    text = terminal_summary(Summary([ONE]))
    value = cell_text(Summary([ONE]).values("STS12", "spearman_all")[0])
    assert re.search(rf"^STS12 +spearman_all +{re.escape(value)}$", text, re.MULTILINE)
    assert re.search(r"^STS12 +spearman_mean +[\d.]+$", text, re.MULTILINE)
    assert "average sts_simcse: 5 of 7 tasks, so not comparable with published averages (missing: STSBench" in text
    assert "skipped Depth: no file" in text


def test_an_undefined_score_and_a_skipped_task_are_shown_as_such() -> None:
    text = terminal_summary(Summary([undefined()]))
    assert re.search(r"^STSBenchmark +spearman +undefined$", text, re.MULTILINE)
    assert "skipped STS13: no folder STS13-en-test" in text
    assert "1 of 2 tasks, so not comparable with published averages (missing: STS13)" in text
    sections = every(report_sections(Summary([undefined()])))
    assert cell_text(sections["Summary"].tables[0].rows[0][2]) == "undefined"
    assert sections["Skipped"].tables[0].rows == [("STS13", "no folder STS13-en-test")]


def test_neighbors_of_several_models_stand_below_each_other_under_their_query(summary: Summary) -> None:
    """Also where all find the relevant document at the same rank."""
    (table,) = every(report_sections(summary))["Nearest neighbors"].tables
    assert table.header == ("model", "relevant at rank", "nearest", "second", "third")
    assert table.caption == made_up.QUERY
    assert [row[:2] for row in table.rows] == [("one", 1), ("other", 1)]


def test_the_outcome_names_the_models_that_differ_beyond_noise() -> None:
    before, *others = (made_up.scored(name, 1, ("retrieval",)) for name in ("before", "after", "bow", "tfidf"))
    changes = [made_up.difference(*change) for change in ((2.0, True), (-3.0, True), (-0.5, False))]
    summary = Summary(
        [before, *(replace(each, differences={"task": change}) for each, change in zip(others, changes, strict=True))]
    )
    assert summary.outcome == "Differences from before beyond noise: better (after), none (tfidf), worse (bow)."
    assert report_lead(summary).startswith(f"{summary.outcome}\n\n4 models, 1 task")
    assert " ".join(terminal_summary(summary).split()).startswith(summary.outcome)


def test_the_outcome_on_several_tasks_counts_those_that_differ_beyond_noise() -> None:
    signs = {"MR": (1.0, True), "CR": (-1.0, True), "SUBJ": (2.0, True), "MPQA": (3.0, False)}
    differences = {task: made_up.difference(*change) for task, change in signs.items()}
    summary = Summary([made_up.scored("one", 1, ("transfer",)), replace(OTHER, differences=differences)])
    assert "Differences from one beyond noise: better on 2 and worse on 1 of 4 tasks (other)." in summary.outcome
    assert Summary([made_up.scored("alone", 1, ("transfer",))]).outcome == ""


@pytest.mark.slow
def test_a_tasks_section_is_folded_and_holds_all_of_it(summary: Summary) -> None:
    section = every(report_sections(summary))["STS12"]
    assert section.folded and "one" in section.note and "other" in section.note
    metrics, subsets = section.tables
    assert metrics.header[:3] == ("metric", "one", "other")
    assert subsets.header == ("model", "subset", "pairs", "Spearman")
    assert every(report_sections(summary))["MR"].tables[-1].rows == [("l2", "[1e-05, 0.0001]", "[1e-05, 0.0001]")]


def test_data_and_environment_are_whole(summary: Summary) -> None:
    sections = every(report_sections(summary))
    (data,) = sections["Data"].tables
    assert ("STS12", "/data/senteval/STS12/test.txt", f"{2:064x}") in data.rows
    (settings,) = sections["Environment"].tables
    assert {"protocol", "seed", "torch", "python"} <= {row[0] for row in settings.rows}
    assert ("model", "runs/one/model", "runs/other/model") in settings.rows
    assert ("dim", "384", "768") in settings.rows


def test_warnings_and_skips_name_the_model_where_it_is_not_all_of_them() -> None:
    broken = made_up.scored("broken", 1, ("sts",))
    broken.results.warnings.append("holds a NaN")
    broken.results.skipped["glue/RTE"] = "word vectors are not fine-tuned"
    both = Summary([broken, ONE])
    assert both.warnings == ["broken: holds a NaN"]
    assert ("Depth", "no file /data/senteval/probing/tree_depth.txt") in both.skipped
    assert ("glue/RTE", "broken: word vectors are not fine-tuned") in both.skipped
    assert Summary([replace(broken, families={})]).warnings == ["holds a NaN"]


def test_differences_from_the_first_model_are_shown_with_their_intervals() -> None:
    before, after = with_differences([made_up.scored(name, seed) for seed, name in enumerate(("before", "after"))])
    assert not before.differences
    task = made_up.FAMILIES["retrieval"][0]
    expected = difference(before.tasks[task].examples["ndcg@10"], after.tasks[task].examples["ndcg@10"])
    found = after.differences[task]
    assert (found.value, found.low, found.high) == (expected.value, expected.low, expected.high)
    text = terminal_summary(Summary([before, after]))
    change = f"{found.value:+.2f} [{found.low:+.1f}, {found.high:+.1f}]"
    assert re.search(rf"^{task} +ndcg@10 +\*?{re.escape(change)}$", text, re.MULTILINE)
    assert "difference of main scores from before; 95 % interval by paired bootstrap, * exceeds noise" in text
    (row,) = [
        row for row in every(report_sections(Summary([before, after])))["Differences"].tables[0].rows if row[0] == task
    ]
    assert row[1] == "ndcg@10" and cell_text(row[2]) == change


def test_a_difference_exceeds_noise_only_after_correction_and_on_the_same_examples() -> None:
    scores = [made_up.scored(name, 1, ("transfer", "geometry")) for name in ("one", "same")]
    sure = made_up.scored("sure", 1, ("transfer", "geometry"))
    wrong = Examples.of("mean", np.zeros(60))
    sure.tasks["MR"].examples["acc"] = wrong
    sure.tasks["CR"].examples["acc"] = Examples.of("mean", np.zeros(30))
    _, same, sure = with_differences([*scores, sure])
    assert all(each.value == 0 and not each.exceeds_noise for each in same.differences.values())
    assert sure.differences["MR"].exceeds_noise and sure.differences["MR"].value < -50
    assert "CR" not in sure.differences and "geometry" not in sure.differences


def test_the_difference_from_an_undefined_score_is_undefined() -> None:
    def constant(name: str, predicted: np.ndarray) -> Scored:
        examples = {"spearman": Examples.of("spearman", predicted, np.arange(30.0))}
        scores = TaskScores({"spearman": 0.0}, "spearman", ("spearman",), {"pairs": 30}, examples=examples)
        results = Results(model=name)
        results.add("STSBenchmark", scores)
        return Scored(results, {"STSBenchmark": scores})

    summary = Summary(with_differences([constant("one", np.arange(30.0)), constant("collapsed", np.ones(30))]))
    table = differences_table(summary)
    assert table is not None
    ((_, _, cell),) = table.rows
    assert isinstance(cell, Cell)
    assert cell_text(cell) == "undefined" and not cell.strong and "nan" not in terminal_summary(summary)
