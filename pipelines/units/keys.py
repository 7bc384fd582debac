"""Keys that identify examples across units: 127 bits of two hashes, of an example's id and of its tokens."""

from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa

from clearspan.pipelines.units.exchange import BUCKETS, bucket, pack
from clearspan.shards import keyed
from clearspan.shards.ragged import Ragged, bounds

KEY = np.dtype([("id", "<u8"), ("content", "<u8"), ("row", "<u4")])
ID_BITS = 63


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
    """Return the content of a unit's file of keys, each part (n,) KEY: sorted, by bucket of the id."""
    entries = np.concatenate([np.empty(0, KEY), *parts])
    entries = entries[np.lexsort((entries["row"], entries["content"], entries["id"]))]
    return pack(entries, bucket(entries["id"], ID_BITS), BUCKETS)
