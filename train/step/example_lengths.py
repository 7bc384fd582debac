"""The number of tokens of an example: its mean and variance, from the histograms in the manifest of a dataset.

An objective estimates by them the load that an example puts on a forward (`Objective.workload`), from which
`train.start.forward_size` computes the token budget of a run.
"""

import numpy as np

from clearspan.common.ragged import Ragged
from clearspan.shards.lengths import EDGES
from clearspan.train.step.contract import Setting


def length_moments(setting: Setting, column: str = "tokens", capacity: int | None = None) -> tuple[float, float]:
    """Return the mean and the variance of an example's number of tokens in a column, from the manifest's histogram.

    All examples in a bin of the histogram are first taken to have the bin's longest length; the sample of examples
    gives the factor from these lengths to the true ones.

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

    All examples in a bin of the histogram are taken to have the bin's longest length.

    Args:
        moments: the mean and the variance for a document with at least `required` tokens. The spans of a shorter
            document shrink in proportion.
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
