"""The rank of each query's first right document, without the rest of the ranking.

    vectors of queries and documents ──> a block of scores ──> number of documents before the first right one

The ranks equal the ranks in `eval.tasks.retrieval.search`: scores that agree to six decimals are equal, and among equal
scores the document with the higher id is first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearspan.common.ranking import DECIMALS, DEPTH, rounded
from clearspan.eval.data.retrieval_data import Ints, RetrievalSet
from clearspan.eval.models.similarity import Floats, Vectors, products

BLOCK_SCORES = 1 << 24
"""Number of scores in a block; memory holds a few arrays of this size, 64 MB each in float32."""
_STEP = 10.0**-DECIMALS


@dataclass(frozen=True)
class Ranks:
    """Ranks of m queries.

    Attributes:
        ranks: for each query, the rank of its first right document, from 1, int64 (m,).
        first: for each query, the position of the document that ranks first, int64 (m,).
    """

    ranks: Ints
    first: Ints

    @property
    def reciprocal(self) -> NDArray[np.float64]:
        """The reciprocal rank of each query, (m,); 0 beyond rank `DEPTH`."""
        return np.where(self.ranks <= DEPTH, 1 / self.ranks, 0.0)

    def part(self, rows: Ints) -> "Ranks":
        """Return the ranks of some of the queries."""
        return Ranks(self.ranks[rows], self.first[rows])

    @classmethod
    def concatenate(cls, parts: Sequence["Ranks"]) -> "Ranks":
        """Return the ranks of the queries of one or more parts."""
        return cls(np.concatenate([part.ranks for part in parts]), np.concatenate([part.first for part in parts]))


def ranks(queries: Vectors, documents: Vectors, collection: RetrievalSet) -> Ranks:
    """Rank all documents of a collection for every query; return the ranks of the first right documents.

    Memory never holds queries x documents.

    Args:
        queries, documents: (m, dim) and (n, dim), of the same type.
    """
    right_ranks, nearest = np.empty(queries.shape[0], np.int64), np.empty(queries.shape[0], np.int64)
    for start, block in blocks(queries, documents):
        for row, scores in enumerate(block, start=start):
            right, right_ranks[row] = _rank(scores, collection.relevant[row], collection.precedence)
            nearest[row] = right if right_ranks[row] == 1 else int(scores.argmax())
    return Ranks(right_ranks, nearest)


def blocks(queries: Vectors, documents: Vectors) -> Iterator[tuple[int, Floats]]:
    """Yield, for each block of queries, the position of its first query and the scores (rows, n)."""
    rows = max(1, BLOCK_SCORES // max(1, documents.shape[0]))
    for start in range(0, queries.shape[0], rows):
        yield start, products(queries[start : start + rows], documents)


def _rank(scores: Floats, relevant: Ints, precedence: Ints) -> tuple[int, int]:
    """Return the first right document and its rank, by the scores (n,) of one query."""
    right = relevant[np.lexsort((precedence[relevant], rounded(scores[relevant])))[-1]]
    bound = float(scores[right])
    before = int((scores > bound + _STEP).sum())
    near = np.flatnonzero((scores >= bound - _STEP) & (scores <= bound + _STEP))
    score, others = rounded(scores[right]), rounded(scores[near])
    before += int((others > score).sum())
    before += int(((others == score) & (precedence[near] > precedence[right])).sum())
    return int(right), before + 1
