"""Compute the rank of each query's best relevant document, without the rest of the ranking.

    vectors of queries and documents ──> a block of scores ──> number of documents before the best relevant document

The ranks are the same as in `eval.tasks.retrieval.search`, which computes whole rankings. Scores that agree to six
decimals count as equal. Among equal scores, the document with the larger `RetrievalSet.tie_keys` ranks first. If
documents are cut into chunks, a document has the score of its best chunk, as in a search.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.products import Floats, Vectors, score_blocks
from clearspan.retrieval.retrieval_set import Ints, RetrievalSet
from clearspan.retrieval.topk import best_rank

DEPTH = 1000
"""A relevant document that ranks below this counts as not found."""


@dataclass(frozen=True)
class Chunks:
    """The chunks of n documents, which are compared with queries in place of the documents.

    Attributes:
        texts: the r chunks of all documents: those of the first document, those of the second one, and so on.
        starts: the index of each document's first chunk, (n,) int64. Every document has a chunk.
    """

    texts: list[str]
    starts: Ints

    @functools.cached_property
    def documents(self) -> Ints:
        """The index of each chunk's document, (r,) int64."""
        return np.repeat(np.arange(len(self.starts)), np.diff(self.starts, append=len(self.texts)))

    def rows(self, document: int) -> slice:
        """Return the indices of a document's chunks."""
        end = self.starts[document + 1] if document + 1 < len(self.starts) else len(self.texts)
        return slice(int(self.starts[document]), int(end))

    def best(self, scores: Floats) -> Floats:
        """Return the score of each document's best chunk, (k, n), from the scores of all chunks, (k, r)."""
        best: Floats = np.maximum.reduceat(scores, self.starts, axis=1)
        return best


@dataclass(frozen=True)
class Ranks:
    """The rank of the best relevant document, and the document that ranks first, for each of m queries.

    Attributes:
        ranks: the rank of each query's best relevant document, (m,) int64, from 1.
        first: the index of the document that ranks first for each query, (m,) int64.
    """

    ranks: Ints
    first: Ints

    @property
    def reciprocal(self) -> NDArray[np.float64]:
        """The reciprocal rank of each query, (m,) float64; 0 if the rank is larger than `DEPTH`, 1,000."""
        return np.where(self.ranks <= DEPTH, 1 / self.ranks, 0.0)

    def select(self, rows: Ints) -> "Ranks":
        """Return the results of the queries with the indices `rows`, in the order of `rows`."""
        return Ranks(self.ranks[rows], self.first[rows])

    @classmethod
    def concatenate(cls, parts: Sequence["Ranks"]) -> "Ranks":
        """Return the results of several sets of queries, one set after another, as one object."""
        return cls(np.concatenate([part.ranks for part in parts]), np.concatenate([part.first for part in parts]))


def ranks(queries: Vectors, documents: Vectors, collection: RetrievalSet, chunks: Chunks | None = None) -> Ranks:
    """Rank all documents of a collection for every query; return the rank of each query's best relevant document.

    Memory holds the scores of one block of queries, never of all queries.

    Args:
        queries: the vectors of the m queries, (m, dim).
        documents: the vectors of the n documents, (n, dim), of the same type; if they are cut into r chunks, the
            vectors of the chunks, (r, dim).
        collection: the collection. Its `candidates` and `own_document`, which exclude documents from rankings, must be
            None.
        chunks: the chunks of the documents; None if the documents are not cut.
    """
    best_ranks, first = np.empty(queries.shape[0], np.int64), np.empty(queries.shape[0], np.int64)
    for start, block in score_blocks(queries, documents):
        for row, scores in enumerate(chunks.best(block) if chunks else block, start=start):
            best, best_ranks[row] = best_rank(scores, collection.relevant[row], collection.tie_keys)
            first[row] = best if best_ranks[row] == 1 else int(scores.argmax())
    return Ranks(best_ranks, first)
