"""Files through which units and slices of the key space exchange entries: sorted by destination, with an index.

    unit  -> _staged/00003.keys             -> slice: all entries of a key meet
    slice -> _staged/duplicates-00017.rows  -> unit: its rows that were decided on

A file holds the number of entries before each destination, then all entries. A reader takes a range of destinations
from each of many files. Memory holds that range alone, and Beam passes no entry on.

A unit's result holds the hashes of its files. A file of decisions ends with its own hash (`common.sealed.seal_bytes`),
which a continued run verifies before it counts the decision as made.
"""

from collections.abc import Sequence

import numpy as np

from clearspan.common.ragged import bounds
from clearspan.shards import storage

INDEX = np.dtype("<u8")
BUCKETS = 4096
"""Equal parts of the key space: the destinations of a unit's entries. A slice is a range of them."""


def bucket(hashes: np.ndarray, bits: int) -> np.ndarray:
    """Return the bucket of each hash of this many bits, (n,) int64: its upper bits."""
    upper: np.ndarray = (hashes >> hashes.dtype.type(bits - (BUCKETS - 1).bit_length())).astype(np.int64)
    return upper


def pack(entries: np.ndarray, destinations: np.ndarray, num_destinations: int) -> bytes:
    """Return the content of a file: the entries, (n,), stably sorted by their destinations, (n,) int64."""
    index = bounds(np.bincount(destinations, minlength=num_destinations))
    return index.astype(INDEX).tobytes() + entries[np.argsort(destinations, kind="stable")].tobytes()


def gather(
    paths: Sequence[str], num_destinations: int, first: int, end: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Return the entries for the destinations first..end - 1 of all files, (n,) dtype, and the offsets of the files,
    (files + 1,).
    """
    begin = INDEX.itemsize * (num_destinations + 1)
    place = paths[0] if paths else ""
    parts = list(storage.each(place, lambda path: _read(path, begin, first, end, dtype), paths))
    offsets = bounds(np.array([len(part) for part in parts], np.int64))
    return np.concatenate([np.empty(0, dtype), *parts]), offsets


def _read(path: str, begin: int, first: int, end: int, dtype: np.dtype) -> np.ndarray:
    """Return the entries of a file for a range of destinations, (n,) dtype; `begin` is the place of the first entry."""
    size = INDEX.itemsize
    with storage.open_input(path) as stream:
        index = np.frombuffer(storage.read_at(stream, size * first, size * (end - first + 1)), INDEX)
        start, stop = int(index[0]), int(index[-1])
        if start == stop:
            return np.empty(0, dtype)
        return np.frombuffer(
            storage.read_at(stream, begin + dtype.itemsize * start, dtype.itemsize * (stop - start)), dtype
        )
