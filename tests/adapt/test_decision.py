"""What the verdicts of `adapt` come to: which decides, what to take, and the model and the weight that it needs."""

from pathlib import Path

import pytest

from clearspan.adapt.decision import decide
from clearspan.adapt.judging import Judging, Verdicts, fingerprint
from clearspan.eval.tasks.queries import FEW
from clearspan.eval.verdict import System, Verdict


def verdict(winner: str, task: str = "titles", num_queries: int = 300) -> Verdict:
    systems = tuple(
        System(name, name, "trained" in name, 0.8 if "+" in name else None, 50.0 - place, 40.0, 60.0)
        for place, name in enumerate(["trained + BM25", "trained", "owl + BM25", "BM25", "owl", "untrained static"])
    )
    word = "better" if "trained" in winner else "no difference"
    best = ("trained + BM25", winner if word != "better" else "owl + BM25")
    return Verdict(task, num_queries, 5237, 5237, systems, winner, *best, 2.0, 1.0, 3.0, word, f"take {winner}")


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(
    ("winner", "model", "weight"),
    [
        ("trained + BM25", "trained", 0.8),
        ("trained", "trained", None),
        ("owl + BM25", "owl", 0.8),
        ("owl", "owl", None),
        ("BM25", "owl", 0.0),
    ],
)
def test_the_winner_says_which_model_is_delivered_and_its_weight(winner: str, model: str, weight: float | None) -> None:
    """Behind BM25 alone stands the best model that needs no training, with weight 0."""
    decision = decide(Verdicts(verdict(winner)))
    assert (decision.model, decision.weight) == (model, weight)
    found = decision.to_json()
    assert (found["winner"], found["num_texts"], found["num_queries"]) == (winner, 5237, 300)
    assert list(found["mrr"].items())[:2] == [("trained + BM25", 50.0), ("trained", 49.0)]


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(("number", "decides"), [(FEW, "questions"), (FEW - 1, "titles"), (1, "titles")])
@pytest.mark.parametrize(("of_titles", "of_questions"), [("trained", "owl"), ("owl", "trained"), ("owl", "BM25")])
def test_the_users_questions_decide_if_there_are_enough_of_them(
    number: int, decides: str, of_titles: str, of_questions: str
) -> None:
    """Whatever the two verdicts say."""
    decision = decide(Verdicts(verdict(of_titles), verdict(of_questions, "questions", number)))
    assert decision.verdict.task == decides and decision.winner.name == {"titles": of_titles}.get(decides, of_questions)
    (other,) = decision.to_json()["others"]
    assert {other, decides} == {"titles", "questions"}


def test_a_kept_verdict_is_of_the_words_that_bm25_compares(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data, model = tmp_path / "texts", tmp_path / "model"
    for name in (data / "manifest.json", data / "validation" / "manifest.json", model / "config.json"):
        name.parent.mkdir(parents=True, exist_ok=True)
        name.write_text("{}")
    options = Judging(data=data, trained=model, output=tmp_path / "verdict.json")
    before = fingerprint(options)
    assert fingerprint(options) == before
    monkeypatch.setattr("clearspan.common.words.VERSION", "other")
    assert fingerprint(options) != before
