"""The number of tokens of an example: its mean and variance, from the histograms in the manifest of a dataset.

From these an objective estimates what an example adds to the batch of a forward pass (`Objective.workload`);
`train.start.forward_size` computes the token budget of a run from the estimates.
"""

import numpy as np

from clearspan.common.ragged import Ragged
from clearspan.shards.lengths import EDGES
from clearspan.train.step.contract import Setting


def length_moments(setting: Setting, column: str = "tokens", capacity: int | None = None) -> tuple[float, float]:
    """Return the mean and the variance of an example's number of tokens in a column, from the manifest's histogram.

    Each example is first counted with the longest length of its bin. As this is too long, the result is multiplied by a
    factor: the true lengths of a sample of examples divided by the longest lengths of their bins.

    Args:
        capacity: the length to which texts are cut, in tokens; None: the encoder's capacity.
    """
    capacity = setting.capacity if capacity is None else capacity
    histogram = setting.dataset.manifest.lengths.get(column) or {str(capacity): 1}
    longest = _longest(np.array([int(edge) for edge in histogram]), capacity)
    counts = list(histogram.values())
    mean = float(np.average(longest, weights=counts))
    variance = float(np.average((longest - mean) ** 2, weights=counts))
    fraction = 1.0
    if setting.sample is not None:
        lengths = Ragged.from_arrow(setting.sample.column(column)).lengths
        fraction = lengths.clip(max=capacity).sum() / max(1, _longest(lengths, capacity).sum())
    return fraction * mean, fraction**2 * variance


def shrunk_moments(
    setting: Setting, moments: tuple[float, float], required: int, column: str = "tokens"
) -> tuple[float, float]:
    """Return the mean and the variance of the number of tokens in an example's spans, if spans may shrink.

    Each example is counted with the longest length of its bin in the manifest's histogram.

    Args:
        moments: the mean and the variance for a document that is long enough; returned if spans may not shrink.
        required: the number of tokens that is long enough. The spans of a shorter document shrink in proportion.
        column: the column of the documents.
    """
    histogram = setting.dataset.manifest.lengths.get(column) if setting.shrinks else None
    if not histogram:
        return moments
    scales = _longest(np.array([int(edge) for edge in histogram]), required) / required
    scale, square = (float(np.average(scales**power, weights=list(histogram.values()))) for power in (1, 2))
    mean, variance = moments
    return scale * mean, square * (variance + mean**2) - (scale * mean) ** 2


def _longest(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Return the longest length in each length's bin of the histogram, cut at the capacity."""
    return (EDGES[np.searchsorted(EDGES, lengths, side="right")] - 1).clip(max=capacity)
