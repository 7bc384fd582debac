"""BM25 over a collection of texts, its scores beside a model's, and the first of a ranking.

BM25 is Lucene's variant, k1 1.5, b 0.75, by `bm25s`:

texts -> words (`common.words`), lower-cased -> a weight for each word of each text
query -> counts of its words x weights -> scores
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearspan.common.words import words

if TYPE_CHECKING:  # takes a second to import
    from scipy.sparse import csc_array, csr_array

HYBRID_WEIGHT = 0.7
"""Default weight of a model's scores beside BM25's (`scale_and_shift`)."""


@dataclasses.dataclass(frozen=True)
class BM25:
    """An index of n texts. `vocabulary`: word -> its column of `weights`, (n, number of words)."""

    vocabulary: Mapping[str, int]
    weights: "csc_array"

    @classmethod
    def of(cls, texts: Iterable[str], dtype: str = "float64") -> "BM25":
        """Index texts. Memory holds the numbers of all their words."""
        import bm25s
        from scipy.sparse import csc_array

        vocabulary: dict[str, int] = {}
        ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(text.lower())] for text in texts]
        if not vocabulary:
            return cls(vocabulary, csc_array((len(ids), 0), dtype=dtype))
        index = bm25s.BM25(dtype=dtype)
        index.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        columns = (index.scores[part] for part in ("data", "indices", "indptr"))
        return cls(vocabulary, csc_array(tuple(columns), shape=(len(ids), len(vocabulary))))

    @staticmethod
    def counts(texts: Sequence[str], vocabulary: Mapping[str, int]) -> "csr_array":
        """Return how often each of m queries has each word of a vocabulary, (m, len(vocabulary)) float64."""
        from scipy.sparse import csr_array

        columns = [[vocabulary[word] for word in words(text.lower()) if word in vocabulary] for text in texts]
        ends = np.cumsum([0, *map(len, columns)])
        rows = np.concatenate([[], *columns]).astype(np.int64)
        counts = csr_array((np.ones(len(rows)), rows, ends), shape=(len(texts), len(vocabulary)))
        counts.sum_duplicates()
        return counts


def scale_and_shift(scores: NDArray[np.floating], weight: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a and b, (m,) float64 each, such that a x scores + b has mean 0 and deviation `weight` for each query.

    The scores of a query that are all equal, such as BM25's for words that no text holds, become 0.

    Args:
        scores: of m queries and n texts, (m, n).
    """
    mean, deviation = scores.mean(axis=1, dtype=np.float64), scores.std(axis=1, dtype=np.float64)
    is_flat = deviation <= 1e-7 * np.abs(scores).max(axis=1, initial=0)
    a = np.divide(weight, deviation, out=np.zeros_like(deviation), where=~is_flat)
    return a, -a * mean


def first(scores: NDArray[np.floating], depth: int) -> NDArray[np.int64]:
    """Return the positions of the `depth` highest of `scores` (n,), highest first, ties in their order: int64."""
    if depth >= len(scores):
        return np.argsort(-scores, kind="stable")
    lowest = np.partition(scores, len(scores) - depth)[len(scores) - depth]
    above = np.flatnonzero(scores > lowest)
    rows = np.concatenate([above, np.flatnonzero(scores == lowest)[: depth - len(above)]])
    return rows[np.argsort(-scores[rows], kind="stable")]
