"""Exact top-k: the best rows for each query, from scores that are computed for one block of rows after another.

    scores of a block -> rows that reach the query's threshold -> sorted together with the query's best rows so far
                      -> the `top` best of them -> a higher threshold for the next blocks

Search, mining and evaluation rank by this class alone. The scores are a numpy array, or a tensor of torch on any
device, where the rows below the threshold are left out. The threshold of a query is a little below the lowest score
among its `top` best rows so far, so that few rows of a block must be sorted; it is raised each time as many rows have
been found as are kept. Scores are compared after rounding to six decimals. Among equal scores, the row with the higher
id is first, as in trec_eval; a caller that wants the earlier row first passes ids that fall. If several rows are chunks
of one document, only the best of them is returned, and among equally good ones the first.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

DECIMALS = 6
"""Decimals of a score that decide its rank. Further decimals are float32 noise: scores of equal vectors differ in them,
depending on the position of the vectors in a matrix product."""
SLACK = 10.0**-DECIMALS
ROUNDING = 4e-7
"""Maximum relative error of a score in float32 after several additions."""
MANY = 4
"""A block with more than MANY times the rows to keep is cut to its own best rows before these are sorted."""
NONE = -1
"""Stands for no row, after the last row of a query."""
Indices = NDArray[np.int64]


class TopK:
    """The best rows for each of n queries, among the rows that were passed to `add`.

    Args:
        top: the maximum number of rows for each query.
        shifts: for each query, the number that is added to all scores passed to `add`, (n,).
        threshold: rows are selected only if their score, as passed to `add`, is above this number.
    """

    def __init__(self, top: int, shifts: NDArray[np.float64], threshold: float = -np.inf) -> None:
        self._top = top
        self._shifts = shifts
        self._least = np.full(len(shifts), np.nextafter(np.float32(threshold), np.float32(np.inf)), np.float32)
        self._query = np.empty(0, np.int64)
        self._score = np.empty(0, np.float64)
        self._row = np.empty(0, np.int64)
        self._id = np.empty(0, np.int64)
        self._place = np.empty((0, 2), np.int64)
        self._num_sorted = 0

    def add(self, scores: Any, rows: Indices, ids: Indices, places: Indices | None = None) -> None:
        """Compare r further rows with the best rows so far, for each of the n queries.

        Args:
            scores: the scores of the rows for each query, (n, r), a numpy array or a tensor of torch. A row with the
                score -inf is left out.
            rows: the indices of the rows among all rows that are searched, (r,).
            ids: the ids of the rows, or for chunks the ids of their documents, (r,).
            places: two numbers for each row, (r, 2), which with the id identify its document, since different documents
                may have the same id (`RowBlock.places`). None if no row is a chunk; then it is None in all calls.
        """
        query, at, values = self._candidates(scores, may_cut=places is None)
        if len(query):
            self.add_pairs(query, values, rows[at], ids[at], None if places is None else places[at])

    def add_pairs(
        self,
        queries: Indices,
        scores: NDArray[np.floating],
        rows: Indices,
        ids: Indices,
        places: Indices | None = None,
    ) -> None:
        """Compare p pairs of a query and a further row with the best rows so far.

        Args:
            queries: the index of the query of each pair, (p,).
            scores: the scores of the rows, (p,).
            rows, ids, places: as in `add`, for the row of each pair, (p,) and (p, 2).
        """
        added = rounded(scores + self._shifts[queries])
        self._query, self._score = np.append(self._query, queries), np.append(self._score, added)
        self._row, self._id = np.append(self._row, rows), np.append(self._id, ids)
        if places is not None:
            self._place = np.append(self._place, places, axis=0)
        if len(self._query) >= 2 * self._num_sorted:
            self._sort()

    def _candidates(self, scores: Any, may_cut: bool) -> tuple[Indices, Indices, NDArray[np.floating]]:
        """Return the query, the place in the block and the score of each row of a block that may be among the best.

        Args:
            may_cut: whether the `top` best scores of a block suffice, since no two rows are chunks of one document.
        """
        is_near = _reach(scores, self._least)
        count = np.count_nonzero if isinstance(scores, np.ndarray) else type(is_near).count_nonzero
        if may_cut and scores.shape[1] > self._top and count(is_near) > MANY * self._top * len(scores):
            least = np.fmax(self._least, _below(_kth_largest(scores, self._top), self._shifts))
            is_near = _reach(scores, least)
        if isinstance(scores, np.ndarray):
            query, at = np.divmod(np.flatnonzero(is_near), max(1, scores.shape[1]))
            return query, at, scores[query, at]
        found = is_near.nonzero(as_tuple=True)
        query, at, values = (each.cpu().numpy() for each in (*found, scores[found]))
        return query, at, values

    def _sort(self) -> None:
        """Keep the `top` best rows of each query, in their order, if rows were added since the last time."""
        if len(self._query) == self._num_sorted:
            return
        has_places = len(self._place) > 0
        order = np.lexsort((self._row, ~self._id, -self._score, self._query))
        if has_places:
            order = order[_is_first(self._place[order], self._id[order], self._query[order])]
        starts = np.searchsorted(self._query[order], np.arange(len(self._shifts)))
        order = order[np.arange(len(order)) - starts[self._query[order]] < self._top]
        self._query, self._score = self._query[order], self._score[order]
        self._row, self._id = self._row[order], self._id[order]
        if has_places:
            self._place = self._place[order]
        self._num_sorted = len(order)
        self._raise_least()

    def _raise_least(self) -> None:
        ends = np.searchsorted(self._query, np.arange(len(self._shifts)), "right")
        starts = np.searchsorted(self._query, np.arange(len(self._shifts)))
        full = np.flatnonzero(ends - starts == self._top)
        worst = self._score[ends[full] - 1] - self._shifts[full]
        self._least[full] = np.maximum(self._least[full], _below(worst, self._shifts[full]))

    @property
    def found(self) -> list[tuple[list[int], list[float]]]:
        """For each query, the indices of its best rows, and their scores with the query's shift added; best first."""
        self._sort()
        bounds = np.searchsorted(self._query, np.arange(len(self._shifts) + 1))
        pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        return [(self._row[start:end].tolist(), self._score[start:end].tolist()) for start, end in pairs]

    @property
    def rows(self) -> Indices:
        """The indices of the best rows of each query, best first, (n, top); -1 (NONE) after a query's last row."""
        self._sort()
        starts = np.searchsorted(self._query, np.arange(len(self._shifts)))
        rows = np.full((len(self._shifts), self._top), NONE, np.int64)
        rows[self._query, np.arange(len(self._query)) - starts[self._query]] = self._row
        return rows


