"""The interface of a model that compares texts, `Similarity`. It has four implementations.

    EmbeddingSimilarity (models/embed.py)   texts ──> embeddings ──> cosines
    Prompted (models/prompted.py)           the same, with different prompts for queries, documents and other texts
    Lexical (models/lexical.py)             texts ──> word counts or weights ──> cosines, or BM25's scores
    Hybrid (models/hybrid.py)               a weighted sum of a model's and BM25's scores, to rank documents

A task that compares texts calls `ranking` or `pairs`, whatever the model is. A task that fits a classifier or regressor
on embeddings calls `embed`, which raises UnscoredError for models without embeddings.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.floating[Any]]
Vectors: TypeAlias = "Floats | csr_array | Joined"
"""Vectors as rows of a dense array, of a sparse matrix, or of both side by side (`Joined`)."""
TextPairs = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""Name of a subset of n pairs -> the n first texts and the n second texts."""


@dataclass(frozen=True)
class Joined:
    """n vectors, each of which consists of a dense part, from a model, and a sparse part, from BM25.

    The dot product of two such vectors is the sum of the dot products of their parts.

    Attributes:
        dense: the dense parts, (n, d).
        sparse: the sparse parts, (n, v).
    """

    dense: Floats
    sparse: csr_array

    @property
    def shape(self) -> tuple[int, int]:
        """The number of vectors n, and their dimension d + v."""
        return self.dense.shape[0], self.dense.shape[1] + self.sparse.shape[1]

    def __getitem__(self, rows: slice) -> "Joined":
        return Joined(self.dense[rows], self.sparse[rows])


def products(queries: Vectors, documents: Vectors) -> Floats:
    """Return the dot products of m queries and n documents, (m, n). Both must be vectors of the same type."""
    if isinstance(queries, Joined):
        assert isinstance(documents, Joined)
        return products(queries.dense, documents.dense) + products(queries.sparse, documents.sparse)
    assert not isinstance(documents, Joined)
    product: Any = queries @ documents.T
    return product if isinstance(product, np.ndarray) else product.toarray()


class UnscoredError(Exception):
    """The task cannot be scored with this model or on this device. The other tasks of the run are still scored.

    The message is the reason, in one line.
    """


class Similarity(ABC):
    """A model that compares texts.

    Attributes:
        measure: the name of the similarity that it computes, such as `cosine`.
        settings: settings, other than the model, that affect the similarity. They are recorded with each task's scores.
    """

    measure: str = "cosine"
    settings: Mapping[str, Any] = {}

    def embed(self, texts: Sequence[str], keep: bool = True) -> NDArray[np.float32]:
        """Return the embeddings of the texts, (len(texts), dim) float32.

        Args:
            texts: the texts.
            keep: whether to remember the embeddings for later calls.

        Raises:
            UnscoredError: the model has no embeddings.
        """
        raise UnscoredError("takes embeddings, which a baseline or a hybrid does not have: evaluate a model alone")

    @abstractmethod
    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return vectors of m queries and n documents, (m, d) and (n, d) float32, to rank the documents for each query.

        A document with a larger dot product ranks higher.

        Raises:
            UnscoredError: the texts cannot be compared.
        """

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Return the similarities of the n pairs of each subset, (n,) float64 each.

        Args:
            subsets: name of a subset -> the first texts and the second texts of its pairs.

        Raises:
            UnscoredError: the texts cannot be compared.
        """
        raise UnscoredError("scores pairs, and a hybrid ranks documents: evaluate the model without hybrid:")
