"""Fewer documents for a collection that is ranked again and again: those that are hard to tell from the right ones.

    queries ──> BM25 over all documents ──> the nearest of each query ─┐
    the right documents ───────────────────────────────────────────────┴──> a collection of a bounded size

A model's order of documents that no query is near to says little. BM25 chooses, and not a model, since a choice by one
model makes the score of that model low, and that of every other one high.
"""

import numpy as np
from numpy.typing import NDArray

from clearspan.common.ranking import BM25, first
from clearspan.eval.data.retrieval_data import RetrievalSet

NEAREST = 100
"""Most documents that one query brings."""
_BLOCK_SCORES = 1 << 24


def narrowed(collection: RetrievalSet, most: int) -> RetrievalSet:
    """Return the same queries among at most `most` documents: the right ones, the nearest of each query by BM25, and,
    if these are fewer, others by the hashes of their texts. There are more if more are right.

    Args:
        collection: one whose documents are all ranked for every query.
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
    found = np.full((len(collection.queries), NEAREST), -1, np.int64)
    rows = max(1, _BLOCK_SCORES // len(collection.documents))
    for start in range(0, len(found), rows):
        for row, scores in enumerate((counts[start : start + rows] @ weights).toarray(), start=start):
            best = first(scores, NEAREST, collection.precedence)
            best = best[scores[best] > 0]
            found[row, : len(best)] = best
    return found
