"""Combination of a model's scores with BM25's: both are standardized for each query, and added with weights.

    score of a text = w z(the model's score) + (1 - w) z(BM25's score)
    z: shifts and scales the scores of one query over all texts to mean 0 and standard deviation 1

Search and evaluation combine scores by this module alone. They differ in how they get the moments: evaluation has all
scores of a query, a search has the mean and the covariance of the vectors, and the sums of the words' weights.

An evaluation chooses the weight w on development queries, which are not scored (`best_weight`).
"""

from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.bm25 import BM25, Scores
from clearspan.retrieval.products import Floats, Joined, Vectors, products, score_blocks
from clearspan.retrieval.ranks import DEPTH, Chunks
from clearspan.retrieval.retrieval_set import Ints, RetrievalSet
from clearspan.retrieval.topk import DECIMALS, SLACK

HYBRID_WEIGHT = 0.7
"""Default weight of a model's scores, 0 to 1, when they are combined with BM25 scores."""
WEIGHTS = tuple(number / 10 for number in range(11))
"""The weights to choose from: from 0, which is BM25 alone, to 1, which is the model alone."""
MAX_DEV_QUERIES = 2000
"""The most development queries on which a weight is chosen."""
Float64s = NDArray[np.float64]


class Moments(NamedTuple):
    """The moments of the scores of n queries over all texts, (n,) each.

    Attributes:
        means, deviations: the mean and the standard deviation of each query's scores.
        magnitudes: the size of each query's scores, against which a deviation is float32 noise.
    """

    means: Float64s
    deviations: Float64s
    magnitudes: Float64s

    @classmethod
    def of(cls, scores: NDArray[np.floating]) -> Self:
        """Return the moments of the scores of m queries for n texts, (m, n)."""
        mean, deviation = scores.mean(axis=1, dtype=np.float64), scores.std(axis=1, dtype=np.float64)
        return cls(mean, deviation, np.abs(scores).max(axis=1, initial=0))

    @classmethod
    def of_products(cls, queries: Vectors, documents: Vectors) -> Self:
        """Return the moments of the scores of m queries for n documents: the dot products of their vectors."""
        blocks = [cls.of(scores) for _, scores in score_blocks(queries, documents)]
        return cls(*map(np.concatenate, zip(*blocks, strict=True)))

    @classmethod
    def of_words(cls, scores: Scores) -> Self:
        """Return the moments of BM25's scores over all texts."""
        return cls(scores.means, scores.deviations(), np.abs(scores.means))

    def select(self, rows: slice | Ints) -> Self:
        """Return the moments of the queries whose indices are in `rows`."""
        return type(self)(self.means[rows], self.deviations[rows], self.magnitudes[rows])

    def scale_and_shift(self, weight: float) -> tuple[Float64s, Float64s]:
        """Return a factor a and an offset b for each query: a * scores + b has mean 0 and standard deviation `weight`.

        If all texts have the same score for a query, up to float32 noise, a and b are 0 for this query. For example,
        all BM25 scores are 0 if no text contains a word of the query.

        Args:
            weight: the weight of these scores in a sum with other scores that are scaled in the same way.
        """
        is_flat = self.deviations <= SLACK * self.magnitudes
        a = np.divide(weight, self.deviations, out=np.zeros_like(self.deviations), where=~is_flat)
        return a, -a * self.means


