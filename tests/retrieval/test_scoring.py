"""How BM25 scores: its weights are those of bm25s for any k1 and b, which are chosen only beyond noise."""

import bm25s
import numpy as np
import pytest

from clearspan.common.options import from_keywords
from clearspan.common.terminal import UsageError
from clearspan.retrieval.bm25 import BM25, WordCounts
from clearspan.retrieval.scoring import DEFAULT, GRID, K1, MIN_Z, B, ParameterOptions, Scoring, best_scoring
from clearspan.retrieval.stemming import PLAIN, Words

TEXTS = ["An owl in the snow", "owls, owls and mice in the snow of the north", "a fox", "", "The mice"]
DEFAULT_PLACE = GRID.index((K1, B))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.6, 0.4), (2.0, 0.0), (0.9, 1.0)])
def test_the_weights_are_those_of_bm25s_to_the_last_digit(k1: float, b: float, dtype: str) -> None:
    counts = WordCounts.of(TEXTS)
    found = counts.weighted(k1, b, dtype)
    index = bm25s.BM25(k1=k1, b=b, dtype=dtype)
    ids = [[counts.vocabulary[word] for word in PLAIN(text)] for text in TEXTS]
    index.index((ids, counts.vocabulary), create_empty_token=False, show_progress=False)
    assert found.weights.dtype == dtype
    for word, number in counts.vocabulary.items():
        rows, weights = found.of_word(number)
        expected = index.get_scores([word])
        assert expected[rows].tolist() == weights.tolist() and np.count_nonzero(expected) == len(rows)


def test_an_index_has_the_words_k1_and_b_of_its_scoring() -> None:
    scoring = Scoring(Words("english"), 0.9, 0.4)
    by_hand = WordCounts.of(TEXTS, scoring.words).weighted(0.9, 0.4)
    assert BM25.of(TEXTS, scoring).scores(["owl"]).array().tolist() == by_hand.scores(["owl"]).array().tolist()
    assert BM25.of([]).shape == (0, 0) and BM25.of(["!"]).scores(["owl"]).array().tolist() == [[0.0]]


def test_a_key_holds_all_that_determines_the_scores() -> None:
    others = [Scoring(k1=0.9), Scoring(b=0.4), Scoring(Words("english")), Scoring(k1=0.75, b=0.9)]
    assert len({str(each.key) for each in (DEFAULT, *others)}) == 5
    assert DEFAULT.key == {**PLAIN.key, "k1": 1.2, "b": 0.75} and Scoring(k1=1).key == Scoring(k1=1.0).key


@pytest.mark.parametrize(
    "wrong", [{"k1": 0.0}, {"k1": -1.0}, {"k1": float("inf")}, {"k1": 1000.1}, {"b": -0.1}, {"b": 1.1}]
)
def test_a_scoring_that_cannot_be_is_refused(wrong: dict[str, float]) -> None:
    name = next(iter(wrong))
    with pytest.raises(ValueError, match=f"`{name}` .*: must be "):
        Scoring(**wrong)
    with pytest.raises(UsageError, match=name):
        from_keywords(ParameterOptions, wrong)


def test_options_that_are_not_given_are_the_defaults() -> None:
    assert from_keywords(ParameterOptions, {}).scoring() == DEFAULT
    assert from_keywords(ParameterOptions, {"k1": 0.9}).scoring(Words("german")) == Scoring(Words("german"), 0.9)
    assert from_keywords(ParameterOptions, {"b": 0.0}).scoring() == Scoring(b=0.0)


def values_of(**gains: np.ndarray) -> np.ndarray:
    """Reciprocal ranks of 0.5 with each pair but those that a gain names by its place in the grid."""
    number = len(next(iter(gains.values())))
    values = np.full((len(GRID), number), 0.5)
    for name, gain in gains.items():
        values[int(name.removeprefix("p"))] += gain
    return values


@pytest.mark.guarantee("chosen-apart")
def test_another_pair_than_the_default_is_chosen_only_if_its_gain_exceeds_noise() -> None:
    number = 100
    alternating = np.where(np.arange(number) % 2, 0.1, -0.1)
    noise = MIN_Z * alternating.std(ddof=1) / number**0.5
    assert best_scoring(values_of(p0=alternating + 1.01 * noise)) == 0
    assert best_scoring(values_of(p0=alternating + 0.99 * noise)) == DEFAULT_PLACE
    assert best_scoring(values_of(p3=alternating + 0.5 * noise, p7=alternating + 2 * noise)) == 7
    three = np.array([0.001, 0.1, 0.2])  # 1.75 standard errors above 0; 1.57 without 0.01
    assert best_scoring(values_of(p0=three)) == 0 and best_scoring(values_of(p0=three - 0.01)) == DEFAULT_PLACE
    assert best_scoring(values_of(p0=np.array([0.1, 0.1001]))) == 0, "two queries have a standard error"
    assert best_scoring(values_of(p0=np.array([0.3]))) == DEFAULT_PLACE, "one query has none"
    assert best_scoring(values_of(p3=np.full(number, -0.2))) == DEFAULT_PLACE, "equal pairs"
    worse = np.full(number, 0.01)
    assert best_scoring(-values_of(**{f"p{DEFAULT_PLACE}": worse})) == 0, "the default is surely worse"


@pytest.mark.guarantee("chosen-apart")
def test_a_few_queries_choose_another_pair_only_if_they_agree() -> None:
    """One query of 20 that gains much proves nothing; neither does a single query, and no query chooses."""
    one = np.zeros(20)
    one[3] = 0.5
    assert best_scoring(values_of(p5=one)) == DEFAULT_PLACE
    assert best_scoring(values_of(p5=np.full(20, 0.5))) == 5
    assert best_scoring(values_of(p5=np.full(1, 0.5))) == best_scoring(values_of(p5=np.zeros(0))) == DEFAULT_PLACE
