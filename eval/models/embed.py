"""Compare texts by the cosine of their embeddings.

The forward pass takes nearly all of an evaluation's time, and many sentences occur in several STS tasks. Tasks
therefore do not call the model but an `EmbeddingSimilarity`, which embeds each distinct text once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clearspan.common.encoder import embedder
from clearspan.common.encoder.embedder import cosines, unit_vectors
from clearspan.eval.models.similarity import Similarity, TextPairs
from clearspan.retrieval.products import Vectors


class EmbeddingSimilarity(embedder.Embedder, Similarity):
    """A model that compares texts by the cosine of their embeddings. It remembers the embeddings for later calls.

    Args:
        encode: function from n texts to their embeddings, (n, dim), which need not have unit norm.
        cache: the embeddings that are cached on disk; None for no cache.
    """

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return the unit vectors of m queries and n documents, (m, dim) and (n, dim) float32.

        The embeddings of the documents are not remembered for later calls, unless they are cached on disk. If every
        query is also a document, the queries are not embedded again.
        """
        of_documents = unit_vectors(self.embed(documents, keep=False))
        place = {text: number for number, text in enumerate(documents)}
        if all(text in place for text in queries):
            return of_documents[[place[text] for text in queries]], of_documents
        return unit_vectors(self.embed(queries)), of_documents

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Return the cosines of the n pairs of each subset, (n,) float64, by the names of the subsets.

        Args:
            subsets: the name of each subset -> the first texts and the second texts of its pairs.
        """
        # A single call for the whole task, since the encoder batches by length within a call.
        self.embed_missing(text for left, right in subsets.values() for text in [*left, *right])
        return {name: cosines(self.embed(left), self.embed(right)) for name, (left, right) in subsets.items()}
