"""Selection of the best rows for each query, from scores that are computed for one block of rows after another.

    scores of a block -> rows that reach the query's threshold -> sorted together with the query's best rows so far
                      -> the `top` best of them -> a higher threshold for the next block

The threshold of a query is a little below the lowest score among its `top` best rows so far, so that few rows of a
block must be sorted. Scores are compared after rounding to six decimals. Among equal scores, the row with the higher id
is first, as in trec_eval. If several rows are chunks of one document, only the best of them is returned, and among
equally good ones the first.
"""

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.ranking import DECIMALS, rounded

SLACK = 10.0**-DECIMALS
ROUNDING = 4e-7
"""Maximum relative error of a score in float32 after several additions."""


class Best:
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

    def add(
        self,
        scores: NDArray[np.float32],
        rows: NDArray[np.int64],
        ids: NDArray[np.int64],
        places: NDArray[np.int64] | None,
    ) -> None:
        """Compare r further rows with the best rows so far, for each of the n queries.

        Args:
            scores: the scores of the rows for each query, (n, r).
            rows: the indices of the rows among all rows that are searched, (r,).
            ids: the ids of the rows, or for chunks the ids of their documents, (r,).
            places: two numbers for each row, (r, 2), which with the id identify its document, since different documents
                may have the same id (`RowBlock.places`). None if no row is a chunk.
        """
        query, at = np.divmod(np.flatnonzero(scores >= self._least[:, None]), len(rows))
        if not len(query):
            return
        added = rounded(scores[query, at] + self._shifts[query])
        self._query, self._score = np.append(self._query, query), np.append(self._score, added)
        self._row, self._id = np.append(self._row, rows[at]), np.append(self._id, ids[at])
        if places is not None:
            self._place = np.append(self._place, places[at], axis=0)
        order = np.lexsort((self._row, ~self._id, -self._score, self._query))
        if places is not None:
            order = order[_is_first(self._place[order], self._id[order], self._query[order])]
        starts = np.searchsorted(self._query[order], np.arange(len(self._shifts)))
        order = order[np.arange(len(order)) - starts[self._query[order]] < self._top]
        self._query, self._score = self._query[order], self._score[order]
        self._row, self._id = self._row[order], self._id[order]
        if places is not None:
            self._place = self._place[order]
        self._raise_least()

    def _raise_least(self) -> None:
        ends = np.searchsorted(self._query, np.arange(len(self._shifts)), "right")
        starts = np.searchsorted(self._query, np.arange(len(self._shifts)))
        full = np.flatnonzero(ends - starts == self._top)
        worst, shifts = self._score[ends[full] - 1], self._shifts[full]
        least = worst - shifts - SLACK - ROUNDING * (np.abs(worst) + np.abs(shifts))
        self._least[full] = np.maximum(self._least[full], least.astype(np.float32))

    @property
    def found(self) -> list[tuple[list[int], list[float]]]:
        """For each query, the indices of its best rows, and their scores with the query's shift added; best first."""
        bounds = np.searchsorted(self._query, np.arange(len(self._shifts) + 1))
        pairs = zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True)
        return [(self._row[start:end].tolist(), self._score[start:end].tolist()) for start, end in pairs]


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
