"""Texts that held-out queries must be told from during training: those that share the most words with a query.

    queries and their texts, a sample of the texts that are trained on ──> BM25 ──> the nearest of each query, added

Among the few held-out texts alone nearly every query finds its own, and the checkpoint that tells near texts apart best
would not be seen. All texts of the collection would take longer to embed than training. BM25 chooses, so that the
candidates are the same for every model and at every step.
"""

import dataclasses
from collections.abc import Iterable

import numpy as np

from clearspan.common import same_text
from clearspan.common.ranking import BM25
from clearspan.eval.data.retrieval import Collection

TOGETHER = 64
"""Number of queries that are compared with all texts at once."""


def with_hard_candidates(collection: Collection, texts: Iterable[str], number: int) -> Collection:
    """Return a collection with further documents: for each query, the `number` texts that BM25 ranks first among those
    that are no documents yet.
    """
    known = set(map(same_text.key, collection.documents))
    others = list({same_text.key(text): text for text in texts if same_text.key(text) not in known}.values())
    index = BM25.of(others)
    if not index.vocabulary:
        return collection
    counts, chosen = BM25.counts(collection.queries, index.vocabulary), dict[int, None]()
    for start in range(0, len(collection.queries), TOGETHER):
        scores = (counts[start : start + TOGETHER] @ index.weights.T).toarray()
        for row in scores:
            best = np.argsort(-row, kind="stable")[:number]
            chosen.update(dict.fromkeys(best[row[best] > 0].tolist()))
    more = [others[place] for place in chosen]
    return dataclasses.replace(collection, documents=[*collection.documents, *more])


def fewer(collection: Collection, limit: int) -> Collection:
    """Return the first `limit` queries of a collection, with their documents."""
    relevant = collection.relevant[:limit]
    places = np.unique(np.concatenate(relevant))
    return dataclasses.replace(
        collection,
        documents=[collection.documents[place] for place in places.tolist()],
        queries=collection.queries[:limit],
        relevant=[np.searchsorted(places, each) for each in relevant],
        grades=collection.grades[:limit],
    )
