"""A comparison of systems on 40 queries among 60 texts."""

import numpy as np

from clearspan.retrieval.comparison import SystemComparison
from clearspan.retrieval.retrieval_set import RetrievalSet

QUERIES, TEXTS = 40, 60


def comparison(rounds: list[tuple[np.ndarray, np.ndarray]] | None = None) -> SystemComparison:
    """The first half are test queries, and the other half dev queries."""
    right = [np.array([row]) for row in range(QUERIES)]
    texts, queries = ([f"{kind} {row}" for row in range(number)] for kind, number in (("t", TEXTS), ("q", QUERIES)))
    rows = np.arange(QUERIES)
    return SystemComparison(RetrievalSet(texts, queries, right, right), rounds or [(rows[20:], rows[:20])])
