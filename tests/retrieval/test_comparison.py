"""The comparison of systems: weights and systems are chosen on dev queries, and measured on test queries."""

import numpy as np
import pytest

from clearspan.retrieval.bm25 import BM25, Scores
from clearspan.retrieval.comparison import SystemComparison
from clearspan.retrieval.hybrid import CombinedVectors
from clearspan.retrieval.retrieval_set import is_of_dev_half
from tests.retrieval.compared import QUERIES, TEXTS, comparison

ABOUT = "a model"


def of_words(scores: np.ndarray) -> tuple[Scores, BM25]:
    """BM25 with these scores, (queries, texts): each text has a word of its own."""
    rows, weights = np.arange(TEXTS, dtype=np.int32), np.ones(TEXTS, np.float32)
    index = BM25({str(row): row for row in range(TEXTS)}, np.arange(TEXTS + 1), rows, weights, TEXTS)
    return Scores(index, [[(int(row), float(each[row])) for row in np.flatnonzero(each)] for each in scores]), index


@pytest.mark.guarantee("chosen-apart")
def test_a_weight_is_chosen_on_the_dev_queries() -> None:
    """On the dev queries, the words are right and the model is wrong; on the test queries, the reverse."""
    right, wrong = (
        np.eye(QUERIES, TEXTS, dtype=np.float32),
        np.roll(np.eye(QUERIES, TEXTS, dtype=np.float32), 1, axis=1),
    )
    are_test = np.arange(QUERIES) < 20
    by_model, by_words = (np.where(are_test[:, None] == side, right, wrong) for side in (True, False))
    documents = np.eye(TEXTS, dtype=np.float32)
    beside = CombinedVectors.of((by_model, documents), of_words(by_words))
    whole = comparison()
    found = whole.combined("trained", ABOUT, True, beside)
    assert found.weight is not None and found.weight < 0.5 and found.dev_mrr == 1
    assert (
        found.reciprocal.max() < 1 == whole.uncombined("trained", ABOUT, True, (by_model, documents)).reciprocal.min()
    )
    rows = np.arange(QUERIES)
    crossed = comparison([(rows[20:], rows[:20]), (rows[:20], rows[20:])]).combined("trained", ABOUT, True, beside)
    assert crossed.reciprocal.max() < 1 and len(crossed.reciprocal) == QUERIES, "each half by the weight of the other"
    few = comparison([(rows[25:35], rows[:5]), (rows[:5], rows[25:35])]).combined("trained", ABOUT, True, beside)
    assert few.reciprocal.max() < 1, "however few they are"


@pytest.mark.guarantee("chosen-apart")
@pytest.mark.parametrize(("number", "chosen"), [(10, 10), (25, 25), (26, 25)])
def test_the_dev_half_of_titles_chooses_and_the_other_half_is_tested(
    number: int, chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearspan.retrieval.comparison.MAX_DEV_QUERIES", 25)
    texts = comparison().collection
    test, dev = texts.select(range(5, 10)), texts.select(range(10, 10 + number))
    halves = SystemComparison.of_halves(test, dev)
    assert [halves.collection.queries[row] for row in halves.test] == test.queries
    assert [halves.collection.queries[row] for row in halves.dev] == dev.queries[:chosen]
    assert len(halves.rounds) == 1 and len(halves.collection.queries) == 5 + chosen
    again = texts.select([5, 6, *range(12, 10 + number)])  # two titles that both halves have
    halves = SystemComparison.of_halves(test, again)
    assert halves.test.tolist() == [*range(5)] and halves.dev.tolist() == [*range(5, 5 + chosen)]


@pytest.mark.guarantee("chosen-apart")
def test_each_half_of_the_questions_is_tested_by_what_the_other_half_chose() -> None:
    questions = comparison().collection
    halves = SystemComparison.of_questions(questions)
    (first, second), (third, fourth) = (tuple(each.tolist() for each in pair) for pair in halves.rounds)
    assert (first, second) == (fourth, third) and first and second
    assert sorted(first + second) == list(range(QUERIES)) == sorted(halves.test) == sorted(halves.dev)
    assert first == [row for row, query in enumerate(questions.queries) if is_of_dev_half(query)]
    for few in (first[:1], second[:1], first[:7], second[:7], [first[0], second[0]]):
        part = SystemComparison.of_questions(questions.select(few))
        assert sorted(part.test) == list(range(len(few))), "each question is tested once"
        for dev, test in part.rounds:
            assert not {*dev.tolist()} & {*test.tolist()}, "and chooses nothing for itself, however few there are"


@pytest.mark.guarantee("chosen-apart")
def test_a_system_alone_is_chosen_on_the_dev_queries() -> None:
    right = np.eye(QUERIES, TEXTS, dtype=np.float32)
    vectors = np.where(np.arange(QUERIES)[:, None] < 20, right, np.roll(right, 1, axis=1))
    found = comparison().uncombined("owl", ABOUT, False, (vectors, np.eye(TEXTS, dtype=np.float32)))
    assert found.reciprocal.tolist() == [1.0] * 20 and found.dev_mrr < 0.6
    rows = np.arange(QUERIES)
    turned = comparison([(rows[:20], rows[20:])]).uncombined(
        "owl", ABOUT, False, (vectors, np.eye(TEXTS, dtype=np.float32))
    )
    assert turned.dev_mrr == 1 and turned.reciprocal.max() < 1


@pytest.mark.guarantee("chosen-apart")
def test_a_system_of_questions_is_compared_by_the_weights_of_the_other_half() -> None:
    """Each half is found by a system of its own, so the weight that is best for one half is the worst for the other."""
    right = np.eye(QUERIES, TEXTS, dtype=np.float32)
    wrong = np.roll(right, 1, axis=1)
    is_first = (np.arange(QUERIES) < 20)[:, None]
    by_model, by_words = np.where(is_first, right, wrong), np.where(is_first, wrong, right)
    documents, rows = np.eye(TEXTS, dtype=np.float32), np.arange(QUERIES)
    beside = CombinedVectors.of((by_model, documents), of_words(by_words))
    crossed = comparison([(rows[20:], rows[:20]), (rows[:20], rows[20:])]).combined("trained", ABOUT, True, beside)
    assert crossed.dev_mrr == pytest.approx(crossed.reciprocal.mean()) and crossed.dev_mrr < 1