@dataclass(frozen=True)
class CombinedVectors:
    """Vectors of m queries and n documents from a model and from BM25, whose scores can be combined with any weight.

    Attributes:
        dense: the model's vectors of the queries and of the documents, (m, dim) and (n, dim).
        words: BM25's scores for the queries, and its index of the documents.
        dense_moments, words_moments: the moments of the model's scores and of BM25's scores of each query.
        chunks: the chunks of the documents, if they are cut: the vectors of documents are then those of the chunks.
    """

    dense: tuple[Floats, Floats]
    words: tuple[Scores, BM25]
    dense_moments: Moments
    words_moments: Moments
    chunks: Chunks | None = None

    @classmethod
    def of(
        cls, dense: tuple[Vectors, Vectors], words: tuple[Vectors, Vectors], chunks: Chunks | None = None
    ) -> "CombinedVectors":
        """Return a `CombinedVectors` of the given vectors, with the moments of each query's scores of all documents.

        A score is the dot product of a query's and a document's vector.

        Args:
            dense: the model's vectors of m queries and of n documents, (m, dim) and (n, dim).
            words: BM25's scores for the queries, and its index of the documents.
            chunks: the chunks of the documents; None if the documents are not cut.
        """
        assert isinstance(dense[0], np.ndarray) and isinstance(dense[1], np.ndarray)
        assert isinstance(words[0], Scores) and isinstance(words[1], BM25)
        moments = Moments.of_products(*dense), Moments.of_products(*words)
        return cls((dense[0], dense[1]), (words[0], words[1]), *moments, chunks)

    def with_words(self, words: tuple[Scores, BM25]) -> "CombinedVectors":
        """Return a `CombinedVectors` with other scores of BM25, for the same queries and documents."""
        return CombinedVectors(self.dense, words, self.dense_moments, Moments.of_products(*words), self.chunks)

    def select(self, rows: slice | Ints) -> "CombinedVectors":
        """Return a `CombinedVectors` with all documents and with the queries whose indices are in `rows`."""
        return CombinedVectors(
            (self.dense[0][rows], self.dense[1]),
            (self.words[0][rows], self.words[1]),
            self.dense_moments.select(rows),
            self.words_moments.select(rows),
            self.chunks,
        )

    def vectors(self, weight: float) -> tuple[Joined, Joined]:
        """Return float32 vectors of the queries and of the documents. Their dot products are the combined scores.

        Args:
            weight: the weight of the model's scores, from 0 to 1. The weight of BM25's scores is 1 minus it.
        """
        (of_queries, of_documents), (of_words, index) = self.dense, self.words
        scale, shift = self.dense_moments.scale_and_shift(weight)
        words_scale, words_shift = self.words_moments.scale_and_shift(1 - weight)
        # A last column adds the shift to each product of a query.
        queries = np.column_stack([of_queries * scale[:, None], shift + words_shift]).astype(np.float32)
        documents = np.column_stack([of_documents, np.ones(len(of_documents), np.float32)])
        return Joined(queries, of_words.times(words_scale)), Joined(documents, index)

    def reciprocal_ranks(self, collection: RetrievalSet) -> NDArray[np.float64]:
        """Return the reciprocal rank of the best relevant document of each of m queries, with each of 11 weights.

        The array is (11, m) float64. The weights of the model's scores are WEIGHTS: 0, 0.1, ..., 1. A reciprocal rank
        is 0 if the rank is larger than 1,000 (`DEPTH`).

        Args:
            collection: the m queries and n documents, with the relevant documents of each query.
        """
        # If both the model and BM25 score a document below the relevant document, it is below with any weight, and is
        # ignored. Few documents remain, so that all weights together take little more time than one.
        values = np.empty((len(WEIGHTS), len(self.dense[0])))
        dense_scales, _ = self.dense_moments.scale_and_shift(1)
        words_scales, _ = self.words_moments.scale_and_shift(1)
        for start, dense in score_blocks(*self.dense):
            words = products(*self.words, slice(start, start + len(dense)))
            for row, (by_model, by_words) in enumerate(zip(dense, words, strict=True), start=start):
                by_document = []
                for relevant in collection.relevant[row]:
                    first = self.chunks.starts[relevant] if self.chunks else relevant
                    scaled = (
                        dense_scales[row] * (by_model - by_model[first]).astype(np.float64),
                        words_scales[row] * (by_words - by_words[first]).astype(np.float64),
                    )
                    by_document.append(_ranks_by_weight(*scaled, relevant, collection.tie_keys, self.chunks))
                best = np.min(by_document, axis=0)
                values[:, row] = np.where(best <= DEPTH, 1 / best, 0)
        return values


def best_weight(reciprocal_ranks: NDArray[np.float64]) -> float:
    """Return the weight of the model's scores that gives the highest MRR: 0, 0.1, ... or 1.

    If several weights have the highest MRR, the one nearest to 0.7 (`HYBRID_WEIGHT`) is returned. If there are no
    queries, 0.7 is returned.

    Args:
        reciprocal_ranks: the reciprocal rank of each of m queries with each of the 11 weights, (11, m).
    """
    if not reciprocal_ranks.shape[1]:
        return HYBRID_WEIGHT
    means = reciprocal_ranks.mean(axis=1).round(12)
    return min(zip(-means, WEIGHTS, strict=True), key=lambda pair: (pair[0], abs(pair[1] - HYBRID_WEIGHT)))[1]


def _ranks_by_weight(
    by_model: Floats, by_words: Floats, relevant: int, precedence: Ints, chunks: Chunks | None
) -> Ints:
    """Return the rank of a relevant document among n documents with each of 11 weights, (11,) int64, from 1.

    The weights of the model's scores are WEIGHTS: 0, 0.1, ..., 1.

    Args:
        by_model: the model's scaled score of each document, minus its scaled score of the relevant document, (n,). If
            the documents are cut into r chunks: of each chunk, minus that of the relevant document's first chunk, (r,).
        by_words: the same for BM25's scaled scores.
        relevant: the position of the relevant document.
        precedence: the tie-break keys of the documents, (n,). Among equal scores, the larger key ranks first.
        chunks: the chunks of the documents; None if the documents are not cut.
    """
    step = 10.0**-DECIMALS / 2
    own = chunks.rows(relevant) if chunks else slice(relevant, relevant + 1)
    weights = np.array(WEIGHTS)[:, None]
    bound = (weights * by_model[own] + (1 - weights) * by_words[own]).max(axis=1, keepdims=True)
    is_ahead = np.ones(len(by_model), bool)
    for best in {own.start + int(scores[own].argmax()) for scores in (by_model, by_words)}:
        is_ahead &= (by_model >= by_model[best] - step) | (by_words >= by_words[best] - step)
    rows = np.flatnonzero(is_ahead)
    ahead = weights * by_model[rows] + (1 - weights) * by_words[rows] - bound
    documents = rows
    if chunks:
        documents, starts = np.unique(chunks.documents[rows], return_index=True)
        ahead = np.maximum.reduceat(ahead, starts, axis=1)
    is_before = (ahead > step) | ((np.abs(ahead) <= step) & (precedence[documents] > precedence[relevant]))
    places: Ints = 1 + is_before.sum(axis=1)
    return places
