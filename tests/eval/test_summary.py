"""The summary of one model or several, on the terminal and in the report's sections."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from clearspan.eval.details import Answer, Cell, Details, cell_text
from clearspan.eval.report.figures import Bars, ScoreBar
from clearspan.eval.report.html import Section, write_report
from clearspan.eval.report.outcome import sentence
from clearspan.eval.report.sections import (
    differences_table,
    figures_table,
    report_lead,
    report_sections,
    terminal_summary,
)
from clearspan.eval.report.summary import ScoreSummary
from clearspan.eval.results import Results, Scored, environment
from clearspan.eval.run import with_differences
from clearspan.eval.scores import Examples, TaskScores, difference, in_percent
from tests.eval import made_up

ONE, OTHER = made_up.scored("one", 1), made_up.scored("other", 2)


@pytest.fixture(scope="module")
def summary() -> ScoreSummary:
    return ScoreSummary([ONE, OTHER])


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


def test_a_figure_has_each_models_value_and_interval(summary: ScoreSummary) -> None:
    values = texts(summary.values("STS12", "spearman_all"))
    for one, value in zip((ONE, OTHER), values, strict=True):
        low, high = one.results.intervals["STS12"]["spearman_all"]
        assert value == f"{one.results.scores['STS12']['spearman_all']:.2f} [{low:.1f}, {high:.1f}]"


def test_the_best_is_strong_the_lowest_where_less_is_better(summary: ScoreSummary) -> None:
    assert [cell.strong for cell in summary.values("average", "transfer")] == [False, True]
    assert [cell.strong for cell in summary.values("geometry", "alignment")] == [True, False]
    assert not any(cell.strong for cell in summary.values(made_up.UNDEFINED, "acc"))
    assert not any(cell.strong for cell in ScoreSummary([ONE]).values("STS12", "spearman_all"))


def test_the_terminal_shows_one_model_with_its_intervals() -> None:
    text = terminal_summary(ScoreSummary([ONE]))
    value = cell_text(ScoreSummary([ONE]).values("STS12", "spearman_all")[0])
    assert re.search(rf"^STS12 +spearman_all +{re.escape(value)}$", text, re.MULTILINE)
    assert re.search(r"^STS12 +spearman_mean +[\d.]+$", text, re.MULTILINE)
    assert "average sts_simcse: 5 of 7 tasks, so not comparable with published averages (missing: STSBench" in text
    assert "skipped Depth: no file" in text


def test_an_undefined_score_and_a_skipped_task_are_shown_as_such() -> None:
    text = terminal_summary(ScoreSummary([undefined()]))
    assert re.search(r"^STSBenchmark +spearman +undefined$", text, re.MULTILINE)
    assert "skipped STS13: no folder STS13-en-test" in text
    assert "1 of 2 tasks, so not comparable with published averages (missing: STS13)" in text
    sections = every(report_sections(ScoreSummary([undefined()])))
    assert cell_text(sections["Scores"].tables[0].rows[0][2]) == "undefined"
    assert sections["Skipped"].tables[0].rows == [("STS13", "no folder STS13-en-test")]


def test_neighbors_of_several_models_stand_below_each_other_under_their_query(summary: ScoreSummary) -> None:
    """Also where all find the relevant document at the same rank."""
    (table,) = every(report_sections(summary))["Nearest neighbors"].tables
    assert table.header == ("model", "relevant at rank", "nearest", "second", "third")
    assert table.caption == made_up.QUERY
    assert [row[:2] for row in table.rows] == [("one", 1), ("other", 1)]


def ranking(name: str, ranks: list[int], family: str = "heldout", spec: str = "") -> Scored:
    """Return an evaluation that ranks the relevant document of each query at these ranks, among 500 texts."""
    examples = {"mrr": Examples.of("mean", 1 / np.array(ranks))}
    answers = [Answer(f"query {i}", f"text {i}", rank, f"{name} {i}") for i, rank in enumerate(ranks)]
    counts = {"queries": len(ranks), "documents": 500}
    found = {"mrr": 100 * float((1 / np.array(ranks)).mean()), "recall@1": 100 * ranks.count(1) / len(ranks)}
    settings = {"hybrid_weight": 0.8} if spec.startswith("hybrid") else {}
    details = Details(answers=answers)
    scores = TaskScores(found, "mrr", ("mrr", "recall@1"), counts, details, examples=examples, settings=settings)
    results = Results(name, spec or name, environment=environment("cpu"))
    results.add("heldout/texts", scores)
    return Scored(results, {"heldout/texts": scores}, {"heldout/texts": family})


BM25 = ranking("BM25", [2] * 60 + [1] * 40, spec="bm25")
TRAINED = ranking("trained + BM25", [1] * 90 + [4] * 10, spec="hybrid:run/model")
SAME = ranking("other", [2] * 59 + [1] * 41)


def outcome(*scored: Scored) -> str:
    return sentence(ScoreSummary(with_differences(scored)))


def test_the_outcome_is_a_sentence_on_the_best_model_and_the_first() -> None:
    change = difference(BM25.tasks["heldout/texts"].examples["mrr"], TRAINED.tasks["heldout/texts"].examples["mrr"])
    interval = f"[{change.low:.1f}, {change.high:.1f}]"
    better = f"trained + BM25 finds most: MRR 92.5, 22.5 above BM25 {interval}, among 500 texts."
    assert outcome(BM25, TRAINED, SAME) == better
    second = outcome(TRAINED, BM25, SAME)
    assert second.startswith("trained + BM25 finds most: MRR 92.5, 22.0 above other ["), "the first is the best model"


def test_the_outcome_says_where_nothing_exceeds_noise() -> None:
    text = outcome(BM25, SAME)
    assert text.startswith("No difference beyond noise: other has the best MRR, 70.5, and BM25 70.0 (+0.5 [")
    assert text.endswith("), among 500 texts.")


@pytest.mark.parametrize(("number", "begin"), [(19, "Too few examples to decide: "), (20, "trained finds most: ")])
def test_the_outcome_of_few_examples_says_so(number: int, begin: str) -> None:
    assert outcome(ranking("BM25", [9] * number), ranking("trained", [1] * number)).startswith(begin)


def test_the_outcome_of_one_model_has_its_interval_and_the_number_of_texts() -> None:
    low, high = BM25.results.intervals["heldout/texts"]["mrr"]
    assert outcome(BM25) == f"BM25: MRR 70.0 [{low:.1f}, {high:.1f}] among 500 texts."
    assert outcome(made_up.scored("one", 1)) == "one: average sts_simcse 81.6 (5 of 7 tasks), transfer 81.0 (10 tasks)."
    assert outcome(undefined()) == "collapsed: Spearman undefined."


def test_the_outcome_on_several_tasks_counts_those_that_differ_beyond_noise() -> None:
    signs = {"MR": (1.0, True), "CR": (-1.0, True), "SUBJ": (2.0, True), "MPQA": (3.0, False)}
    differences = {task: made_up.difference(*change) for task, change in signs.items()}
    first, second = (made_up.scored(name, seed, ("transfer",)) for seed, name in enumerate(("one", "other"), 1))
    summary = ScoreSummary([first, replace(second, differences=differences)])
    assert (
        sentence(summary) == "other is best on 5 of 10 tasks; beyond noise it is better than one on 2 and worse on 1."
    )


def test_the_report_and_the_terminal_begin_with_the_outcome() -> None:
    summary = ScoreSummary(with_differences([BM25, TRAINED]))
    assert report_lead(summary).startswith(f"{sentence(summary)}\n\n2 models, 1 task")
    lines = terminal_summary(summary).splitlines()
    assert lines[0] == sentence(summary)
    assert [line.split("  ")[0] for line in lines[3:5]] == ["trained + BM25", "BM25"], "bars, best first"
    assert all("━" in line and "├" in line for line in lines[3:5])
    assert "━" not in terminal_summary(summary, 40)


@pytest.mark.guarantee("evaluation-charts")
def test_the_report_shows_each_score_with_its_interval_best_first() -> None:
    summary = ScoreSummary(with_differences([BM25, SAME, TRAINED]))
    (bars,) = every(report_sections(summary))["Summary"].figures
    assert isinstance(bars, Bars)
    for row, scored in zip(bars.rows, (TRAINED, SAME, BM25), strict=True):
        low, high = scored.results.intervals["heldout/texts"]["mrr"]
        assert row == ScoreBar(
            scored.results.model, scored.results.scores["heldout/texts"]["mrr"], low, high, "", row.is_strong
        )
    assert [row.is_strong for row in bars.rows] == [True, False, False]
    assert bars.unit == "MRR, %, among 500 texts"


@pytest.mark.guarantee("evaluation-charts")
@pytest.mark.parametrize("averages", [True, False], ids=["averages", "no averages"])
def test_the_page_has_a_bar_for_each_score_of_several_models(averages: bool, tmp_path: Path) -> None:
    """All 24 main scores of each model, with the intervals that they have, in each chart the best first."""
    models = [made_up.scored(name, seed) for seed, name in enumerate(("one", "One", "other/model", "fourth"), 1)]
    if not averages:
        for scored in models:
            scored.results.averages.clear()
    summary = ScoreSummary(models)
    write_report(tmp_path / "report.html", "Evaluation", report_sections(summary))
    page = (tmp_path / "report.html").read_text("utf-8")
    charts = re.findall(r"<figcaption>(.*?)</figcaption>(.*?)</figure>", page, re.DOTALL)
    drawn = {caption: re.findall(r"<g>\s*<title>(.*?)</title>", chart) for caption, chart in charts}
    assert len(summary.families) == 24 and drawn.keys() >= summary.families.keys()
    for task in summary.families:
        main = summary.main(task)
        cells = [cell_text(cell) for cell in summary.values(task, main)]
        rows = [
            (each.results.scores[task][main], f"{each.results.model} {cell}")
            for each, cell in zip(models, cells, strict=True)
        ]
        ordered = rows if task == made_up.UNDEFINED else sorted(rows, key=lambda row: row[0], reverse=in_percent(main))
        assert drawn[task] == [text for _, text in ordered]


def test_each_model_is_explained_in_a_line() -> None:
    (table,) = every(report_sections(ScoreSummary([BM25, TRAINED])))["Models"].tables
    assert table.rows == [
        ("BM25", "BM25: the words that query and text share, rare ones weighing more; no training"),
        ("trained + BM25", "the model in run/model, with BM25 (weight of the model 0.8, of BM25 the rest)"),
    ]


def test_the_examples_are_a_query_that_the_best_model_wins_and_one_that_it_loses() -> None:
    losing = ranking("new", [1] * 60 + [1] * 39 + [7], spec="hybrid:run/model")
    won, lost = every(report_sections(ScoreSummary(with_differences([BM25, losing]))))["Examples"].tables
    assert won.caption == "new wins: rank 1; BM25: rank 2"
    assert won.rows == [("query", "query 0"), ("relevant document", "text 0"), ("first for BM25", "BM25 0")]
    assert lost.caption == "new loses: rank 7; BM25: rank 1"
    assert lost.rows == [("query", "query 99"), ("relevant document", "text 99"), ("first for new", "new 99")]


def test_many_models_are_rows() -> None:
    models = [BM25, TRAINED, SAME]
    table = figures_table(ScoreSummary(models))
    assert table.header == ("model", "mrr", "recall@1") and table.caption == "heldout/texts"
    assert [row[0] for row in table.rows] == ["BM25", "trained + BM25", "other"]
    assert cell_text(table.rows[0][1]) == texts(ScoreSummary(models).values("heldout/texts", "mrr"))[0]
    few = figures_table(ScoreSummary(models[:2]))
    assert few.header == ("task", "metric", "BM25", "trained + BM25")


@pytest.mark.slow
def test_a_tasks_section_is_folded_and_holds_all_of_it(summary: ScoreSummary) -> None:
    section = every(report_sections(summary))["STS12"]
    assert section.folded and "one" in section.note and "other" in section.note
    metrics, subsets = section.tables
    assert metrics.header[:3] == ("metric", "one", "other")
    assert subsets.header == ("model", "subset", "pairs", "Spearman")
    assert every(report_sections(summary))["MR"].tables[-1].rows == [("l2", "[1e-05, 0.0001]", "[1e-05, 0.0001]")]


def test_data_and_environment_are_whole(summary: ScoreSummary) -> None:
    sections = every(report_sections(summary))
    (data,) = sections["Data"].tables
    assert ("STS12", "/data/senteval/STS12/test.txt", f"{2:064x}") in data.rows
    same, different = sections["Environment"].tables
    assert {"protocol", "seed", "torch", "python"} <= {row[0] for row in same.rows}
    assert different.header == ("setting", "one", "other")
    assert ("model", "runs/one/model", "runs/other/model") in different.rows
    assert ("dim", "384", "768") in different.rows


def test_warnings_and_skips_name_the_model_where_it_is_not_all_of_them() -> None:
    broken = made_up.scored("broken", 1, ("sts",))
    broken.results.warnings.append("holds a NaN")
    broken.results.skipped["glue/RTE"] = "word vectors are not fine-tuned"
    both = ScoreSummary([broken, ONE])
    assert both.warnings == ["broken: holds a NaN"]
    assert ("Depth", "no file /data/senteval/probing/tree_depth.txt") in both.skipped
    assert ("glue/RTE", "broken: word vectors are not fine-tuned") in both.skipped
    assert ScoreSummary([replace(broken, families={})]).warnings == ["holds a NaN"]


def test_differences_from_the_first_model_are_shown_with_their_intervals() -> None:
    before, after = with_differences([made_up.scored(name, seed) for seed, name in enumerate(("before", "after"))])
    assert not before.differences
    task = made_up.FAMILIES["retrieval"][0]
    expected = difference(before.tasks[task].examples["ndcg@10"], after.tasks[task].examples["ndcg@10"])
    found = after.differences[task]
    assert (found.value, found.low, found.high) == (expected.value, expected.low, expected.high)
    text = terminal_summary(ScoreSummary([before, after]))
    change = f"{found.value:+.2f} [{found.low:+.1f}, {found.high:+.1f}]"
    assert re.search(rf"^{task} +ndcg@10 +\*?{re.escape(change)}$", text, re.MULTILINE)
    assert "difference of main scores from before; 95 % interval by paired bootstrap, * exceeds noise" in text
    (row,) = [
        row
        for row in every(report_sections(ScoreSummary([before, after])))["Differences"].tables[0].rows
        if row[0] == task
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

    summary = ScoreSummary(with_differences([constant("one", np.arange(30.0)), constant("collapsed", np.ones(30))]))
    table = differences_table(summary)
    assert table is not None
    ((_, _, cell),) = table.rows
    assert isinstance(cell, Cell)
    assert cell_text(cell) == "undefined" and not cell.strong and "nan" not in terminal_summary(summary)
