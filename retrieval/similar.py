"""Similarity of queries and vectors by the model's similarity function, and its mean and variance for each query.

The mean and the variance of a query's similarities to all vectors are needed to combine the similarities with BM25's
scores. For the cosine and the dot product, the two follow from the mean and the covariance of the vectors, which are
computed once and kept in the cache (`retrieval.index_cache`):

    mean = q . (mean of the vectors)        variance = q . (covariance of the vectors) . q

For other functions, each search computes them in a pass over all vectors.

The first vector is subtracted from all vectors before they are summed. Otherwise the sums of squares would lose their
precision if the vectors are nearly equal.
"""

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.encoder.sentence_encoder import FolderEncoder
from clearspan.retrieval.hybrid import Moments
from clearspan.retrieval.index_cache import index_of, save
from clearspan.retrieval.texts import Texts, lengths_of

VERSION = 2
"""Version of the mean and covariance in the cache, increased whenever their computation changes."""
SHORTEST = np.float32(1e-12)
"""Minimum length by which a vector is divided for the cosine, so that a zero vector has similarity 0 with any other."""
Vectors = NDArray[np.float32]


class SimilarityFunction:
    """The similarity function of a model.

    Attributes:
        name: the name of the function: cosine, dot, euclidean or manhattan.
    """

    def __init__(self, encoder: FolderEncoder) -> None:
        self.name, self._of = encoder.similarity_name, encoder.similarity

    def prepared(self, vectors: Vectors) -> Vectors:
        """Return vectors, (n, dim), scaled to unit length if the similarity is the cosine; otherwise unchanged."""
        if self.name != "cosine":
            return vectors
        return np.asarray(vectors / np.maximum(lengths_of(vectors)[:, None], SHORTEST), np.float32)

    def scores(
        self, queries: Vectors, vectors: Vectors, lengths: Vectors | None, scales: NDArray[np.float64] | None = None
    ) -> Vectors:
        """Return the similarities of queries and vectors, (queries, rows) float32.

        Args:
            queries: the vectors of the queries, (queries, dim). For the cosine, they must have unit length.
            vectors: the vectors of the rows, (rows, dim). Even for the cosine, they need not have unit length.
            lengths: the Euclidean lengths of `vectors`, (rows,), if the similarity is the cosine; otherwise None.
            scales: the number by which the similarities of each query are multiplied, (queries,); None for 1.
        """
        if self.is_product:
            scaled = queries if scales is None else (queries * scales[:, None]).astype(np.float32)
            scores = np.asarray(scaled @ vectors.T, np.float32)
            if lengths is not None:
                scores *= 1 / np.maximum(lengths, SHORTEST)
            return scores
        scores = self._of(queries, vectors)
        return scores if scales is None else (scores * scales[:, None]).astype(np.float32)

    @property
    def is_product(self) -> bool:
        """Return whether the similarity is the dot product, or the cosine: the dot product of unit vectors."""
        return self.name in ("cosine", "dot")

    def moments(self, texts: Texts, queries: Vectors) -> Moments:
        """Return the moments of the similarities of each of n queries over all rows of `texts`.

        Args:
            texts: the rows, whose vectors are compared with the queries.
            queries: the vectors of the queries, (n, dim). For the cosine, they must have unit length.

        Raises:
            ShardError: a shard is damaged.
        """
        means, deviations = self._moments(texts, queries) if self.is_product else self._pass(texts, queries)
        return Moments(means, deviations, np.abs(means))

    def _moments(self, texts: Texts, queries: Vectors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        from safetensors.numpy import load_file

        built_by: dict[str, str | int] = {"version": VERSION, "similarity": self.name}
        with index_of(texts.datasets, "moments", built_by, functools.partial(self._write, texts)) as path:
            moments = load_file(path)
        wide = queries.astype(np.float64)
        variances = np.einsum("ij,ij->i", wide @ moments["covariance"], wide)
        return wide @ moments["mean"], np.sqrt(np.maximum(variances, 0))

    def _write(self, texts: Texts, path: Path) -> None:
        """Write the mean and the covariance of the vectors of all rows to a file.

        If the similarity is the cosine, the vectors are scaled to unit length before.
        """
        from scipy.linalg.blas import ssyrk

        first = None
        total = 0.0
        products = 0.0
        for block in texts.blocks(f"measuring {texts.num_rows:,} vectors"):
            vectors = self.prepared(block.vectors())
            first = vectors[:1] if first is None else first
            differences = vectors - first
            total = total + differences.sum(axis=0, dtype=np.float64)
            products = products + ssyrk(1.0, differences.T).astype(np.float64)  # the upper triangle
        if first is None:
            raise ValueError("no vectors")
        mean = total / texts.num_rows
        squares = np.triu(products) + np.triu(products, 1).T
        covariance = squares / texts.num_rows - np.outer(mean, mean)
        save(path, {"mean": first[0].astype(np.float64) + mean, "covariance": covariance})

    def _pass(self, texts: Texts, queries: Vectors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        first: NDArray[np.float64] | None = None
        total, squares = np.zeros(len(queries)), np.zeros(len(queries))
        for block in texts.blocks(f"measuring {texts.num_rows:,} vectors"):
            scores = self._of(queries, block.vectors()).astype(np.float64)
            first = scores[:, 0] if first is None else first
            differences = scores - first[:, None]
            total += differences.sum(axis=1)
            squares += np.einsum("ij,ij->i", differences, differences)
        mean = total / texts.num_rows
        shift = 0.0 if first is None else first
        return shift + mean, np.sqrt(np.maximum(squares / texts.num_rows - mean**2, 0))
