"""Combination of a model's scores with BM25's: both are standardized for each query, and added with weights.

    score of a text = w z(the model's score) + (1 - w) z(BM25's score)
    z: shifts and scales the scores of one query over all texts to mean 0 and standard deviation 1

Search and evaluation combine scores by this module alone. They differ in how they get the moments: evaluation has all
scores of a query, a search has the mean and the covariance of the vectors, and the sums of the words' weights.
"""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.topk import SLACK

HYBRID_WEIGHT = 0.7
"""Default weight of a model's scores, 0 to 1, when they are combined with BM25 scores."""
Floats = NDArray[np.float64]


class Moments(NamedTuple):
    """The moments of the scores of n queries over all texts, (n,) each.

    Attributes:
        means, deviations: the mean and the standard deviation of each query's scores.
        magnitudes: the size of each query's scores, against which a deviation is float32 noise.
    """

    means: Floats
    deviations: Floats
    magnitudes: Floats

    @classmethod
    def of(cls, scores: NDArray[np.floating]) -> Self:
        """Return the moments of the scores of m queries for n texts, (m, n)."""
        mean, deviation = scores.mean(axis=1, dtype=np.float64), scores.std(axis=1, dtype=np.float64)
        return cls(mean, deviation, np.abs(scores).max(axis=1, initial=0))

    def scale_and_shift(self, weight: float) -> tuple[Floats, Floats]:
        """Return a factor a and an offset b for each query: a * scores + b has mean 0 and standard deviation `weight`.

        If all texts have the same score for a query, up to float32 noise, a and b are 0 for this query. For example,
        all BM25 scores are 0 if no text contains a word of the query.

        Args:
            weight: the weight of these scores in a sum with other scores that are scaled in the same way.
        """
        is_flat = self.deviations <= SLACK * self.magnitudes
        a = np.divide(weight, self.deviations, out=np.zeros_like(self.deviations), where=~is_flat)
        return a, -a * self.means
