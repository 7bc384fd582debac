"""Baselines that compare texts by their words: `--model bow`, `tfidf`, `bm25` and `bm25:LANGUAGE`.

    bow     cosine of word counts                                           ┐ computed by scikit-learn,
    tfidf   cosine of word counts, weighted by inverse document frequency   ┘ with its defaults
    bm25    BM25's score of a document for a query                            computed by `retrieval.bm25`

`bm25` ignores the word endings of the language of a task's texts, `bm25:german` those of German, and `bm25:none` none.

A baseline is fitted on the texts that the task scores: the documents of a collection, or all texts of a task that
scores pairs. It uses no labels. All three baselines compare words in one form (`common.words`), including stop words;
`bow` and `tfidf`, as scikit-learn, compare no words of one letter, except in scripts without spaces between words.
Their vectors are sparse, so memory never holds a dense array (texts, vocabulary).
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clearspan.common.parsing import did_you_mean
from clearspan.common.scripts import is_unspaced
from clearspan.eval.models.similarity import Similarity, TextPairs, UnscoredError
from clearspan.retrieval.bm25 import BM25, WordCounts
from clearspan.retrieval.products import Vectors
from clearspan.retrieval.scoring import DEFAULT, Scoring
from clearspan.retrieval.stemming import AUTO, CHOICES, NO_STEMMER, PLAIN, STEMMERS, spread, words_named

BM25_NAME = "bm25"
BASELINES = ("bow", "tfidf", BM25_NAME)
"""The names of the baselines."""
_DECIMALS = 12  # as common.encoder.embedder.cosines


Ints = NDArray[np.int64]


class Lexical(Similarity):
    """A baseline that compares texts by their words.

    Args:
        spec: `bow`, `tfidf` or `bm25`; or `bm25:` followed by a stemmer's language (`retrieval.stemming.STEMMERS`) or
            by `none`, for whole words.
        scoring: BM25's k1 and b; `spec` names its words.
    """

    def __init__(self, spec: str, scoring: Scoring = DEFAULT) -> None:
        self.name, _, self._stemmer = spec.partition(":")
        self._scoring = scoring
        self.measure = "BM25 score" if self.name == BM25_NAME else "cosine"
        self.settings: dict[str, str | float] = {"fitted_on": "this task's texts"}

    def _scoring_of(self, documents: Sequence[str]) -> Scoring:
        """Return how BM25 scores the documents, and record it in `settings`.

        Raises:
            UnscoredError: no document has a word.
        """
        words = words_named(self._stemmer or AUTO, lambda: spread(documents))
        scoring = dataclasses.replace(self._scoring, words=words)
        self.settings |= {"stemmer": words.stemmer or NO_STEMMER, "k1": scoring.k1, "b": scoring.b}
        self._check_words(documents, words)
        return scoring

    def counts(self, documents: Sequence[str]) -> WordCounts:
        """Return the words of the documents, from which BM25's weights follow for any k1 and b.

        Raises:
            UnscoredError: no document has a word.
        """
        return WordCounts.of(documents, self._scoring_of(documents).words)

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Fit the baseline on the documents, and return float32 vectors of the queries and of the documents.

        The dot product of a query's and a document's vector is the document's score for the query. The vectors of `bow`
        and `tfidf` are sparse arrays. BM25's are the scores for the queries, which are yet to be computed, and the
        index of the documents.

        Raises:
            UnscoredError: no document has a word.
        """
        if self.name == BM25_NAME:
            index = BM25.of(documents, self._scoring_of(documents)).astype(np.float32)
            return index.scores(queries, np.float32), index
        self._check_words(documents, _of_two_letters)
        weights = self._vectorizer()
        of_documents = csr_array(weights.fit_transform(documents), dtype=np.float32)
        return csr_array(weights.transform(queries), dtype=np.float32), of_documents

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
        if self.name == BM25_NAME:
            of_pairs = BM25.of(place, self._scoring_of(list(place))).scores(place).of_pairs
        else:
            self._check_words(list(place), _of_two_letters)
            weights = self._vectorizer()
            of_texts = csr_array(weights.fit_transform(place))
            of_queries = csr_array(weights.transform(place))

            def of_pairs(queries: Ints, texts: Ints) -> NDArray[np.float64]:
                return np.asarray((of_queries[queries] * of_texts[texts]).sum(axis=1))

        similarities = {}
        for name, sides in subsets.items():
            left, right = (np.array([place[text] for text in side], np.int64) for side in sides)
            both = of_pairs(left, right) + of_pairs(right, left)
            similarities[name] = np.asarray(both / 2, np.float64).round(_DECIMALS)
        return similarities

    def _check_words(self, documents: Sequence[str], words: Callable[[str], list[str]]) -> None:
        kind = "word" if self.name == BM25_NAME else "word of two or more letters"
        if not any(map(words, documents)):
            raise UnscoredError(f"its texts hold no {kind}, which the baseline {self.name} compares")

    def _vectorizer(self) -> Any:
        """Return what makes texts vectors of unit length: scikit-learn's, for the baselines `bow` and `tfidf`."""
        from sklearn.feature_extraction.text import TfidfVectorizer

        return TfidfVectorizer(analyzer=_of_two_letters, use_idf=self.name == "tfidf")


def _of_two_letters(text: str) -> list[str]:
    return [word for word in PLAIN(text) if len(word) > 1 or is_unspaced(word)]


def is_baseline(spec: str) -> bool:
    """Return whether a value of `--model` names a baseline: `bow`, `tfidf`, `bm25` or `bm25:LANGUAGE`.

    If a file or folder with this name exists, the value means the file or folder, and the result is False.
    """
    return (
        spec.partition(":")[0] in (spec, BM25_NAME) and spec.partition(":")[0] in BASELINES and not Path(spec).exists()
    )


def is_bm25(spec: str) -> bool:
    """Return whether a value of `--model` names BM25: `bm25` or `bm25:LANGUAGE`."""
    return is_baseline(spec) and spec.partition(":")[0] == BM25_NAME


def unknown_stemmer(spec: str) -> str:
    """Return an error message if a baseline `bm25:LANGUAGE` names a language without a stemmer; "" otherwise."""
    stemmer = spec.partition(":")[2]
    if not is_baseline(spec) or spec in BASELINES or stemmer in CHOICES:
        return ""
    return f"no stemmer {stemmer!r}{did_you_mean(stemmer, STEMMERS)}; there are {', '.join(CHOICES)}"
