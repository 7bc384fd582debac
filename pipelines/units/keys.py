"""Keys that identify examples across units, in files that are read one slice of the key space at a time.

A file of keys holds the number of keys in each bucket of ids, then all keys, sorted. A slice has at most PART_KEYS
keys, or is a single bucket. Each slice is read from every unit's file, READERS files at a time.
"""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa

from clearspan.shards import keyed, storage
from clearspan.shards.ragged import Ragged, bounds

KEY = np.dtype([("id", "<u8"), ("content", "<u8"), ("row", "<u4")])
BUCKETS = 256
ID_BITS = 63
PART_KEYS = 32_000_000
READERS = 16


def keys(batch: pa.RecordBatch, first: int, columns: Sequence[str]) -> np.ndarray:
    """Return the keys of a batch by id and these columns of tokens, (n,) KEY; `first` is the unit's row of its first
    row.
    """
    entries = np.empty(batch.num_rows, KEY)
    entries["id"] = batch.column("id").to_numpy()
    entries["row"] = np.arange(first, first + batch.num_rows)
    hashes = [token_hashes(Ragged.from_arrow(batch.column(name))) for name in columns]
    entries["content"] = hashes[0].view(np.uint64) if len(hashes) == 1 else keyed.mix(*hashes) if hashes else 0
    return entries


def token_hashes(lists: Ragged) -> np.ndarray:
    """Return 64-bit hashes of lists of integers, (n,) int64."""
    positions = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths)
    # The running sum may wrap: its differences are sums of random words modulo 2^64 all the same.
    sums = bounds(keyed.draw(keyed.finalize(lists.values.astype(np.int64)), positions + 1))
    hashes: np.ndarray = keyed.mix(sums[lists.offsets[1:]] - sums[lists.offsets[:-1]], lists.lengths)
    return hashes


def pack_keys(parts: Iterable[np.ndarray]) -> bytes:
    """Return the content of a unit's file of keys."""
    entries = np.concatenate([np.empty(0, KEY), *parts])
    entries = entries[np.lexsort((entries["row"], entries["content"], entries["id"]))]
    counts = np.bincount((entries["id"] >> np.uint64(ID_BITS - 8)).astype(np.int64), minlength=BUCKETS)
    return counts.astype("<u4").tobytes() + entries.tobytes()


def in_slices(paths: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield slices of the keys of all units: the keys (n,) KEY in unit order, and the offsets of the units (units +
    1,).

    Args:
        paths: each unit's file of keys, in plan order.
    """
    with ThreadPoolExecutor(READERS) as pool:
        counts = np.array(list(pool.map(_counts, paths)), dtype=np.int64).reshape(len(paths), BUCKETS)
        for start, end in _slices(counts.sum(axis=0)):
            units = bounds(counts[:, start:end].sum(axis=1))
            part = np.empty(units[-1], KEY)
            targets = [part[first:last] for first, last in itertools.pairwise(units)]
            list(pool.map(_read, paths, counts[:, :start].sum(axis=1), targets))
            yield part, units


def _counts(path: str) -> np.ndarray:
    with storage.open_input(path) as stream:
        return np.frombuffer(stream.read(4 * BUCKETS), "<u4")


def _read(path: str, first: int, target: np.ndarray) -> None:
    """Fill `target` with the file's keys from number `first` on."""
    with storage.open_input(path) as stream:
        stream.seek(4 * BUCKETS + int(first) * KEY.itemsize)
        target[:] = np.frombuffer(stream.read(target.nbytes), KEY)


def _slices(totals: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield ranges of buckets that hold at most PART_KEYS keys, or are a single bucket."""
    start = size = 0
    for bucket, total in enumerate(totals):
        if size and size + total > PART_KEYS:
            yield start, bucket
            start, size = bucket, 0
        size += int(total)
    yield start, BUCKETS
