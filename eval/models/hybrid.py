"""A model beside BM25: `--model hybrid:DIR`. It ranks documents; other tasks are not scored with it.

score of a document = w z(model's score) + (1 - w) z(BM25's score)
z: the scores of one query over all documents, with mean 0 and deviation 1; w: `common.ranking.HYBRID_WEIGHT`
"""

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array, diags_array

from clearspan.common.ranking import HYBRID_WEIGHT, scale_and_shift
from clearspan.eval.models.lexical import Lexical
from clearspan.eval.models.similarity import Joined, Similarity, Vectors, products

_BLOCK_SCORES = 1 << 24


class Hybrid(Similarity):
    """The scores of a model and of BM25 as one model (`Similarity`).

    Args:
        model: gives the vectors of texts.
        weight: w, from 0 (BM25 alone) to 1 (the model alone).
    """

    measure = "hybrid score"

    def __init__(self, model: Similarity, weight: float = HYBRID_WEIGHT) -> None:
        self._model, self._words, self._weight = model, Lexical("bm25"), weight
        self.settings = {**self._words.settings, "hybrid_weight": weight}

    def ranking(self, queries: Sequence[str], documents: Sequence[str]) -> tuple[Vectors, Vectors]:
        """Return vectors of m queries and n documents whose products are the hybrid's scores, float32."""
        of_queries, of_documents = self._model.ranking(queries, documents)
        self.encode_s = self._model.encode_s
        counts, weights = self._words.ranking(queries, documents)
        assert isinstance(of_queries, np.ndarray) and isinstance(of_documents, np.ndarray)
        scale, shift = _over_documents(of_queries, of_documents, self._weight)
        words_scale, words_shift = _over_documents(counts, weights, 1 - self._weight)
        # A last column adds the shift to each product of a query.
        dense = np.column_stack([of_queries * scale[:, None], shift + words_shift]).astype(np.float32)
        of_documents = np.column_stack([of_documents, np.ones(len(of_documents), np.float32)])
        return Joined(dense, csr_array(diags_array(words_scale) @ counts)), Joined(of_documents, weights)


def _over_documents(queries: Vectors, documents: Vectors, weight: float) -> tuple[np.ndarray, np.ndarray]:
    rows = max(1, _BLOCK_SCORES // documents.shape[0])
    starts = range(0, queries.shape[0], rows)
    found = [scale_and_shift(products(queries[start : start + rows], documents), weight) for start in starts]
    return np.concatenate([scale for scale, _ in found]), np.concatenate([shift for _, shift in found])
