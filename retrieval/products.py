"""Vectors of texts, dense, sparse or with BM25, and their dot products: the scores of documents for queries."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.bm25 import BM25, Scores

if TYPE_CHECKING:  # takes a second to import
    from scipy.sparse import csr_array

Floats = NDArray[np.floating[Any]]
Vectors: TypeAlias = "Floats | csr_array | Scores | BM25 | Joined"
"""Vectors as rows of a dense array or of a sparse matrix. With BM25, `Scores` stand for the vectors of the queries, and
the index for the vectors of the documents. `Joined` has a dense array and BM25 side by side."""
BLOCK_SCORES = 1 << 24
"""The number of scores in a block. Memory holds a few arrays of this size, which take 64 MB each in float32."""


@dataclass(frozen=True)
class Joined:
    """n vectors, each of which consists of a dense part, from a model, and a part from BM25.

    The dot product of two such vectors is the sum of the dot products of their parts.

    Attributes:
        dense: the dense parts of the n vectors, (n, d), where d is their dimension.
        words: the parts from BM25: of queries their `Scores`, of documents their index.
    """

    dense: Floats
    words: Scores | BM25

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of vectors, and the dimension of their dense parts."""
        return self.dense.shape


def products(queries: Vectors, documents: Vectors, rows: slice = slice(None)) -> Floats:
    """Return the dot products of the vectors of m queries and n documents, (m, n).

    The vectors of the queries and of the documents must be of the same type.

    Args:
        rows: the slice of all queries that selects these m.
    """
    if isinstance(queries, Joined):
        assert isinstance(documents, Joined) and isinstance(queries.words, Scores)
        return products(queries.dense, documents.dense, rows) + products(queries.words, documents.words, rows)
    if isinstance(queries, Scores):
        return np.asarray(queries[rows].array())
    assert not isinstance(queries, BM25) and not isinstance(documents, (Joined, Scores, BM25))
    product: Any = queries[rows] @ documents.T
    return product if isinstance(product, np.ndarray) else product.toarray()


def score_blocks(queries: Vectors, documents: Vectors, max_scores: int | None = None) -> Iterator[tuple[int, Floats]]:
    """Yield the scores of all n documents for all queries, in blocks of consecutive queries.

    Args:
        queries, documents: the vectors, whose dot products are the scores.
        max_scores: the maximum number of scores in a block of several queries; None for `BLOCK_SCORES`.

    Yields:
        The index of the first query of a block, and the scores for the k queries of the block, (k, n).
    """
    rows = max(1, (max_scores or BLOCK_SCORES) // max(1, documents.shape[0]))
    for start in range(0, queries.shape[0], rows):
        yield start, products(queries, documents, slice(start, start + rows))
