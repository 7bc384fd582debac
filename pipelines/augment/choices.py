"""Uniform random choices for many keys at once: a subset of n items, a permutation, or spans that do not overlap.

A choice depends only on its key: items are sorted by random numbers that are computed from the key (`shards.keyed`).
"""

from collections.abc import Iterator

import numpy as np

from clearspan.common.ragged import bounds
from clearspan.shards import keyed

_ITEM_BITS, _RANDOM_BITS = 31, 31
_ITEMS = (1 << _ITEM_BITS) - 1


def shuffled(keys: np.ndarray, counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield a random permutation of the items 0, 1, ..., counts[i] - 1 for each key i. The items are sorted by
    `draw(key, item + 1)`.

    Yields:
        (indices of r keys, (r,); a permutation for each of these keys, (r, width)). The values of a row after the first
        counts[i] are undefined. Keys with similar counts are yielded together, because sorting many short rows is many
        times faster than sorting all items at once.
    """
    widths = 1 << np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    for width in np.unique(widths[counts > 0]):
        rows = np.flatnonzero((widths == width) & (counts > 0))
        items = np.arange(width)
        order = keyed.shift(keyed.draw(keys[rows, None], items + 1), 64 - _RANDOM_BITS)
        order <<= _ITEM_BITS
        order |= items
        order[items >= counts[rows, None]] = np.iinfo(np.int64).max
        order.sort(axis=1)
        order &= _ITEMS
        yield rows, order


def choose(keys: np.ndarray, counts: np.ndarray, quotas: np.ndarray) -> np.ndarray:
    """Choose quotas[i] of counts[i] items uniformly at random for each key i.

    Returns:
        Mask of the chosen items of all keys, one key after another, (counts.sum(),) bool.
    """
    offsets = bounds(counts)
    chosen = np.zeros(offsets[-1], bool)
    for rows, order in shuffled(keys, counts):
        first = order[np.arange(order.shape[1]) < quotas[rows, None]]
        first += np.repeat(offsets[rows], quotas[rows])
        chosen[first] = True
    return chosen


def fraction_of(fraction: float, counts: np.ndarray) -> np.ndarray:
    """Return fraction * counts, rounded half up, int64. A tolerance of 1e-9 absorbs floating-point errors."""
    return np.floor(fraction * counts + (0.5 + 1e-9)).astype(np.int64)


def spans_of(keys: np.ndarray, counts: np.ndarray, totals: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
    """Place numbers[i] spans, which together have totals[i] units, on the counts[i] units of sentence i without
    overlap.

    All placements are equally likely. The lengths of the spans of a sentence differ by at most one unit.

    Args:
        keys: the random key of each sentence, (n,) int64.

    Returns:
        (start, length) of the spans of all sentences, each (numbers.sum(),), from left to right. A start is the index
        of the span's first unit among the units of all sentences.
    """
    # The lengths are equal, except that consecutive spans, beginning with a random one, get one remaining unit each.
    rank = np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    some = np.maximum(numbers, 1)
    turn = keyed.shift(keyed.draw(keyed.mix(keys, 1), 1), 33) % some
    lengths = np.repeat(totals // some, numbers)
    lengths += (rank + np.repeat(turn, numbers)) % np.repeat(some, numbers) < np.repeat(totals % some, numbers)
    # If each span is shrunk to one slot, any choice of slots gives a placement.
    slots = counts - totals + numbers
    chosen = np.flatnonzero(choose(keyed.mix(keys, 2), slots, numbers))
    before = np.cumsum(lengths) - lengths  # units of all earlier spans, including those of earlier sentences
    starts = chosen - np.arange(len(chosen)) + before
    return starts, lengths


def members(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return the indices start, start + 1, ..., start + length - 1 of each range, all ranges concatenated."""
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
