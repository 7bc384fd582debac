"""The embedder: each distinct text goes through the encoder once."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.models.embed import Embedder, batches_by_length, unit_vectors


class Recorder:
    """An encoder of known vectors that remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return np.array([self.vector(text) for text in texts], np.float32)

    @staticmethod
    def vector(text: str) -> list[float]:
        return [len(text), sum(map(ord, text)) % 9973]


@given(st.lists(st.tuples(st.lists(st.text("ab ", max_size=3), min_size=1), st.booleans()), min_size=1, max_size=5))
def test_rows_follow_the_texts_and_no_kept_text_is_encoded_twice(calls: list[tuple[list[str], bool]]) -> None:
    encoder = Recorder()
    embedder = Embedder(encoder)
    for texts, keep in calls:
        already, known = len(encoder.asked), set(embedder._rows)
        embeddings = embedder.embed(texts, keep=keep)
        assert embeddings.dtype == np.float32
        assert embeddings.tolist() == [Recorder.vector(text) for text in texts]
        assert sorted(encoder.asked[already:]) == sorted(set(texts) - known)
    assert embedder.num_texts == len(encoder.asked)


def test_what_is_not_kept_does_not_stay_in_memory() -> None:
    encoder = Recorder()
    embedder = Embedder(encoder)
    embedder.embed(["a corpus"], keep=False)
    embedder.embed(["a corpus"])
    embedder.embed(["a corpus"], keep=False)
    assert encoder.asked == ["a corpus", "a corpus"]


def test_broken_embeddings_are_counted() -> None:
    embedder = Embedder(lambda texts: np.array([[1, np.nan], [np.inf, 0], [1, 1]], np.float32))
    embedder.embed(["x", "y", "z", "x"])
    assert (embedder.num_nonfinite, embedder.num_texts) == (2, 3)


def test_an_encoder_that_loses_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(1, 2\) for 2 texts"):
        Embedder(lambda texts: np.ones((1, 2), np.float32)).embed(["x", "y"])


def test_unit_vectors_have_unit_norm_and_zero_stays_zero() -> None:
    unit = unit_vectors(np.array([[3, 4], [0, 0], [np.nan, 2]], np.float32))
    np.testing.assert_allclose(unit, [[0.6, 0.8], [0, 0], [0, 1]], rtol=1e-6)


@given(st.lists(st.integers(0, 300)), st.integers(1, 500))
def test_batches_hold_every_text_once_within_the_budget_and_are_of_like_length(lengths: list[int], budget: int) -> None:
    batches = list(batches_by_length(lengths, budget))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget
        assert all(lengths[row] >= longest * 7 // 8 for row in batch)
