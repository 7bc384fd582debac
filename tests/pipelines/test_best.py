"""The best rows of a search, taken block by block, are those of sorting all rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common.ranking import top_indices
from clearspan.pipelines.search.best import Best

NEAR = [0.5, 0.5000001, 0.4999999, 0.5001, 0.25, -0.5]
"""Scores of which the first three are equal when rounded to 6 decimals."""


@pytest.mark.guarantee("ties-by-id")
@pytest.mark.guarantee("exact-search")
@given(st.data())
def test_the_best_rows_of_blocks_are_those_of_sorting_all_rows(data: st.DataObject) -> None:
    """Of the chunks of one document the best one, and of equal scores the higher id, then the earlier row."""
    num_rows, num_queries, top = (data.draw(st.integers(1, most)) for most in (30, 3, 6))
    small = st.integers(0, 3)
    scores = np.array(data.draw(st.lists(st.sampled_from(NEAR), min_size=num_rows * num_queries, max_size=99)))
    scores = scores[: num_rows * num_queries].reshape(num_queries, num_rows).astype(np.float32)
    ids, first, second = (np.array([data.draw(small) for _ in range(num_rows)]) for _ in range(3))
    places = np.stack([first, second], axis=1) if data.draw(st.booleans()) else None
    shifts, size = np.array([0.0, 10.0, -3.25])[:num_queries], data.draw(st.integers(1, num_rows))
    best = Best(top, shifts)
    for start in range(0, num_rows, size):
        rows = np.arange(start, min(start + size, num_rows))
        best.add(scores[:, rows], rows, ids[rows], None if places is None else places[rows])
    for query, (rows, found) in enumerate(best.found):
        rounded = (scores[query].astype(np.float64) + shifts[query]).round(6)
        documents: dict[object, int] = {}
        for row in sorted(range(num_rows), key=lambda row: (-rounded[row], -ids[row], row)):
            documents.setdefault(row if places is None else (*places[row], ids[row]), row)
        assert rows == [*documents.values()][:top] and found == rounded[rows].tolist()


@pytest.mark.guarantee("ties-by-id")
@given(st.lists(st.sampled_from(NEAR), min_size=1, max_size=30), st.integers(1, 31), st.data())
def test_the_top_indices_are_those_of_sorting_rounded_scores(
    scores: list[float], depth: int, data: st.DataObject
) -> None:
    ids = np.array(data.draw(st.lists(st.integers(0, 5), min_size=len(scores), max_size=len(scores))))
    order = sorted(range(len(scores)), key=lambda row: (-round(scores[row], 6), -ids[row], row))
    assert top_indices(np.array(scores, np.float32), depth, ids).tolist() == order[:depth]


@pytest.mark.guarantee("ties-by-id")
def test_rows_below_the_threshold_are_left_out() -> None:
    best = Best(3, np.zeros(2), 0.5)
    best.add(np.array([[0.5, 0.75, 0.25], [0.5, 0.25, 0.0]], np.float32), np.arange(3), np.arange(3), None)
    assert best.found == [([1], [0.75]), ([], [])]
