"""The embedder: each distinct text goes through the encoder once."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common.encoder.batching import batches_by_length
from clearspan.common.encoder.cache import Cache
from clearspan.common.encoder.embedder import Embedder, unit_vectors


class Recorder:
    """An encoder of known vectors that records its calls."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        self.asked += texts
        return np.array([self.vector(text) for text in texts], np.float32)

    @staticmethod
    def vector(text: str) -> list[float]:
        return [len(text), sum(map(ord, text)) % 9973]


@pytest.mark.slow
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


def test_another_run_takes_from_the_cache_what_the_first_left_there(tmp_path: Path) -> None:
    encoder = Recorder()
    first = Embedder(encoder, Cache(tmp_path, 2))
    expected = first.embed(["an owl", "a bird", "an owl"])
    first.embed(["a whole corpus"], keep=False)
    again = Embedder(encoder, Cache(tmp_path, 2))
    np.testing.assert_array_equal(again.embed(["an owl", "a bird", "an owl"]), expected)
    again.embed(["new", "a whole corpus"])
    again.embed(["a bird"])
    assert encoder.asked == ["an owl", "a bird", "a whole corpus", "new"]
    assert (first.num_texts, first.num_cached, again.num_texts, again.num_cached) == (3, 0, 1, 3)


def test_a_broken_embedding_is_not_left_in_the_cache_and_counted_by_each_run(tmp_path: Path) -> None:
    def encode(texts: Sequence[str]) -> np.ndarray:
        return np.array([[1, np.nan if text == "bad" else len(text)] for text in texts], np.float32)

    for cached in (0, 1):
        embedder = Embedder(encode, Cache(tmp_path, 2))
        embeddings = embedder.embed(["bad", "good", "bad"])
        np.testing.assert_array_equal(embeddings, [[1, np.nan], [1, 4], [1, np.nan]])
        assert (embedder.num_nonfinite, embedder.num_cached) == (1, cached)


def test_many_texts_are_encoded_in_pieces_which_the_cache_gets_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearspan.common.encoder.embedder._CHUNK", 10)
    texts = [f"{number}" for number in range(35)]
    encoder = Recorder()

    def killed(texts: Sequence[str]) -> np.ndarray:
        if len(encoder.asked) >= 20:
            raise KeyboardInterrupt
        return encoder(texts)

    with pytest.raises(KeyboardInterrupt):
        Embedder(killed, Cache(tmp_path, 2)).embed(texts)
    embedder = Embedder(encoder, Cache(tmp_path, 2))
    assert embedder.embed(texts).tolist() == [Recorder.vector(text) for text in texts]
    assert (embedder.num_cached, embedder.num_texts) == (20, 15)


def test_an_encoder_that_loses_a_text_is_refused() -> None:
    with pytest.raises(ValueError, match=r"shape \(1, 2\) for 2 texts"):
        Embedder(lambda texts: np.ones((1, 2), np.float32)).embed(["x", "y"])


@pytest.mark.parametrize("scale", [1e-30, 1e25, 1e37])
def test_unit_vectors_have_unit_norm_where_squares_leave_the_range_of_float32(scale: float) -> None:
    unit = unit_vectors(np.array([[3 * scale, 4 * scale]], np.float32))
    assert unit.dtype == np.float32
    np.testing.assert_allclose(unit, [[0.6, 0.8]], rtol=1e-6)


@given(st.lists(st.integers(0, 300)), st.integers(1, 500))
def test_batches_hold_every_text_once_within_the_budget_and_are_of_like_length(lengths: list[int], budget: int) -> None:
    batches = list(batches_by_length(lengths, budget))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        longest = max(lengths[row] for row in batch)
        assert len(batch) == 1 or longest * len(batch) <= budget
        assert all(lengths[row] >= longest * 7 // 8 for row in batch)
