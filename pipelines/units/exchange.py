"""Files with which the units of a run exchange data about their examples, for decisions that need all examples.

    unit  -> _staged/keys-00003.rows        -> slice: all entries with the same key are in one slice
    slice -> _staged/duplicates-00017.rows  -> unit: the rows that the slice has found to be duplicates

An entry is a fixed-size record, such as a key of an example and the example's row in its unit. The keys are hashes.
Their range of values, the key space, is divided into BUCKETS buckets of equal size. A slice is a range of buckets that
one worker handles.

Each entry in a file has a destination: a bucket, or a unit. The file begins with an index: the position of the first
entry for each destination. The entries follow, sorted by destination. A reader takes the entries for some consecutive
destinations from each of many files, and holds only these entries in memory. No entry passes through Beam.

The files that a unit writes about its examples have hashes in the unit's result. Any other file ends with its own hash
(`common.checksummed.append_checksum`). If a continued run finds that such a file is damaged, it writes the file again.
"""

from collections.abc import Sequence

import numpy as np

from clearspan.common.ragged import bounds
from clearspan.shards import storage

INDEX = np.dtype("<u8")
BUCKETS = 4096
"""Number of equal parts of the key space."""


def bucket(hashes: np.ndarray, bits: int) -> np.ndarray:
    """Return the number of each hash's bucket, (n,) int64. The buckets are BUCKETS equal parts of the range of hashes.

    Args:
        hashes: the hashes, (n,) uint64.
        bits: the number of bits of a hash. If it is less than 64, the upper bits of each number in `hashes` are 0.
    """
    upper: np.ndarray = (hashes >> hashes.dtype.type(bits - (BUCKETS - 1).bit_length())).astype(np.int64)
    return upper


def pack(entries: np.ndarray, destinations: np.ndarray, num_destinations: int) -> bytes:
    """Return the content of a file that holds n entries sorted by destination, after an index of the destinations.

    Entries with the same destination keep their order.

    Args:
        entries: the entries in any order, (n,), of any structured dtype.
        destinations: the destination of each entry, (n,) int64, from 0 to num_destinations - 1.
        num_destinations: the number of possible destinations.
    """
    index = bounds(np.bincount(destinations, minlength=num_destinations))
    return index.astype(INDEX).tobytes() + entries[np.argsort(destinations, kind="stable")].tobytes()


def gather(
    paths: Sequence[str], num_destinations: int, first: int, end: int, dtype: np.dtype
) -> tuple[np.ndarray, np.ndarray]:
    """Read the entries for the destinations `first` to `end` - 1 from several files.

    Args:
        paths: the paths of the files, whose content `pack` made.
        num_destinations: the number of possible destinations in each file.
        first, end: the range of destinations to read; `end` is excluded.
        dtype: the dtype of an entry.

    Returns:
        entries: the entries, (n,) dtype, one file after another.
        offsets: the index of each file's first entry in `entries`, followed by n, (files + 1,) int64.
    """
    begin = INDEX.itemsize * (num_destinations + 1)
    place = paths[0] if paths else ""
    parts = list(storage.each(place, lambda path: _read(path, begin, first, end, dtype), paths))
    offsets = bounds(np.array([len(part) for part in parts], np.int64))
    return np.concatenate([np.empty(0, dtype), *parts]), offsets


def _read(path: str, start_of_entries: int, first: int, end: int, dtype: np.dtype) -> np.ndarray:
    """Return the entries for a range of destinations from one file, (n,) dtype.

    Args:
        path: the path of the file, whose content `pack` made.
        start_of_entries: the byte offset of the file's first entry.
        first, end: the range of destinations to read; `end` is excluded.
        dtype: the dtype of an entry.
    """
    size = INDEX.itemsize
    with storage.open_input(path) as stream:
        index = np.frombuffer(storage.read_at(stream, size * first, size * (end - first + 1)), INDEX)
        start, stop = int(index[0]), int(index[-1])
        if start == stop:
            return np.empty(0, dtype)
        return np.frombuffer(
            storage.read_at(stream, start_of_entries + dtype.itemsize * start, dtype.itemsize * (stop - start)), dtype
        )
