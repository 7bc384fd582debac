"""An index of your own: all vectors in one array. Put this file into the working folder:

    clearspan search data/vectors "How do owls hunt?" --model runs/mine/model --index flat_index:Flat

`clearspan serve`, `clearspan.search` and `clearspan.open_collection` take it as well. `--where`, chunks of documents,
several collections and equal scores need nothing here: `nearest` is asked for more rows until there are enough hits.
"""

import numpy as np

from clearspan.retrieval.index import VectorIndex
from clearspan.retrieval.similar import SimilarityFunction, Vectors
from clearspan.retrieval.texts import Texts


class Flat(VectorIndex):
    """Scores all vectors, and sorts the scores. A library's index would be built here instead, or read from a file."""

    def __init__(self, texts: Texts, similarity: SimilarityFunction) -> None:
        super().__init__(texts, similarity)
        self.rows = np.concatenate(list(self.vectors()))

    def nearest(self, queries: Vectors, depth: int) -> tuple[np.ndarray, np.ndarray]:
        scores = self.similarity.scores(queries, self.rows, lengths=None)
        nearest = np.argsort(-scores, axis=1)[:, :depth]
        return nearest, np.take_along_axis(scores, nearest, axis=1)
