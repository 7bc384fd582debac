"""Held-out part of examples with several texts each: no text of it occurs in a training example.

    units -> _staged/00003.links: the hash and the row of each text -> rows that share a text joined -> groups -> held
    out

A group is a connected component of the graph of rows and texts: all rows that share a text, in any column, directly or
through other rows. Texts are compared by their tokens. The smallest hash of its texts decides whether a group is held
out, so that a row that shares no text is on the same side in every run. A group with more rows than the whole held-out
part is trained on: a common hypothesis such as "a man is outside" can join much of a corpus. The other groups are then
held out at a higher rate, which preserves the fraction.

The hashes are read one slice of their space at a time (`exchange`). Memory holds one slice, and about 32 bytes for each
row of all units.
"""

import itertools

import numpy as np
import pyarrow as pa

from clearspan.pipelines.units.exchange import BUCKETS, gather, slice_of
from clearspan.pipelines.units.keys import KEY, token_hashes
from clearspan.shards import keyed
from clearspan.shards.ragged import Ragged, bounds, starts_run
from clearspan.shards.schema import token_columns


def links(batch: pa.RecordBatch, first: int) -> np.ndarray:
    """Return the keys of all texts of a batch, (columns * n,) KEY; `first` is the unit's row of its first row."""
    columns = [token_hashes(Ragged.from_arrow(batch.column(name))) for name in token_columns(batch.schema)]
    entries = np.zeros(len(columns) * batch.num_rows, KEY)
    entries["id"] = np.concatenate(columns).view(np.uint64) >> np.uint64(1)
    entries["row"] = np.tile(np.arange(first, first + batch.num_rows), len(columns))
    return entries


def held_out(kept: list[np.ndarray], paths: list[str], num_slices: int, fraction: float) -> list[np.ndarray]:
    """Choose the rows to hold out, about this fraction of the kept rows.

    Args:
        kept: mask of the kept rows of each unit, in plan order, (n,) bool.
        paths: each unit's file of links, of which a slice is read at a time.

    Returns:
        The mask of the held-out rows of each unit, (n,) bool.
    """
    starts = bounds(np.array(list(map(len, kept)), np.int64))
    is_kept = np.concatenate([np.empty(0, bool), *kept])
    group, smallest = np.arange(starts[-1]), np.full(starts[-1], np.iinfo(np.int64).max)
    for number in range(num_slices):
        part, units = gather(paths, BUCKETS, *slice_of(number, num_slices), KEY)
        rows = part["row"] + np.repeat(starts[:-1], np.diff(units))
        np.minimum.at(smallest, rows, part["id"].astype(np.int64))
        join(group, *_shared(part["id"], rows, is_kept))
    np.minimum.at(smallest, group, smallest)
    sizes = np.bincount(group[is_kept], minlength=len(group))
    num_rows = int(is_kept.sum())
    is_small = sizes <= max(1, fraction * num_rows)
    rate = fraction * num_rows / max(1, int(sizes[is_small].sum()))
    draws = (keyed.finalize(smallest).view(np.uint64) >> np.uint64(11)) / float(1 << 53)
    chosen = is_kept & (is_small & (draws < rate))[group]
    return [chosen[start:end] for start, end in itertools.pairwise(starts)]


def _shared(texts: np.ndarray, rows: np.ndarray, is_kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return pairs of rows that connect all rows of each text: its first kept row with each other kept row."""
    chosen = np.flatnonzero(is_kept[rows])
    chosen = chosen[np.argsort(texts[chosen], kind="stable")]
    is_first = starts_run(texts[chosen])
    (firsts,) = np.nonzero(is_first)
    others = np.flatnonzero(~is_first)
    return rows[chosen[firsts[np.searchsorted(firsts, others) - 1]]], rows[chosen[others]]


def join(group: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Join the groups of each pair of rows, in place.

    Args:
        group: first row of each row's group, (rows,) int64.
        left, right: rows of the pairs, (pairs,) each.
    """
    while True:
        first, second = group[left], group[right]
        apart = first != second
        if not apart.any():
            return
        left, right, first, second = left[apart], right[apart], first[apart], second[apart]
        np.minimum.at(group, np.maximum(first, second), np.minimum(first, second))
        while not np.array_equal(further := group[group], group):
            group[:] = further
