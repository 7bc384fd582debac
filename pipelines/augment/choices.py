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
    """Yield a random permutation of the items 0, 1, ..., counts[i] - 1 for each key i, for many keys at a time.

    The items are sorted by their random numbers, `keyed.draw(key, item + 1)`. Keys with similar counts are yielded
    together, because sorting many short rows is many times faster than sorting all items at once. A key whose count is
    0 is not yielded.

    Args:
        keys: int64, (n,).
        counts: the number of items for each key, (n,).

    Yields:
        rows: the indices of r of the keys, (r,).
        order: the permutations for these keys, one per row, (r, width). Width is the largest of their counts, rounded
            up to a power of two. In the row of key i, only the first counts[i] values are defined.
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
    """Choose quotas[i] of counts[i] items uniformly at random for each of n keys.

    Args:
        keys: int64, (n,).
        counts, quotas: for each key, the number of items and the number of items to choose, (n,).

    Returns:
        Mask of the items of all keys, one key after another, (counts.sum(),) bool: True for the chosen items.
    """
    offsets = bounds(counts)
    chosen = np.zeros(offsets[-1], bool)
    for rows, order in shuffled(keys, counts):
        first = order[np.arange(order.shape[1]) < quotas[rows, None]]
        first += np.repeat(offsets[rows], quotas[rows])
        chosen[first] = True
    return chosen


def fraction_of(fraction: float, counts: np.ndarray) -> np.ndarray:
    """Return fraction * counts as int64, rounded half up. A tolerance of 1e-9 absorbs floating-point errors."""
    return np.floor(fraction * counts + (0.5 + 1e-9)).astype(np.int64)


def spans_of(keys: np.ndarray, counts: np.ndarray, totals: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
    """Place spans of units (tokens or words) in each of n sentences at random, without overlap.

    All placements are equally likely. The lengths of the spans of a sentence differ by at most one unit.

    Args:
        keys: the random key of each sentence, (n,) int64.
        counts: the number of units of each sentence, (n,).
        totals: the number of units that the spans of each sentence have together, (n,).
        numbers: the number of spans of each sentence, (n,).

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
