"""Baselines that compare texts by their words, `--model bow`, `tfidf` and `bm25`.

    bow     counts of words, cosine                                  ┐ scikit-learn, with its defaults
    tfidf   the same, weighted by inverse document frequency         ┘
    bm25    BM25 (Lucene's variant, k1 1.5, b 0.75): scores of documents for a query; by `bm25s`

A baseline is fitted on the task's own texts: a collection's documents, or all texts of a task of pairs. It uses no
labels, but it has seen the texts that are scored. All three compare the same words (`common.words`), lower-cased,
without a list of stop words. Vectors are sparse: memory never holds texts x vocabulary.
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clearspan.common.ranking import BM25
from clearspan.common.stemming import PLAIN, WordFunction
from clearspan.common.words import words
from clearspan.eval.models.similarity import Similarity, TextPairs, UnscoredError, Vectors

_DECIMALS = 12  # as common.encoder.embedder.cosines


class _Fitted(NamedTuple):
    """A baseline fitted on n documents: a function from queries to vectors, and the vectors of the documents.

    Both have a column for each word of the vocabulary.
    """

    queries: Callable[[Sequence[str]], csr_array]
    documents: csr_array


class Lexical(Similarity):
    """A baseline that compares words.

    Args:
        name: a key of BASELINES.
        of: splits a text into the words that BM25 compares; the other baselines ignore it.
    """

    def __init__(self, name: str, of: WordFunction = PLAIN) -> None:
        self.name = name
        self._of = of
        self.measure = "BM25 score" if name == "bm25" else "cosine"
        self.settings = {"fitted_on": "this task's texts"}

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return sparse vectors of queries and documents, float32, fitted on the documents."""
        fitted = self._fit(documents)
        return fitted.queries(queries).astype(np.float32), fitted.documents.astype(np.float32)

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Return the similarity of each pair, by subset, fitted on all texts.

        BM25 is the mean of both directions: each text of the pair is once the query and once the document.
        """
        texts = [text for left, right in subsets.values() for text in [*left, *right]]
        place = {text: number for number, text in enumerate(dict.fromkeys(texts))}
        fitted = self._fit(list(place))
        queries = fitted.queries(list(place))
        documents = fitted.documents
        similarities = {}
        for name, sides in subsets.items():
            left, right = (np.array([place[text] for text in side], np.int64) for side in sides)
            both = (queries[left] * documents[right]).sum(axis=1) + (queries[right] * documents[left]).sum(axis=1)
            similarities[name] = np.asarray(both / 2, np.float64).round(_DECIMALS)
        return similarities

    def _fit(self, documents: Sequence[str]) -> _Fitted:
        if not any((self._of if self.name == "bm25" else words)(text) for text in documents):
            raise UnscoredError(f"its texts hold no word of two letters, which the baseline {self.name} compares")
        return _bm25(documents, self._of) if self.name == "bm25" else BASELINES[self.name](documents)


def _tfidf(documents: Sequence[str], use_idf: bool = True) -> _Fitted:
    """Return unit vectors of counts of words, weighted by inverse document frequency if `use_idf`."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    weights = TfidfVectorizer(tokenizer=words, token_pattern=None, use_idf=use_idf)
    of_documents = weights.fit_transform(documents)
    return _Fitted(lambda texts: csr_array(weights.transform(texts)), csr_array(of_documents))


def _bm25(documents: Sequence[str], of: WordFunction = PLAIN) -> _Fitted:
    """Return vectors whose products are BM25's scores: counts of words for queries, weights of words for documents."""
    index = BM25.of(documents, words=of)
    return _Fitted(lambda texts: BM25.counts(texts, index.vocabulary, of), index.weights.tocsr())


BASELINES: dict[str, Callable[[Sequence[str]], _Fitted]] = {
    "bow": functools.partial(_tfidf, use_idf=False),
    "tfidf": _tfidf,
    "bm25": _bm25,
}
"""Name for `--model` -> function that fits the baseline."""


def is_baseline(spec: str) -> bool:
    """Return whether `--model` names a baseline; a file or folder of that name takes precedence."""
    return spec in BASELINES and not Path(spec).exists()
