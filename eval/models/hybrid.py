"""Rank documents by a weighted sum of the scores of a model and of BM25 (`--model hybrid:DIR`).

    score of a document = w z(model's score) + (1 - w) z(BM25's score)
    z: shifts and scales the scores of one query over all documents to mean 0 and standard deviation 1

Such a model is scored only on tasks that rank documents. A task chooses the weight w on additional queries, which are
not scored (`CombinedVectors.best_weight`). If a task has no such queries, w is 0.7 (`retrieval.hybrid.HYBRID_WEIGHT`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, diags_array

from clearspan.common.model_forms import HYBRID
from clearspan.eval.data.retrieval_data import Ints, RetrievalSet
from clearspan.eval.models import ranks
from clearspan.eval.models.lexical import Lexical
from clearspan.eval.models.ranks import Chunks
from clearspan.eval.models.similarity import Floats, Joined, Similarity, Vectors, products
from clearspan.retrieval.hybrid import HYBRID_WEIGHT, Moments
from clearspan.retrieval.ranking import DEPTH
from clearspan.retrieval.topk import DECIMALS

WEIGHTS = tuple(number / 10 for number in range(11))
"""The values of w to choose from: from 0, which is BM25 alone, to 1, which is the model alone."""
MAX_CHOOSING = 2000
"""The most queries on which a weight is chosen."""


@dataclass(frozen=True)
class CombinedVectors:
    """Vectors of m queries and n documents from a model and from BM25, whose scores can be combined with any weight.

    Attributes:
        dense: the model's vectors of the queries and of the documents, (m, dim) and (n, dim).
        words: BM25's vectors of the queries and of the documents, sparse, (m, vocabulary) and (n, vocabulary).
        dense_scales: a scale and a shift for each query, (m,) each. The model's scores of a query, times the scale plus
            the shift, have mean 0 and standard deviation 1 over all documents.
        words_scales: a scale and a shift for each query, (m,) each, which do the same to the scores of BM25.
        chunks: the chunks of the documents, if they are cut: the vectors of documents are then those of the chunks.
    """

    dense: tuple[Floats, Floats]
    words: tuple[csr_array, csr_array]
    dense_scales: tuple[NDArray[np.float64], NDArray[np.float64]]
    words_scales: tuple[NDArray[np.float64], NDArray[np.float64]]
    chunks: Chunks | None = None

    @classmethod
    def of(
        cls, dense: tuple[Vectors, Vectors], words: tuple[Vectors, Vectors], chunks: Chunks | None = None
    ) -> "CombinedVectors":
        """Return a `CombinedVectors` of the given vectors.

        It computes, for each query, the scale and the shift with which the model's scores of all documents have mean 0
        and standard deviation 1, and those for BM25's scores. A score is the dot product of a query's and a document's
        vector.

        Args:
            dense: the model's vectors of m queries and of n documents, (m, dim) and (n, dim).
            words: BM25's vectors of the queries and of the documents, (m, vocabulary) and (n, vocabulary).
            chunks: the chunks of the documents; None if the documents are not cut.
        """
        assert isinstance(dense[0], np.ndarray) and isinstance(dense[1], np.ndarray)
        assert isinstance(words[0], csr_array) and isinstance(words[1], csr_array)
        scales = _over_documents(*dense), _over_documents(*words)
        return cls((dense[0], dense[1]), (words[0], words[1]), *scales, chunks)

    def select(self, rows: slice | Ints) -> "CombinedVectors":
        """Return a `CombinedVectors` with all documents and with the queries whose indices are in `rows`."""
        return CombinedVectors(
            (self.dense[0][rows], self.dense[1]),
            (self.words[0][rows], self.words[1]),
            (self.dense_scales[0][rows], self.dense_scales[1][rows]),
            (self.words_scales[0][rows], self.words_scales[1][rows]),
            self.chunks,
        )

    def vectors(self, weight: float) -> tuple[Joined, Joined]:
        """Return float32 vectors of the queries and of the documents. Their dot products are the combined scores.

        Args:
            weight: the weight of the model's scores, from 0 to 1. The weight of BM25's scores is 1 minus it.
        """
        (of_queries, of_documents), (counts, weights) = self.dense, self.words
        scale, shift = (weight * each for each in self.dense_scales)
        words_scale, words_shift = ((1 - weight) * each for each in self.words_scales)
        # A last column adds the shift to each product of a query.
        queries = np.column_stack([of_queries * scale[:, None], shift + words_shift]).astype(np.float32)
        documents = np.column_stack([of_documents, np.ones(len(of_documents), np.float32)])
        return Joined(queries, csr_array(diags_array(words_scale) @ counts)), Joined(documents, weights)

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
        for start, dense in ranks.score_blocks(*self.dense):
            words = products(self.words[0][start : start + len(dense)], self.words[1])
            for row, (by_model, by_words) in enumerate(zip(dense, words, strict=True), start=start):
                by_right = []
                for right in collection.relevant[row]:
                    first = self.chunks.starts[right] if self.chunks else right
                    scaled = (
                        self.dense_scales[0][row] * (by_model - by_model[first]).astype(np.float64),
                        self.words_scales[0][row] * (by_words - by_words[first]).astype(np.float64),
                    )
                    by_right.append(_ranks_by_weight(*scaled, right, collection.tie_keys, self.chunks))
                best = np.min(by_right, axis=0)
                values[:, row] = np.where(best <= DEPTH, 1 / best, 0)
        return values

    def best_weight(self, collection: RetrievalSet) -> float:
        """Return the weight of the model's scores that gives the highest MRR over all queries: 0, 0.1, ... or 1.

        If several weights have the highest MRR, the one nearest to 0.7 (`HYBRID_WEIGHT`) is returned.

        Args:
            collection: the m queries and n documents, with the relevant documents of each query.
        """
        return best_weight(self.reciprocal_ranks(collection))


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


def _ranks_by_weight(by_model: Floats, by_words: Floats, right: int, precedence: Ints, chunks: Chunks | None) -> Ints:
    """Return the rank of a relevant document among n documents with each of 11 weights, (11,) int64, from 1.

    The weights of the model's scores are WEIGHTS: 0, 0.1, ..., 1.

    Args:
        by_model: the model's scaled score of each document, minus its scaled score of the relevant document, (n,). If
            the documents are cut into r chunks: of each chunk, minus that of the relevant document's first chunk, (r,).
        by_words: the same for BM25's scaled scores.
        right: the position of the relevant document.
        precedence: the tie-break keys of the documents, (n,). Among equal scores, the larger key ranks first.
        chunks: the chunks of the documents; None if the documents are not cut.
    """
    step = 10.0**-DECIMALS / 2
    own = chunks.rows(right) if chunks else slice(right, right + 1)
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
    is_before = (ahead > step) | ((np.abs(ahead) <= step) & (precedence[documents] > precedence[right]))
    places: Ints = 1 + is_before.sum(axis=1)
    return places


class Hybrid(Similarity):
    """A model combined with BM25. It ranks documents by a weighted sum of the two scores.

    Args:
        model: the model, which returns vectors of texts.
        weight: the weight of the model's score, from 0 (BM25 alone) to 1 (the model alone); None to let each task
            choose the weight. A task that cannot choose uses 0.7 (`HYBRID_WEIGHT`).

    Attributes:
        is_weight_given: true if the caller set the weight; a task then does not choose one.
    """

    measure = "hybrid score"

    def __init__(self, model: Similarity, weight: float | None = None) -> None:
        self.is_weight_given = weight is not None
        self._weight = HYBRID_WEIGHT if weight is None else weight
        self._model = model
        self._words = Lexical("bm25")
        self.settings = {**self._words.settings, "hybrid_weight": self._weight}

    def combined_vectors(self, queries: Sequence[str], documents: Sequence[str]) -> CombinedVectors:
        """Return vectors of the texts from the model and from BM25, whose scores can be combined with any weight."""
        return CombinedVectors.of(self._model.ranking(queries, documents), self._words.ranking(queries, documents))

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return float32 vectors of the queries and of the documents, whose dot products are the combined scores.

        The weight of the model's score is the argument `weight` of the constructor, or 0.7 if that is None.
        """
        return self.combined_vectors(queries, documents).vectors(self._weight)


def _over_documents(queries: Vectors, documents: Vectors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    scales = [Moments.of(scores).scale_and_shift(1.0) for _, scores in ranks.score_blocks(queries, documents)]
    return np.concatenate([scale for scale, _ in scales]), np.concatenate([shift for _, shift in scales])


def hybrid_folder(spec: str) -> str | None:
    """Return DIR if a value of `--model` is `hybrid:DIR`, which means the model DIR combined with BM25; otherwise None.

    Args:
        spec: the value of `--model`. If a file or folder with this name exists, the result is None.
    """
    return spec.removeprefix(HYBRID) if spec.startswith(HYBRID) and not Path(spec).exists() else None
