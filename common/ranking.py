"""BM25 over a collection of texts, the combination of BM25 scores with a model's scores, and the top of a ranking.

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
"""Default weight of a model's scores when they are added to BM25's (`scale_and_shift`)."""

DEPTH = 1000
"""A right text that ranks below this counts as not found."""
DECIMALS = 6
"""Decimals of a score that decide its rank. Further decimals are float32 noise: scores of equal vectors differ in them,
depending on the position of the vectors in a matrix product."""


@dataclasses.dataclass(frozen=True)
class BM25:
    """A BM25 index of n texts. `vocabulary`: word -> its column of `weights`, (n, number of words)."""

    vocabulary: Mapping[str, int]
    weights: "csc_array"

    @classmethod
    def of(cls, texts: Iterable[str], dtype: str = "float64", words: WordFunction = PLAIN) -> "BM25":
        """Index texts, which `words` splits into words. Memory holds the ids of all words of all texts."""
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
        """Return the word counts of m queries, a sparse float64 array (m, len(vocabulary)); ignore unknown words.

        Args:
            texts: the queries.
            vocabulary: word -> its column.
            words: function that splits a text into words; it must be the one that the vocabulary was made with.
        """
        from scipy.sparse import csr_array

        columns = [[vocabulary[word] for word in words(text) if word in vocabulary] for text in texts]
        ends = np.cumsum([0, *map(len, columns)])
        rows = np.concatenate([[], *columns]).astype(np.int64)
        counts = csr_array((np.ones(len(rows)), rows, ends), shape=(len(texts), len(vocabulary)))
        counts.sum_duplicates()
        return counts


def scale_and_shift(scores: NDArray[np.floating], weight: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a and b, (m,) float64 each: for each query, a x scores + b has mean 0 and standard deviation `weight`.

    If all scores of a query are equal, up to float32 noise, a and b are 0. Examples are BM25 scores for words that no
    text contains, and a model's scores for equal vectors.

    Args:
        scores: the scores of m queries for n texts, (m, n).
    """
    mean, deviation = scores.mean(axis=1, dtype=np.float64), scores.std(axis=1, dtype=np.float64)
    is_flat = deviation <= 10.0**-DECIMALS * np.abs(scores).max(axis=1, initial=0)
    a = np.divide(weight, deviation, out=np.zeros_like(deviation), where=~is_flat)
    return a, -a * mean


def first(scores: NDArray[np.floating], depth: int, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the positions of the `depth` highest of `scores` (n,), highest first: int64.

    Scores that agree to `DECIMALS` are equal. Among equal scores the higher id ranks first, as in trec_eval, so the
    order of the collection, in which relevant texts may come first, has no effect.

    Args:
        ids: (n,), the ids that break ties; among equal ids, the first position ranks first.
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
