"""Compare texts by the cosine of their embeddings, each distinct text embedded once.

The STS years share many sentences with each other and with STS-B, and the forward pass takes nearly all of an
evaluation's time. Tasks therefore get embeddings from an `EmbeddingSimilarity` instead of calling the model.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from clearspan.common.encoder import embedder
from clearspan.common.encoder.embedder import cosines, unit_vectors
from clearspan.eval.models.similarity import Similarity, TextPairs, Vectors


class EmbeddingSimilarity(embedder.Embedder, Similarity):
    """An encoder that remembers the embedding of each text, and compares texts by cosine (`Similarity`)."""

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return the unit vectors of queries and documents, each (n, dim) float32.

        The documents' embeddings are not remembered. Queries that are all documents are not embedded again.
        """
        of_documents = unit_vectors(self.embed(documents, keep=False))
        place = {text: number for number, text in enumerate(documents)}
        if all(text in place for text in queries):
            return of_documents[[place[text] for text in queries]], of_documents
        return unit_vectors(self.embed(queries)), of_documents

    def pairs(self, subsets: TextPairs) -> dict[str, NDArray[np.float64]]:
        """Return the cosine of each pair of texts, by subset: float64 (n,)."""
        # A single call for the whole task, since the encoder batches by length within a call.
        self.embed_missing(text for left, right in subsets.values() for text in [*left, *right])
        return {name: cosines(self.embed(left), self.embed(right)) for name, (left, right) in subsets.items()}