def top_indices(scores: NDArray[np.floating], depth: int, ids: Indices) -> Indices:
    """Return the indices of the texts with the highest scores for one query, highest first, as int64.

    Scores are compared after rounding to 6 decimals (`DECIMALS`). Among equal scores, the text with the higher id ranks
    first, as in trec_eval. So the order of the texts in the collection, where relevant texts may come first, has no
    effect.

    Args:
        scores: the score of each of n texts, (n,).
        depth: the number of indices to return; if it is larger than n, all n are returned.
        ids: the id of each text, (n,), which breaks ties; among equal ids, the lower index ranks first.
    """
    best = TopK(min(depth, len(scores)), np.zeros(1))
    best.add(scores[None], np.arange(len(scores)), ids)
    found: Indices = best.rows[0]
    return found


def best_rank(scores: NDArray[np.floating], relevant: Indices, ids: Indices) -> tuple[int, int]:
    """Return the index of the relevant text that ranks best for a query, and its rank, from 1, among all n texts.

    It is the rank that the text has in `top_indices`, computed without the rest of the ranking.

    Args:
        scores: the score of each text, (n,).
        relevant: the indices of the relevant texts.
        ids: the id of each text, (n,), which breaks ties.
    """
    best = relevant[np.lexsort((ids[relevant], rounded(scores[relevant])))[-1]]
    bound = float(scores[best])
    before = int((scores > bound + SLACK).sum())
    near = np.flatnonzero((scores >= bound - SLACK) & (scores <= bound + SLACK))
    score, others = rounded(scores[best]), rounded(scores[near])
    before += int((others > score).sum())
    before += int(((others == score) & (ids[near] > ids[best])).sum())
    return int(best), before + 1


def rounded(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return scores in float64, rounded to 6 decimals (`DECIMALS`)."""
    return np.asarray(scores, np.float64).round(DECIMALS)


def _reach(scores: Any, least: NDArray[np.float32]) -> Any:
    """Return a mask of the scores, (n, r), that are at least their query's number in `least`, (n,)."""
    if isinstance(scores, np.ndarray):
        return scores >= least[:, None]
    import torch

    return scores >= torch.from_numpy(least).to(scores)[:, None]


def _kth_largest(scores: Any, k: int) -> NDArray[np.floating]:
    """Return the k-th largest of each query's scores, (n,); k is less than their number. NaN is the smallest."""
    if isinstance(scores, np.ndarray):
        return np.asarray(-np.partition(-scores, k - 1, axis=1)[:, k - 1])
    found: NDArray[np.floating] = -(-scores).topk(k, dim=1, largest=False).values.amax(dim=1).cpu().numpy()
    return found


def _below(scores: NDArray[np.floating], shifts: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return numbers below all scores that are equal to these when they are shifted, in float32, and rounded."""
    wide = np.asarray(scores, np.float64)
    return np.asarray(wide - SLACK - ROUNDING * (np.abs(wide + shifts) + np.abs(shifts)), np.float32)


def _is_first(places: NDArray[np.int64], ids: NDArray[np.int64], queries: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return a mask, (m,) bool, for m pairs of a query and a row: true for the first pair of each query and document.

    Args:
        places, ids: two numbers, (m, 2), and an id, (m,), for each pair; together they identify the row's document.
        queries: the index of the query of each pair, (m,).
    """
    keys = np.stack([*places.T, ids, queries])
    order = np.lexsort(keys)  # stable: the entries of one document keep their order
    differs = np.ones(len(order), bool)
    differs[1:] = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    is_first = np.zeros(len(order), bool)
    is_first[order[differs]] = True
    return is_first
