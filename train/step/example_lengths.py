"""The mean and the variance of the number of tokens of an example, from the histograms in a dataset's manifest.

From these an objective estimates what an example adds to the batch of a forward pass (`Objective.workload`);
`train.start.forward_size` computes the token budget of a run from the estimates.
"""

import numpy as np

from clearspan.common.ragged import Ragged
from clearspan.shards.lengths import EDGES
from clearspan.train.step.contract import Setting


def length_moments(setting: Setting, column: str = "tokens", capacity: int | None = None) -> tuple[float, float]:
    """Return the mean and the variance of an example's number of tokens in a column, from the manifest's histogram.

    The tokens of a prompt count, special tokens do not.

    Each example is first counted with the greatest length that belongs to its bin of the histogram, which overestimates
    lengths. The lengths are therefore scaled by a factor, which is computed on a sample of examples: the sum of their
    true lengths, divided by the sum of the greatest lengths of their bins.

    Args:
        setting: the dataset, with its manifest and a sample, and the encoder's capacity.
        column: the name of the column of texts.
        capacity: the length to which texts are cut, in tokens; None for the encoder's capacity.
    """
    capacity = setting.capacity if capacity is None else capacity
    histogram = setting.dataset.manifest.lengths.get(column) or {str(capacity): 1}
    longest = _longest_in_bins(np.array([int(edge) for edge in histogram]), capacity)
    counts = list(histogram.values())
    mean = float(np.average(longest, weights=counts))
    variance = float(np.average((longest - mean) ** 2, weights=counts))
    fraction = 1.0
    if setting.sample is not None:
        lengths = Ragged.from_arrow(setting.sample.column(column)).lengths
        fraction = lengths.clip(max=capacity).sum() / max(1, _longest_in_bins(lengths, capacity).sum())
    return fraction * mean, fraction**2 * variance


def shrunk_moments(
    setting: Setting, moments: tuple[float, float], required: int, column: str = "tokens"
) -> tuple[float, float]:
    """Return the mean and the variance of the number of tokens in an example's spans, if spans may shrink.

    The spans of a document with fewer than `required` tokens shrink in proportion to its length. Each document is
    counted with the greatest length that belongs to its bin of the manifest's histogram.

    Args:
        setting: the dataset, with its manifest, and whether spans may shrink.
        moments: the mean and the variance for a document with enough tokens. They are returned if spans may not shrink.
        required: the number of tokens of a document that is just long enough.
        column: the name of the column of documents.
    """
    histogram = setting.dataset.manifest.lengths.get(column) if setting.shrinks else None
    if not histogram:
        return moments
    scales = _longest_in_bins(np.array([int(edge) for edge in histogram]), required) / required
    scale, square = (float(np.average(scales**power, weights=list(histogram.values()))) for power in (1, 2))
    mean, variance = moments
    return scale * mean, square * (variance + mean**2) - (scale * mean) ** 2


def _longest_in_bins(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """Return, for each length, the greatest length in the same bin of the histogram, or `capacity` if that is less.

    Args:
        lengths: n lengths in tokens, (n,).
        capacity: the greatest length to return, in tokens.
    """
    return (EDGES[np.searchsorted(EDGES, lengths, side="right")] - 1).clip(max=capacity)
