"""The report of `clearspan adapt` and its lines on the terminal: what a reader sees first, and what is folded."""

import dataclasses
import json
import re
from pathlib import Path

import pytest

from clearspan.adapt.report import bars, examples, lines, write
from clearspan.eval.report.figures import ScoreBar
from clearspan.eval.verdict import Example, Gain, System, Verdict

GAINS = Gain(12.83, 10.5, 15.1), Gain(8.0, 6.2, 9.9)
SYSTEMS = (
    System("trained + BM25", "trained on these texts, with BM25", True, 0.8, 84.83, 82.0, 87.1, GAINS[0]),
    System("all-MiniLM-L6-v2 + BM25", "the base model, with BM25", False, 0.7, 80.0, 77.5, 82.4, GAINS[1]),
    System("BM25", "the words that query and text share", False, None, 72.0, 69.1, 74.8),
)
BETTER = Verdict(
    task="titles",
    num_queries=1000,
    num_texts=12_000,
    num_collection=12_000,
    systems=SYSTEMS,
    winner="trained + BM25",
    best_trained="trained + BM25",
    best_untrained="all-MiniLM-L6-v2 + BM25",
    difference=4.83,
    low=3.4,
    high=6.3,
    word="better",
    sentence="take trained + BM25: MRR 84.8, 4.8 above all-MiniLM-L6-v2 + BM25 [3.4, 6.3], among 12,000 texts",
    examples=(
        Example("lossy compressor for images", "pngquant converts images", 1, 14, "pngquant converts images", "zip"),
        Example("chess engine", "plays chess by UCI", 3, 1, "draws chess boards", "plays chess by UCI"),
    ),
)
QUESTIONS = dataclasses.replace(
    BETTER,
    task="questions",
    num_queries=15,
    winner="BM25",
    word="no difference",
    sentence="take BM25: no difference",
    notes=("15 questions are few",),
)


@pytest.fixture
def metrics(tmp_path: Path) -> Path:
    path = tmp_path / "metrics.jsonl"
    scores = {0: 80.0, 25: 83.5, 50: 84.25, 75: 84.0}
    path.write_text("".join(json.dumps({"step": step, "dev_score": score}) + "\n" for step, score in scores.items()))
    return path


def page(folder: Path, verdict: Verdict = BETTER, **more: object) -> str:
    return write(folder, verdict, **more).read_text("utf-8")  # type: ignore[arg-type]


def test_the_report_says_the_verdict_first_then_shows_every_system_best_first(tmp_path: Path, metrics: Path) -> None:
    source = page(tmp_path, metrics=metrics)
    places = [
        source.index(text)
        for text in (f"T{BETTER.sentence[1:]}.", "<h2", ">84.83", ">80.00", ">72.00", "While training")
    ]
    assert places == sorted(places)
    assert "1,000 held-out titles among 12,000 texts" in source
    assert "best 84.25 at step 50" in source
    assert source == page(tmp_path, metrics=metrics), "the same input gives the same bytes"


def unfolded(source: str) -> str:
    """Return what a reader sees without opening anything."""
    return re.sub(r"(?s)<details.*?</details>", "", source)


def test_the_report_says_the_gain_over_bm25_and_what_mrr_is_before_anything_is_opened(tmp_path: Path) -> None:
    source = unfolded(page(tmp_path, other=QUESTIONS))
    said = (
        "More than BM25 alone, in MRR: trained + BM25 +12.8 [+10.5, +15.1], all-MiniLM-L6-v2 + BM25 +8.0 [+6.2, +9.9]."
    )
    assert source.count(said) == 2, "by the titles and by the questions"
    assert source.count("MRR: the mean of 1 / rank of the relevant document, in %: 100 if always first") == 1
    assert "More than" not in page(
        tmp_path,
        dataclasses.replace(BETTER, systems=SYSTEMS[2:], winner="BM25", best_trained="BM25", best_untrained="BM25"),
    )


@pytest.mark.guarantee("evaluation-charts")
def test_the_bars_have_intervals_weights_and_the_system_to_take() -> None:
    assert bars(BETTER).rows == [
        ScoreBar("trained + BM25", 84.83, 82.0, 87.1, "weight 0.8", True),
        ScoreBar("all-MiniLM-L6-v2 + BM25", 80.0, 77.5, 82.4, "weight 0.7"),
        ScoreBar("BM25", 72.0, 69.1, 74.8),
    ]
    assert bars(BETTER).unit == "MRR, %, 1,000 held-out titles among 12,000 texts"
    sampled = dataclasses.replace(BETTER, num_texts=1_000_000, num_collection=3_000_000)
    assert bars(sampled).unit.endswith("among 1,000,000 of 3,000,000 texts")


