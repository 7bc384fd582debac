"""Baselines that compare texts by their words: `--model bow`, `tfidf` and `bm25`.

    bow     cosine of word counts                                           ┐ computed by scikit-learn,
    tfidf   cosine of word counts, weighted by inverse document frequency   ┘ with its defaults
    bm25    BM25's score of a document for a query                            computed by bm25s (Lucene, k1 1.5, b 0.75)

A baseline is fitted on the texts that the task scores: the documents of a collection, or all texts of a task that
scores pairs. It uses no labels. All three baselines compare words in one form (`common.words`), including stop words;
`bow` and `tfidf`, as scikit-learn, compare no words of one letter, except in scripts without spaces between words. The
vectors are sparse, so memory never holds a dense array (texts, vocabulary).
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clearspan.common.scripts import is_unspaced
from clearspan.eval.models.similarity import Similarity, TextPairs, UnscoredError
from clearspan.retrieval.products import Vectors
from clearspan.retrieval.ranking import BM25
from clearspan.retrieval.stemming import PLAIN, WordFunction

_DECIMALS = 12  # as common.encoder.embedder.cosines


class _Fitted(NamedTuple):
    """A baseline that was fitted on n documents.

    Attributes:
        queries: function from m queries to their sparse vectors, (m, vocabulary).
        documents: the sparse vectors of the documents, (n, vocabulary). The dot product of a query's and a document's
            vector is the document's score for the query.
    """

    queries: Callable[[Sequence[str]], csr_array]
    documents: csr_array


class Lexical(Similarity):
    """A baseline that compares texts by their words.

    Args:
        name: `bow`, `tfidf` or `bm25`.
        split: function that splits a text into the words that BM25 compares. The baselines `bow` and `tfidf` ignore it.
    """

    def __init__(self, name: str, split: WordFunction = PLAIN) -> None:
        self.name = name
        self._split = split
        self.measure = "BM25 score" if name == "bm25" else "cosine"
        self.settings = {"fitted_on": "this task's texts"}

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Fit the baseline on the documents, and return sparse float32 vectors of the queries and of the documents.

        The dot product of a query's and a document's vector is the document's score for the query.

        Raises:
            UnscoredError: no document has a word.
        """
        fitted = self._fit(documents)
        return fitted.queries(queries).astype(np.float32), fitted.documents.astype(np.float32)

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Fit the baseline on all texts, and return the similarities of the n pairs of each subset, (n,) float64 each.

        BM25's similarity of a pair is the mean of two scores, because each of its texts is once the query and once the
        document.

        Args:
            subsets: the name of each subset -> the first texts and the second texts of its pairs.

        Raises:
            UnscoredError: no text has a word.
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
        split, kind = (self._split, "word") if self.name == "bm25" else (_of_two_letters, "word of two or more letters")
        if not any(map(split, documents)):
            raise UnscoredError(f"its texts hold no {kind}, which the baseline {self.name} compares")
        return _bm25(documents, self._split) if self.name == "bm25" else BASELINES[self.name](documents)


def _of_two_letters(text: str) -> list[str]:
    return [word for word in PLAIN(text) if len(word) > 1 or is_unspaced(word)]


def _tfidf(documents: Sequence[str], use_idf: bool = True) -> _Fitted:
    """Fit the baseline `tfidf`, or `bow` without inverse document frequency, on documents; vectors have unit length."""
    from sklearn.feature_extraction.text import TfidfVectorizer

    weights = TfidfVectorizer(analyzer=_of_two_letters, use_idf=use_idf)
    of_documents = weights.fit_transform(documents)
    return _Fitted(lambda texts: csr_array(weights.transform(texts)), csr_array(of_documents))


def _bm25(documents: Sequence[str], split: WordFunction = PLAIN) -> _Fitted:
    """Fit the baseline `bm25` on documents; the dot product of a query's and a document's vector is BM25's score."""
    index = BM25.of(documents, words=split)
    return _Fitted(lambda texts: BM25.counts(texts, index.vocabulary, split), index.weights.tocsr())


BASELINES: dict[str, Callable[[Sequence[str]], _Fitted]] = {
    "bow": functools.partial(_tfidf, use_idf=False),
    "tfidf": _tfidf,
    "bm25": _bm25,
}
"""Name of a baseline -> function that fits it on documents."""


def is_baseline(spec: str) -> bool:
    """Return whether a value of `--model` names a baseline: `bow`, `tfidf` or `bm25`.

    If a file or folder with this name exists, the value means the file or folder, and the result is False.
    """
    return spec in BASELINES and not Path(spec).exists()
