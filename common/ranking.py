"""BM25 over a collection of texts, its scores beside a model's, and the first of a ranking.

BM25 is Lucene's variant, k1 1.5, b 0.75, by `bm25s`:

texts -> words (`common.stemming`) -> a weight for each word of each text
query -> counts of its words x weights -> scores
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearspan.common.stemming import PLAIN, WordFunction

if TYPE_CHECKING:  # takes a second to import
    from scipy.sparse import csc_array, csr_array

HYBRID_WEIGHT = 0.7
"""Default weight of a model's scores beside BM25's (`scale_and_shift`)."""

DEPTH = 1000
"""A right text that ranks below this is not found."""
DECIMALS = 6
"""Decimals of a score that rank. Those beyond are noise of float32: they differ for equal vectors, by their place in a
product of matrices."""


@dataclasses.dataclass(frozen=True)
class BM25:
    """An index of n texts. `vocabulary`: word -> its column of `weights`, (n, number of words)."""

    vocabulary: Mapping[str, int]
    weights: "csc_array"

    @classmethod
    def of(cls, texts: Iterable[str], dtype: str = "float64", words: WordFunction = PLAIN) -> "BM25":
        """Index texts by their `words`. Memory holds the numbers of all of them."""
        import bm25s
        from scipy.sparse import csc_array

        vocabulary: dict[str, int] = {}
        ids = [[vocabulary.setdefault(word, len(vocabulary)) for word in words(text)] for text in texts]
        if not vocabulary:
            return cls(vocabulary, csc_array((len(ids), 0), dtype=dtype))
        index = bm25s.BM25(dtype=dtype)
        index.index((ids, vocabulary), create_empty_token=False, show_progress=False)
        columns = (index.scores[part] for part in ("data", "indices", "indptr"))
        return cls(vocabulary, csc_array(tuple(columns), shape=(len(ids), len(vocabulary))))

    @staticmethod
    def counts(texts: Sequence[str], vocabulary: Mapping[str, int], words: WordFunction = PLAIN) -> "csr_array":
        """Return how often each of m queries has each word of a vocabulary, (m, len(vocabulary)) float64.

        Args:
            words: those that the vocabulary was made of.
        """
        from scipy.sparse import csr_array

        columns = [[vocabulary[word] for word in words(text) if word in vocabulary] for text in texts]
        ends = np.cumsum([0, *map(len, columns)])
        rows = np.concatenate([[], *columns]).astype(np.int64)
        counts = csr_array((np.ones(len(rows)), rows, ends), shape=(len(texts), len(vocabulary)))
        counts.sum_duplicates()
        return counts


def scale_and_shift(scores: NDArray[np.floating], weight: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a and b, (m,) float64 each, such that a x scores + b has mean 0 and deviation `weight` for each query.

    The scores of a query that are all equal, such as BM25's for words that no text holds, become 0; so do those of
    equal vectors, which noise tells apart.

    Args:
        scores: of m queries and n texts, (m, n).
    """
    mean, deviation = scores.mean(axis=1, dtype=np.float64), scores.std(axis=1, dtype=np.float64)
    is_flat = deviation <= 10.0**-DECIMALS * np.abs(scores).max(axis=1, initial=0)
    a = np.divide(weight, deviation, out=np.zeros_like(deviation), where=~is_flat)
    return a, -a * mean


def first(scores: NDArray[np.floating], depth: int, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the `depth` highest of `scores` (n,), highest first: int64.

    Scores that agree to `DECIMALS` are equal. Of equal scores, the one with the higher id is first, as in trec_eval.
    The order of a collection, in which relevant texts may come first, decides nothing.

    Args:
        ids: (n,); of equal ids too, the first position is first.
    """
    rows = np.arange(len(scores))
    if depth < len(scores):
        lowest = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        rows = np.flatnonzero(scores >= lowest - 10.0**-DECIMALS)
    order = np.lexsort((~ids[rows], -rounded(scores[rows])))  # ~id falls where id rises, and cannot overflow
    return rows[order[:depth]]


def rounded(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return scores rounded to `DECIMALS`, float64."""
    return np.asarray(scores, np.float64).round(DECIMALS)
