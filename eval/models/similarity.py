"""The interface of a model that compares texts, `Similarity`. It has four implementations.

    EmbeddingSimilarity (models/embed.py)   texts ──> embeddings ──> cosines
    Prompted (models/prompted.py)           the same, with different prompts for queries, documents and other texts
    Lexical (models/lexical.py)             texts ──> word counts or weights ──> cosines, or BM25's scores
    Hybrid (models/hybrid.py)               a weighted sum of a model's and BM25's scores, to rank documents

A task that compares texts calls `ranking` or `pairs`, whatever the model is. A task that trains a classifier or a
regressor on embeddings calls `embed`, which raises UnscoredError if the model has no embeddings.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.products import Vectors

TextPairs = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""Name of a subset of n pairs -> the n first texts and the n second texts."""


class UnscoredError(Exception):
    """The task cannot be scored with this model or on this device. The other tasks of the run are still scored.

    The message is the reason, in one line.
    """


class Similarity(ABC):
    """A model that compares texts.

    Attributes:
        measure: the name of the similarity that the model computes, such as `cosine`.
        settings: settings, other than the model, that affect the similarity. They are recorded with each task's scores.
    """

    measure: str = "cosine"
    settings: Mapping[str, Any] = {}

    def embed(self, texts: Sequence[str], keep: bool = True) -> NDArray[np.float32]:
        """Return the embeddings of the texts, (len(texts), dim) float32.

        Args:
            keep: whether to remember the embeddings for later calls.

        Raises:
            UnscoredError: the model has no embeddings.
        """
        raise UnscoredError("takes embeddings, which a baseline or a hybrid does not have: evaluate a model alone")

    @abstractmethod
    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return vectors of m queries and n documents, (m, dim) and (n, dim) float32, to rank the documents by.

        For a query, a document ranks higher if the dot product of its vector and the query's vector is larger.

        Raises:
            UnscoredError: the model cannot compare the texts, for example because no document has a word.
        """

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Return the similarities of the n pairs of each subset, (n,) float64 each.

        Args:
            subsets: the name of each subset -> the first texts and the second texts of its pairs.

        Raises:
            UnscoredError: the model cannot compare pairs of texts, for example because it can only rank documents.
        """
        raise UnscoredError("scores pairs, and a hybrid ranks documents: evaluate the model without hybrid:")