def test_a_query_won_and_a_query_lost_are_shown_with_what_the_wrong_one_finds() -> None:
    won, lost = examples(BETTER)
    assert won.caption == "trained + BM25 wins: rank 1; all-MiniLM-L6-v2 + BM25: rank 14"
    assert won.rows[-1] == ("first for all-MiniLM-L6-v2 + BM25", "zip")
    assert lost.caption == "trained + BM25 loses: rank 3; all-MiniLM-L6-v2 + BM25: rank 1"
    assert lost.rows[-1] == ("first for trained + BM25", "draws chess boards")
    assert examples(dataclasses.replace(BETTER, examples=())) == []


def test_the_report_says_how_to_use_what_won(tmp_path: Path) -> None:
    source = page(tmp_path, origin="the trained model", steps={"texts": "python -m clearspan.pipelines pairs"})
    assert f"Take trained + BM25. {tmp_path / 'model'} is the trained model." in source
    assert f"clearspan search {tmp_path} &#34;your question&#34;\nclearspan serve {tmp_path}\n" in source
    spaced = tmp_path / "my owls"
    spaced.mkdir()
    assert f"clearspan serve &#39;{spaced}&#39;\n" in page(spaced), "a shell takes it as one word"
    assert re.search(r"<details>\s*<summary><h2>Commands</h2><span>1 step</span>", source)
    assert re.search(r"<details>\s*<summary><h2>Figures</h2>", source)


def test_a_training_that_bettered_nothing_is_told(tmp_path: Path, metrics: Path) -> None:
    said = "no step was better than the start"
    assert said not in page(tmp_path, metrics=metrics)
    metrics.write_text('{"step": 0, "dev_score": 80.0}\n{"step": 25, "dev_score": 79.0}\n')
    assert said in page(tmp_path, metrics=metrics)


def test_questions_have_a_figure_of_their_own_with_their_number(tmp_path: Path) -> None:
    source = page(tmp_path, other=QUESTIONS)
    assert '<h2 id="your-questions">Your questions</h2>' in source
    assert "take BM25: no difference" in source and "15 questions are few" in source
    assert "15 questions among 12,000 texts" in source


def test_hostile_texts_stay_text(tmp_path: Path) -> None:
    hostile = "</td><script>alert(1)</script>"
    example = dataclasses.replace(BETTER.examples[0], query=hostile)
    source = page(tmp_path, dataclasses.replace(BETTER, examples=(example,), sentence=hostile, notes=(hostile,)))
    assert "<script" not in source and source.count("&lt;script&gt;") == 3
    name = '<script>alert(1)</script> | "owl" & co'
    systems = [
        dataclasses.replace(each, name=each.name.replace("all-MiniLM-L6-v2", name), about=f"{name}, the base model")
        for each in BETTER.systems
    ]
    named = dataclasses.replace(BETTER, systems=tuple(systems), best_untrained=f"{name} + BM25")
    (hostile_folder := tmp_path / name.replace("/", "")).mkdir()
    source = page(hostile_folder, named, steps={name: name}, origin=name)
    assert "<script" not in source and source.count("&lt;script&gt;") > 5


def test_the_terminal_has_the_sentence_bars_and_remarks() -> None:
    found = lines(BETTER, QUESTIONS, width=100)
    assert found[0] == f"better: {BETTER.sentence}"
    assert [line.split("  ")[0] for line in found[2:5]] == ["trained + BM25", "all-MiniLM-L6-v2 + BM25", "BM25"]
    assert all("├" in line and len(line) <= 100 for line in found[2:5])
    assert found[5].startswith("MRR: the mean of 1 / rank") and found[6].startswith("More than BM25 alone, in MRR: ")
    assert len(found[5]) <= 100 and sum(line.startswith("MRR: ") for line in found) == 1
    assert found[-1] == "15 questions are few"
    few = dataclasses.replace(QUESTIONS, num_queries=12)
    assert lines(few)[0].startswith("undecided: ") and lines(QUESTIONS)[0].startswith("undecided: ")
    assert lines(dataclasses.replace(QUESTIONS, num_queries=20))[0].startswith("no difference: ")
    assert lines(BETTER, width=30)[2] == "trained + BM25 84.83 [82.0, 87.1]", "too narrow for bars"
