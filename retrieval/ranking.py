"""BM25 over a collection of texts, and the combination of BM25 scores with a model's scores.

    texts -> words (`retrieval.stemming`) -> a weight for each word in each text
    query -> counts of its words, multiplied by the weights -> a score for each text

`bm25s` computes the weights, by Lucene's variant of BM25 with k1 = 1.5 and b = 0.75.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from clearspan.retrieval.stemming import PLAIN, WordFunction

if TYPE_CHECKING:  # takes a second to import
    from scipy.sparse import csc_array, csr_array


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
