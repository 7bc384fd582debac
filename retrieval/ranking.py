"""BM25 over a collection of texts, the combination of BM25 scores with a model's scores, and the best texts of a query.

    texts -> words (`retrieval.stemming`) -> a weight for each word in each text
    query -> counts of its words, multiplied by the weights -> a score for each text

`bm25s` computes the weights, by Lucene's variant of BM25 with k1 = 1.5 and b = 0.75.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.stemming import PLAIN, WordFunction

if TYPE_CHECKING:  # takes a second to import
    from scipy.sparse import csc_array, csr_array

HYBRID_WEIGHT = 0.7
"""Default weight of a model's scores, 0 to 1, when they are combined with BM25 scores (`scale_and_shift`)."""

DEPTH = 1000
"""A right text that ranks below this counts as not found."""
DECIMALS = 6
"""Decimals of a score that decide its rank. Further decimals are float32 noise: scores of equal vectors differ in them,
depending on the position of the vectors in a matrix product."""


@dataclasses.dataclass(frozen=True)
class BM25:
    """A BM25 index of n texts.

    Attributes:
        vocabulary: word -> the column of the word in `weights`.
        weights: the BM25 weight of each word in each text, a sparse array (n, number of words).
    """

    vocabulary: Mapping[str, int]
    weights: "csc_array"

    @classmethod
    def of(cls, texts: Iterable[str], dtype: str = "float64", words: WordFunction = PLAIN) -> "BM25":
        """Create an index of texts. Until it is complete, memory holds an integer for each occurrence of a word.

        Args:
            dtype: the dtype of the weights.
            words: function that splits a text into words.
        """
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
        """Return the word counts of m queries, a sparse float64 array (m, len(vocabulary)).

        Args:
            texts: the queries; words that are not in the vocabulary are ignored.
            vocabulary: word -> column, the attribute `vocabulary` of an index.
            words: function that splits a text into words; it must be the function that the index was made with.
        """
        from scipy.sparse import csr_array

        columns = [[vocabulary[word] for word in words(text) if word in vocabulary] for text in texts]
        ends = np.cumsum([0, *map(len, columns)])
        rows = np.concatenate([[], *columns]).astype(np.int64)
        counts = csr_array((np.ones(len(rows)), rows, ends), shape=(len(texts), len(vocabulary)))
        counts.sum_duplicates()
        return counts


def scale_and_shift(scores: NDArray[np.floating], weight: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return a factor a and an offset b for each query: a * scores + b has mean 0 and standard deviation `weight`.

    If all texts have the same score for a query, up to float32 noise, a and b are 0 for this query. For example, all
    BM25 scores are 0 if no text contains a word of the query.

    Args:
        scores: the scores of m queries for n texts, (m, n).
        weight: the weight of these scores in a sum with other scores that are scaled in the same way.

    Returns:
        (a, b), (m,) float64 each.
    """
    mean, deviation = scores.mean(axis=1, dtype=np.float64), scores.std(axis=1, dtype=np.float64)
    is_flat = deviation <= 10.0**-DECIMALS * np.abs(scores).max(axis=1, initial=0)
    a = np.divide(weight, deviation, out=np.zeros_like(deviation), where=~is_flat)
    return a, -a * mean


def top_indices(scores: NDArray[np.floating], depth: int, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the indices of the texts with the highest scores for one query, highest first, as int64.

    Scores are compared after rounding to 6 decimals (`DECIMALS`). Among equal scores, the text with the higher id ranks
    first, as in trec_eval. So the order of the texts in the collection, where relevant texts may come first, has no
    effect.

    Args:
        scores: the score of each of n texts, (n,).
        depth: the number of indices to return; if it is larger than n, all n are returned.
        ids: the id of each text, (n,), which breaks ties; among equal ids, the lower index ranks first.
    """
    rows = np.arange(len(scores))
    if depth < len(scores):
        lowest = np.partition(scores, len(scores) - depth)[len(scores) - depth]
        rows = np.flatnonzero(scores >= lowest - 10.0**-DECIMALS)
    order = np.lexsort((~ids[rows], -rounded(scores[rows])))  # ~id falls where id rises, and cannot overflow
    return rows[order[:depth]]


def rounded(scores: NDArray[np.floating]) -> NDArray[np.float64]:
    """Return scores in float64, rounded to 6 decimals (`DECIMALS`)."""
    return np.asarray(scores, np.float64).round(DECIMALS)
