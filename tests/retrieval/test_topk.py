"""The best rows of a search, taken block by block, are those of sorting all rows."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clearspan.retrieval.topk import TopK, best_rank, top_indices

NEAR = [0.5, 0.5000001, 0.4999999, 0.5001, 0.25, -0.5]
"""Scores of which the first three are equal when rounded to 6 decimals."""
IDS = [-(1 << 63), -3, -2, 0, 2, 3, (1 << 62) + 1, (1 << 62) + 2, (1 << 63) - 1]
"""Ids as the hashes of texts are: of both signs, and some with more digits than a float holds."""


@pytest.mark.guarantee("ties-by-id")
@pytest.mark.guarantee("exact-search")
@given(st.data())
def test_the_best_rows_of_blocks_are_those_of_sorting_all_rows(data: st.DataObject) -> None:
    """Of the chunks of one document the best one, and of equal scores the higher id, then the earlier row."""
    num_rows, num_queries, top = (data.draw(st.integers(1, most)) for most in (30, 3, 6))
    small = st.integers(0, 3)
    scores = np.array(data.draw(st.lists(st.sampled_from(NEAR), min_size=num_rows * num_queries, max_size=99)))
    scores = scores[: num_rows * num_queries].reshape(num_queries, num_rows).astype(np.float32)
    first, second = (np.array([data.draw(small) for _ in range(num_rows)]) for _ in range(2))
    ids = np.array([data.draw(st.sampled_from(IDS)) for _ in range(num_rows)])
    places = np.stack([first, second], axis=1) if data.draw(st.booleans()) else None
    shifts, size = np.array([0.0, 10.0, -3.25])[:num_queries], data.draw(st.integers(1, num_rows))
    best = TopK(top, shifts)
    for start in range(0, num_rows, size):
        rows = np.arange(start, min(start + size, num_rows))
        best.add(scores[:, rows], rows, ids[rows], None if places is None else places[rows])
    for query, (rows, found) in enumerate(best.found):
        rounded = (scores[query].astype(np.float64) + shifts[query]).round(6)
        documents: dict[object, int] = {}
        for row in sorted(range(num_rows), key=lambda row: (-rounded[row], -int(ids[row]), row)):
            documents.setdefault(row if places is None else (*places[row], ids[row]), row)
        assert rows == [*documents.values()][:top] and found == rounded[rows].tolist()


@pytest.mark.guarantee("ties-by-id")
@given(st.lists(st.sampled_from(NEAR), min_size=1, max_size=30), st.integers(1, 31), st.data())
def test_the_top_indices_are_those_of_sorting_rounded_scores(
    scores: list[float], depth: int, data: st.DataObject
) -> None:
    ids = np.array(data.draw(st.lists(st.sampled_from(IDS), min_size=len(scores), max_size=len(scores))))
    order = sorted(range(len(scores)), key=lambda row: (-round(scores[row], 6), -int(ids[row]), row))
    assert top_indices(np.array(scores, np.float32), depth, ids).tolist() == order[:depth]


@pytest.mark.guarantee("ties-by-id")
@pytest.mark.parametrize("first", [1, -1])
@pytest.mark.parametrize("depth", [1, 2, 3, 9])
def test_a_text_whose_score_is_lower_by_rounding_alone_comes_first_by_its_higher_id(depth: int, first: int) -> None:
    scores = np.array([0.5000001, 0.4999999, 0.5, 0.25, 0.4999], np.float32)[::first]
    ids = np.array([-7, 5, (1 << 63) - 1, 9, 9])[::first]
    expected = [2, 1, 0, 4, 3] if first == 1 else [2, 3, 4, 0, 1]
    assert top_indices(scores, depth, ids).tolist() == expected[:depth]
    best = TopK(depth, np.zeros(1))
    for row in range(5):
        best.add(scores[None, [row]], np.array([row]), ids[[row]], None)
    assert best.found[0][0] == expected[:depth]


@pytest.mark.guarantee("ties-by-id")
def test_rows_below_the_threshold_are_left_out() -> None:
    best = TopK(3, np.zeros(2), 0.5)
    best.add(np.array([[0.5, 0.75, 0.25], [0.5, 0.25, 0.0]], np.float32), np.arange(3), np.arange(3), None)
    assert best.found == [([1], [0.75]), ([], [])]


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("is_tensor", [False, True])
def test_a_large_block_is_cut_to_no_fewer_than_its_best_rows(is_tensor: bool) -> None:
    scores = np.random.default_rng(0).random((3, 500), np.float32)
    best = TopK(7, np.array([0.0, 2.0, -9.0]))
    for start in (0, 300):
        rows = np.arange(start, min(start + 300, 500))
        block = scores[:, rows]
        best.add(torch.from_numpy(block) if is_tensor else block, rows, rows)
    assert best.rows.tolist() == np.argsort(-scores, axis=1)[:, :7].tolist()


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("as_scores", [np.asarray, torch.from_numpy])
def test_a_score_that_is_not_a_number_hides_no_other_row(as_scores: Callable[[np.ndarray], Any]) -> None:
    scores = [np.nan, *np.linspace(0, 1, 20).tolist(), np.nan]
    for top, expected in ((1, [20]), (3, [20, 19, 18])):
        best = TopK(top, np.zeros(1))
        best.add(as_scores(np.array([scores], np.float32)), np.arange(len(scores)), np.arange(len(scores)))
        assert best.found[0][0] == expected


@pytest.mark.guarantee("ties-by-id")
@given(st.lists(st.sampled_from(NEAR), min_size=1, max_size=len(IDS)), st.data())
def test_the_best_rank_is_that_of_the_whole_ranking(scores: list[float], data: st.DataObject) -> None:
    ids = np.array(data.draw(st.permutations(IDS)))[: len(scores)]
    relevant = np.array(data.draw(st.lists(st.integers(0, len(scores) - 1), min_size=1, unique=True)))
    ranking = top_indices(np.array(scores, np.float32), len(scores), ids).tolist()
    right, rank = best_rank(np.array(scores, np.float32), relevant, ids)
    assert right == ranking[rank - 1] and rank == 1 + min(ranking.index(text) for text in relevant)
