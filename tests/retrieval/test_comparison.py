"""The comparison of systems: weights and systems are chosen on dev queries, and measured on test queries."""

import numpy as np
import pytest

from clearspan.retrieval.bm25 import BM25, Scores, WordCounts
from clearspan.retrieval.comparison import Chosen, RankedSystem, SystemComparison, combined_vectors
from clearspan.retrieval.hybrid import CombinedVectors
from clearspan.retrieval.retrieval_set import RetrievalSet, is_of_dev_half
from clearspan.retrieval.scoring import GRID, K1, B, Scoring
from tests.retrieval.compared import QUERIES, TEXTS, comparison

ABOUT = "a model"


def of_words(scores: np.ndarray) -> tuple[Scores, BM25]:
    """BM25 with these scores, (queries, texts): each text has a word of its own."""
    rows, weights = np.arange(TEXTS, dtype=np.int32), np.ones(TEXTS, np.float32)
    index = BM25({str(row): row for row in range(TEXTS)}, np.arange(TEXTS + 1), rows, weights, TEXTS)
    return Scores(index, [[(int(row), float(each[row])) for row in np.flatnonzero(each)] for each in scores]), index


def same(vectors: CombinedVectors, num_rounds: int = 2) -> Chosen[CombinedVectors]:
    """The same vectors in each round."""
    return Chosen((vectors,) * num_rounds, vectors)


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
    found = whole.combined("trained", ABOUT, True, same(beside, 1))
    assert found.weight is not None and found.weight < 0.5 and found.dev_mrr == 1
    assert (
        found.reciprocal.max() < 1 == whole.uncombined("trained", ABOUT, True, (by_model, documents)).reciprocal.min()
    )
    rows = np.arange(QUERIES)
    crossed = comparison([(rows[20:], rows[:20]), (rows[:20], rows[20:])]).combined(
        "trained", ABOUT, True, same(beside)
    )
    assert crossed.reciprocal.max() < 1 and len(crossed.reciprocal) == QUERIES, "each half by the weight of the other"
    few = comparison([(rows[25:35], rows[:5]), (rows[:5], rows[25:35])]).combined("trained", ABOUT, True, same(beside))
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
    crossed = comparison([(rows[20:], rows[:20]), (rows[:20], rows[20:])]).combined(
        "trained", ABOUT, True, same(beside)
    )
    assert crossed.dev_mrr == pytest.approx(crossed.reciprocal.mean()) and crossed.dev_mrr < 1


@pytest.mark.guarantee("chosen-apart")
def test_a_share_is_chosen_for_each_half_by_the_other_half() -> None:
    """Half of the trained weights find what the first half asks, all of them what the second half asks."""
    right = np.eye(QUERIES, TEXTS, dtype=np.float32)
    wrong = np.roll(right, 1, axis=1)
    is_first = (np.arange(QUERIES) < 20)[:, None]
    documents, rows = np.eye(TEXTS, dtype=np.float32), np.arange(QUERIES)
    by_share = {0.5: np.where(is_first, right, wrong), 1.0: np.where(is_first, wrong, right), 0.25: wrong}

    def chosen(rounds: list[tuple[np.ndarray, np.ndarray]], shares: list[float]) -> RankedSystem:
        whole = comparison(rounds)
        systems = {
            share: whole.uncombined("trained", f"{share}", True, (by_share[share], documents)) for share in shares
        }
        return whole.best_share(systems)

    crossed = [(rows[20:], rows[:20]), (rows[:20], rows[20:])]
    found = chosen(crossed, [0.25, 0.5, 1.0])
    assert found.reciprocal.max() < 1 and len(found.reciprocal) == QUERIES, "each half by the share of the other"
    assert found.dev_mrr == pytest.approx(found.reciprocal.mean()), "not by what suits the half itself"
    assert (found.share, found.about) == (0.5, "0.5"), "the first of those that are best for all"
    assert chosen(crossed, [0.25]).share == 0.25
    whole, words = comparison(crossed), of_words(wrong)
    both = {
        share: whole.combined("trained", ABOUT, True, same(CombinedVectors.of((by_share[share], documents), words)))
        for share in (0.5, 1.0)
    }
    assert both[0.5].dev_mrrs[0] < 1 == both[0.5].dev_mrrs[1] and both[1.0].dev_mrrs[0] == 1 > both[1.0].dev_mrrs[1]
    assert whole.best_share(both).reciprocal.max() < 1, "with BM25, too"
    halves = chosen([(rows[20:], rows[:20])], [0.25, 0.5, 1.0])
    assert halves.share == 1.0 and halves.dev_mrr == 1 and halves.reciprocal.max() < 1
    uneven = chosen([(rows[:20], rows[35:]), (rows[20:], rows[:35])], [0.25, 0.5, 1.0])
    assert (
        len(uneven.reciprocal) == 40
        and uneven.reciprocal[:5].max() < 1
        and uneven.reciprocal[5:25].max() < 1 == uneven.reciprocal[25:].min()
    )


