"""Uniform choices for many keys at once: some of n things, an order of n things, spans that do not overlap.

What is chosen for a key is a function of the key alone: things are put in the order of their draws (`shards.keyed`).
"""

from collections.abc import Iterator

import numpy as np

from clearspan.shards import keyed
from clearspan.shards.ragged import bounds

_THING_BITS, _RANDOM_BITS = 31, 31
_THINGS = (1 << _THING_BITS) - 1


def shuffled(keys: np.ndarray, counts: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Every key's things 0 .. counts[i] - 1 in the order of their draws (number = thing + 1, the first 31 bits).

    Yields:
        (keys' rows (r,), their things (r, width)); past a row's count stands anything. Rows of like count come
        together: sorting short rows is many times faster than sorting all things at once.
    """
    widths = 1 << np.ceil(np.log2(np.maximum(counts, 1))).astype(np.int64)
    for width in np.unique(widths[counts > 0]):
        rows = np.flatnonzero((widths == width) & (counts > 0))
        things = np.arange(width)
        order = keyed.shift(keyed.draw(keys[rows, None], things + 1), 64 - _RANDOM_BITS)
        order <<= _THING_BITS
        order |= things
        order[things >= counts[rows, None]] = np.iinfo(np.int64).max
        order.sort(axis=1)
        order &= _THINGS
        yield rows, order


def choose(keys: np.ndarray, counts: np.ndarray, quotas: np.ndarray) -> np.ndarray:
    """A uniform choice of quotas[i] of counts[i] things for every key: bool over all things, (counts.sum(),)."""
    offsets = bounds(counts)
    chosen = np.zeros(offsets[-1], bool)
    for rows, order in shuffled(keys, counts):
        first = order[np.arange(order.shape[1]) < quotas[rows, None]]
        first += np.repeat(offsets[rows], quotas[rows])
        chosen[first] = True
    return chosen


def fraction_of(fraction: float, counts: np.ndarray) -> np.ndarray:
    """That fraction of counts, rounded half up, int64; what floating point takes from a half does not count."""
    return np.floor(fraction * counts + (0.5 + 1e-9)).astype(np.int64)


def spans_of(keys: np.ndarray, counts: np.ndarray, totals: np.ndarray, numbers: np.ndarray) -> tuple[np.ndarray, ...]:
    """Spans that do not overlap, uniform over all their placements: numbers[i] of totals[i] of counts[i] units in all.

    Returns:
        (first unit counted over all sentences, number of units), each (numbers.sum(),), from left to right.
    """
    # Lengths: even, the units that remain one each to consecutive spans from a drawn one on.
    rank = np.arange(numbers.sum()) - np.repeat(np.cumsum(numbers) - numbers, numbers)
    some = np.maximum(numbers, 1)
    turn = keyed.shift(keyed.draw(keyed.mix(keys, 1), 1), 33) % some
    lengths = np.repeat(totals // some, numbers)
    lengths += (rank + np.repeat(turn, numbers)) % np.repeat(some, numbers) < np.repeat(totals % some, numbers)
    # Places: with each span shrunk to one slot, any choice of slots is a placement.
    slots = counts - totals + numbers
    chosen = np.flatnonzero(choose(keyed.mix(keys, 2), slots, numbers))
    before = np.cumsum(lengths) - lengths  # units of earlier spans, other sentences' spans included
    starts = chosen - np.arange(len(chosen)) + before
    return starts, lengths


def members(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """start, start + 1, ... of every stretch."""
    return np.repeat(starts - np.cumsum(lengths) + lengths, lengths) + np.arange(lengths.sum())
