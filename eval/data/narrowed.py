"""Reduce a collection to the documents that matter for a score, because training ranks it again and again.

    queries ──> BM25 over all documents ──> the nearest documents of each query ─┐
    the relevant documents ──────────────────────────────────────────────────────┴──> a collection of bounded size

Documents that are far from every query hardly affect a score. The documents are selected by BM25 and not by a model. A
model would select those that it confuses most with the relevant documents, so the collection would be harder for this
model than for all others.
"""

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.bm25 import BM25
from clearspan.retrieval.products import score_blocks
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.retrieval.scoring import EARLIER_B, EARLIER_K1, Scoring
from clearspan.retrieval.stemming import PLAIN
from clearspan.retrieval.topk import top_indices

NEAREST = 100
"""The most documents that are selected for one query."""
SCORING = Scoring(PLAIN, EARLIER_K1, EARLIER_B)
"""How BM25 ranks the documents: fixed, so that the checkpoints of all versions are chosen among the same documents."""


def narrowed(collection: RetrievalSet, max_documents: int) -> RetrievalSet:
    """Return a collection with the same queries, but with fewer documents.

    The new collection has all relevant documents. Other documents are added until there are `max_documents`: first the
    document that BM25 ranks first for each query, then the document that it ranks second, and so on up to the 100th;
    then the remaining documents, in an order that depends only on their ids or texts. A collection with at most
    `max_documents` documents is returned unchanged.

    Args:
        collection: a collection in which all documents are ranked for every query (`candidates` and `own_document` are
            None).
        max_documents: the number of documents in the new collection. It is exceeded only if more are relevant.
    """
    if len(collection.documents) <= max_documents:
        return collection
    chosen = dict.fromkeys(np.concatenate(collection.relevant).tolist())
    for nearest in (*_nearest(collection).T, np.argsort(-collection.tie_keys)):
        for position in nearest.tolist():
            if len(chosen) >= max_documents:
                break
            if position >= 0:
                chosen[position] = None
    return collection.select_documents(np.array(sorted(chosen), np.int64))


def _nearest(collection: RetrievalSet) -> NDArray[np.int64]:
    """Return the positions of the 100 documents (NEAREST) that BM25 ranks first for each of m queries, (m, 100) int64.

    If fewer than 100 documents share a word with a query, the rest of the query's row is filled with -1.
    """
    index = BM25.of(collection.documents, SCORING, "float32")
    nearest = np.full((len(collection.queries), NEAREST), -1, np.int64)
    for start, block in score_blocks(index.scores(collection.queries), index):
        for row, scores in enumerate(block, start=start):
            best = top_indices(scores, NEAREST, collection.tie_keys)
            best = best[scores[best] > 0]
            nearest[row, : len(best)] = best
    return nearest