@pytest.mark.guarantee("chosen-apart")
def test_a_share_is_chosen_with_its_own_weight() -> None:
    """A share that is worse alone is better with BM25, which the dev queries show."""
    right = np.eye(QUERIES, TEXTS, dtype=np.float32)
    wrong, documents = np.roll(right, 1, axis=1), np.eye(TEXTS, dtype=np.float32)
    whole, words = comparison(), of_words(np.where(np.arange(QUERIES)[:, None] % 2, right, wrong))
    is_odd = (np.arange(QUERIES) % 4 == 1)[:, None]
    by_share = {0.5: np.where(is_odd, wrong, right), 1.0: right * 0.9 + wrong * 0.1}
    systems = {
        share: whole.combined("trained", ABOUT, True, same(CombinedVectors.of((vectors, documents), words), 1))
        for share, vectors in by_share.items()
    }
    assert systems[1.0].dev_mrrs[0] > systems[0.5].dev_mrrs[0] > 0
    assert all(system.dev_mrrs == (system.dev_mrr,) for system in systems.values()), "each with its best weight"
    assert systems[0.5].weight not in (0, 1)
    found = whole.best_share(systems)
    assert (found.share, found.weight, found.dev_mrr) == (1.0, systems[1.0].weight, systems[1.0].dev_mrr)


@pytest.mark.parametrize("number", [1, 2])
def test_few_questions_leave_a_half_without_any(number: int) -> None:
    part = comparison().collection.select(range(number))
    whole = SystemComparison.of_questions(part)
    vectors = (np.eye(number, TEXTS, dtype=np.float32), np.eye(TEXTS, dtype=np.float32))
    found = whole.best_share({share: whole.uncombined("trained", ABOUT, True, vectors) for share in (0.5, 1.0)})
    assert found.reciprocal.tolist() == [1.0] * number and found.share == 0.5


def short_and_long(rounds: str) -> SystemComparison:
    """40 queries of one word, each in a long text (three times) and in a short one.

    The relevant text of the first half is the short one, which the default k1 and b rank first; that of the other half
    is the long one, for which the default b is too high.

    Args:
        rounds: `long` if the queries with long texts are the dev queries, `short` if the others are, or `crossed`.
    """
    queries = [f"word{row}" for row in range(QUERIES)]
    texts = [
        text for word in queries for text in (f"{word} with", f"{word} {word} {word} {'some other words of it ' * 6}")
    ]
    right = [np.array([2 * row + (row >= QUERIES // 2)]) for row in range(QUERIES)]
    rows = np.arange(QUERIES)
    of_short, of_long = rows[:20], rows[20:]
    every = {
        "long": [(of_long, of_short)],
        "short": [(of_short, of_long)],
        "crossed": [(of_long, of_short), (of_short, of_long)],
    }
    return SystemComparison(RetrievalSet(texts, queries, right, right), every[rounds])


@pytest.mark.guarantee("chosen-apart")
def test_k1_and_b_are_chosen_on_the_dev_queries_and_not_on_the_test_queries() -> None:
    """Whichever half is tested, the other one has chosen what is wrong for it."""
    for rounds, is_default in (("long", False), ("short", True)):
        comparison = short_and_long(rounds)
        counts = WordCounts.of(comparison.collection.documents)
        scoring = comparison.choose_scoring(counts)
        assert (scoring.rounds[0] == scoring.final == Scoring()) is is_default
        found = comparison.lexical("BM25", ABOUT, comparison.words(counts, scoring))
        assert found.dev_mrr == 1 and found.reciprocal.tolist() == [0.5] * 20, rounds
        assert not found.is_trained, "the verdict would compare BM25 with itself"


@pytest.mark.guarantee("chosen-apart")
def test_each_half_of_the_questions_is_ranked_with_the_k1_and_b_of_the_other_half() -> None:
    comparison = short_and_long("crossed")
    counts = WordCounts.of(comparison.collection.documents)
    scoring = comparison.choose_scoring(counts)
    assert scoring.rounds[0].b < B and scoring.rounds[1] == Scoring()
    words = comparison.words(counts, scoring)
    found = comparison.lexical("BM25", ABOUT, words)
    assert found.reciprocal.tolist() == [0.5] * QUERIES and found.dev_mrr == 0.5 and not found.is_trained
    flat = np.ones((QUERIES, 1), np.float32), np.ones((2 * QUERIES, 1), np.float32)
    combined = comparison.combined("owl", ABOUT, False, combined_vectors(flat, words))
    assert combined.reciprocal.max() <= 0.5, "and so is each hybrid"


@pytest.mark.guarantee("chosen-apart")
def test_a_search_has_the_k1_and_b_of_all_dev_queries() -> None:
    """All questions together: three of four have a long text."""
    whole = short_and_long("crossed")
    rows = np.arange(10, QUERIES)
    comparison = SystemComparison(whole.collection, [(rows[::2], rows[1::2]), (rows[1::2], rows[::2])])
    counts = WordCounts.of(comparison.collection.documents)
    scoring = comparison.choose_scoring(counts)
    by_hand = []
    for k1, b in GRID:
        scores = counts.weighted(k1, b).scores(whole.collection.queries).array()
        right = [int(each[0]) for each in whole.collection.relevant]
        by_hand.append(np.mean([scores[row, right[row]] == scores[row].max() for row in rows]))
    assert by_hand[GRID.index((scoring.final.k1, scoring.final.b))] == max(by_hand) > by_hand[GRID.index((K1, B))]
