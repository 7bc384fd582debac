"""A smaller collection for repeated ranking: the right documents, and the documents that are hardest to tell from them.

    queries ──> BM25 over all documents ──> the nearest of each query ─┐
    the right documents ───────────────────────────────────────────────┴──> a collection of a bounded size

Documents that are far from every query hardly affect a score. BM25 selects the documents, since a selection by a model
would lower the score of this model and raise the scores of all others.
"""

import numpy as np
from numpy.typing import NDArray

from clearspan.common.ranking import BM25, first
from clearspan.eval.data.retrieval_data import RetrievalSet

NEAREST = 100
"""Most documents that are selected for one query."""
_BLOCK_SCORES = 1 << 24


def narrowed(collection: RetrievalSet, most: int) -> RetrievalSet:
    """Return the same queries with at most `most` documents.

    These are the right documents, the nearest documents of each query by BM25 and, if these are fewer than `most`,
    further documents in the order of their hashes. All right documents are kept, even if they exceed `most`.

    Args:
        collection: a collection without candidates per query.
    """
    if len(collection.documents) <= most:
        return collection
    chosen = dict.fromkeys(np.concatenate(collection.relevant).tolist())
    for nearest in (*_nearest(collection).T, np.argsort(-collection.precedence)):
        for position in nearest.tolist():
            if len(chosen) >= most:
                break
            if position >= 0:
                chosen[position] = None
    return collection.among(np.array(sorted(chosen), np.int64))


def _nearest(collection: RetrievalSet) -> NDArray[np.int64]:
    """Return the positions of the nearest documents of each query, (m, NEAREST); -1 where no word is shared."""
    index = BM25.of(collection.documents, "float32")
    weights = index.weights.tocsr().T
    counts = BM25.counts(collection.queries, index.vocabulary)
    nearest = np.full((len(collection.queries), NEAREST), -1, np.int64)
    rows = max(1, _BLOCK_SCORES // len(collection.documents))
    for start in range(0, len(nearest), rows):
        for row, scores in enumerate((counts[start : start + rows] @ weights).toarray(), start=start):
            best = first(scores, NEAREST, collection.precedence)
            best = best[scores[best] > 0]
            nearest[row, : len(best)] = best
    return nearest
