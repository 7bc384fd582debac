"""The held-out part of examples that hold several texts each: no text of it stands in an example to train on.

    units -> _staged/00003.links: the hash of each text, and its row -> rows of one text joined -> groups -> held out

Rows that share a text, in any column, are one group, and so are rows that are joined by others: the connected
components of the graph of rows and texts. A text is known by its tokens. A group is held out by the smallest of its
texts' hashes, so that a row that shares no text is on the same side in any run. A group of more rows than are to be
held out is trained on: a common hypothesis such as "a man is outside" can join much of a corpus. The other groups are
then held out at a higher rate, which keeps the fraction.

Hashes are read a slice of their space at a time (`curation`). In memory are one slice and, for each row of all units,
about 32 bytes.
"""

import itertools

import numpy as np
import pyarrow as pa

from clearspan.pipelines.units.keys import KEY, in_slices, token_hashes
from clearspan.shards import keyed
from clearspan.shards.ragged import Ragged, bounds
from clearspan.shards.schema import token_columns


def links(batch: pa.RecordBatch, first: int) -> np.ndarray:
    """Return the keys of all texts of a batch, (columns * n,) of KEY; its first row is the unit's row `first`."""
    columns = [token_hashes(Ragged.from_arrow(batch.column(name))) for name in token_columns(batch.schema)]
    found = np.zeros(len(columns) * batch.num_rows, KEY)
    found["id"] = np.concatenate(columns).view(np.uint64) >> np.uint64(1)
    found["row"] = np.tile(np.arange(first, first + batch.num_rows), len(columns))
    return found


def held_out(kept: list[np.ndarray], paths: list[str], fraction: float) -> list[np.ndarray]:
    """Choose the rows to hold out: about this fraction of those that are kept.

    Args:
        kept: whether each unit's rows are kept, in plan order, (n,) bool by row.
        paths: each unit's file of links.

    Returns:
        Of each unit, whether its rows are held out, (n,) bool.
    """
    starts = bounds(np.array(list(map(len, kept)), np.int64))
    is_kept = np.concatenate([np.empty(0, bool), *kept])
    group, smallest = np.arange(starts[-1]), np.full(starts[-1], np.iinfo(np.int64).max)
    for part, units in in_slices(paths):
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
    """Return pairs of rows that join all rows of each text: its first row that is kept, with each other one."""
    chosen = np.flatnonzero(is_kept[rows])
    chosen = chosen[np.argsort(texts[chosen], kind="stable")]
    is_first = np.append(True, texts[chosen[1:]] != texts[chosen[:-1]])[: len(chosen)]
    (firsts,) = np.nonzero(is_first)
    others = np.flatnonzero(~is_first)
    return rows[chosen[firsts[np.searchsorted(firsts, others) - 1]]], rows[chosen[others]]


def join(group: np.ndarray, left: np.ndarray, right: np.ndarray) -> None:
    """Join the groups of each pair of rows, in place.

    Args:
        group: the first row of each row's group, (rows,) int64.
        left, right: rows, (pairs,) each.
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
