"""The contract of a model that compares texts.

    Embedder (models/embed.py)    texts ──> embeddings ──> cosines
    Lexical (models/lexical.py)   a task's texts ──> weights of their words ──> cosines, or BM25's scores
    Hybrid (models/hybrid.py)     the scores of both: it ranks documents, and has no embeddings

A task that compares texts calls `ranking` or `pairs` and does not know which model it has. A task that fits something
on embeddings calls `embed`, which refuses models without embeddings.
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
"""Rows of numbers: an array, a sparse matrix, or both side by side."""
TextPairs = Mapping[str, tuple[Sequence[str], Sequence[str]]]
"""Name of a subset -> its n left texts and its n right texts."""


@dataclass(frozen=True)
class Joined:
    """Vectors of two parts, an array (n, d) and a sparse matrix (n, v)."""

    dense: Floats
    sparse: csr_array

    @property
    def shape(self) -> tuple[int, int]:
        """The number of vectors, and of their values."""
        return self.dense.shape[0], self.dense.shape[1] + self.sparse.shape[1]

    def __getitem__(self, rows: slice) -> "Joined":
        return Joined(self.dense[rows], self.sparse[rows])


def products(queries: Vectors, documents: Vectors) -> Floats:
    """Return the products of m and n vectors of the same type, (m, n)."""
    if isinstance(queries, Joined):
        assert isinstance(documents, Joined)
        return products(queries.dense, documents.dense) + products(queries.sparse, documents.sparse)
    assert not isinstance(documents, Joined)
    product: Any = queries @ documents.T
    return product if isinstance(product, np.ndarray) else product.toarray()


class UnscoredError(Exception):
    """The task cannot be scored with this model or on this device; all other tasks run.

    The message gives the reason, in one line.
    """


class Similarity(ABC):
    """A model that compares texts.

    Attributes:
        measure: name of its scores, such as `cosine`.
        settings: settings, other than the model, that affect its scores; they are recorded with each task.
    """

    measure: str = "cosine"
    settings: Mapping[str, Any] = {}

    def embed(self, texts: Sequence[str], keep: bool = True) -> NDArray[np.float32]:
        """Return the embeddings of the texts, (len(texts), dim) float32.

        Raises:
            UnscoredError: the model has no embeddings.
        """
        raise UnscoredError("takes embeddings, which a baseline or a hybrid does not have: evaluate a model alone")

    @abstractmethod
    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return vectors of m queries and n documents, (m, d) and (n, d) float32, whose products rank the documents.

        Raises:
            UnscoredError: the texts cannot be compared.
        """

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Return the similarity of each pair of texts, by subset: float64 (n,).

        Raises:
            UnscoredError: the texts cannot be compared.
        """
        raise UnscoredError("scores pairs, and a hybrid ranks documents: evaluate the model without hybrid:")
