"""Vectors of texts, dense, sparse or both, and their dot products, which are the scores of documents for queries."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # takes a second to import
    from scipy.sparse import csr_array

Floats = NDArray[np.floating[Any]]
Vectors: TypeAlias = "Floats | csr_array | Joined"
"""Vectors as rows of a dense array, of a sparse matrix, or of both side by side (`Joined`)."""
BLOCK_SCORES = 1 << 24
"""The number of scores in a block. Memory holds a few arrays of this size, which take 64 MB each in float32."""


@dataclass(frozen=True)
class Joined:
    """n vectors, each of which consists of a dense part, from a model, and a sparse part, from BM25.

    The dot product of two such vectors is the sum of the dot products of their parts.

    Attributes:
        dense: the dense parts of the n vectors, (n, d), where d is their dimension.
        sparse: the sparse parts, (n, v), where v is the number of words in BM25's vocabulary.
    """

    dense: Floats
    sparse: "csr_array"

    @property
    def shape(self) -> tuple[int, int]:
        """The number of vectors, and their dimension, which is the sum of the dimensions of the two parts."""
        return self.dense.shape[0], self.dense.shape[1] + self.sparse.shape[1]

    def __getitem__(self, rows: slice) -> "Joined":
        return Joined(self.dense[rows], self.sparse[rows])


def products(queries: Vectors, documents: Vectors) -> Floats:
    """Return the dot products of the vectors of m queries and n documents, (m, n).

    The vectors of the queries and of the documents must be of the same type.
    """
    if isinstance(queries, Joined):
        assert isinstance(documents, Joined)
        return products(queries.dense, documents.dense) + products(queries.sparse, documents.sparse)
    assert not isinstance(documents, Joined)
    product: Any = queries @ documents.T
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
        yield start, products(queries[start : start + rows], documents)
