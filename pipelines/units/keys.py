"""Keys by which examples of different units are compared: the whole example, or each of its texts.

The key of an example is 127 bits of two hashes: its id, and a sum of hashes of its tokens with their positions.
(Without tokens the id alone is the key: 63 bits of the hash of the file's bytes.) For a kind with several ragged
columns, it covers those that every example has, and so not the views of a sentence. The key of a text is the hash of
its tokens.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clearspan.common.ragged import Ragged, bounds, starts_run
from clearspan.shards import keyed
from clearspan.shards.schema import token_columns

KEY = np.dtype([("id", "<u8"), ("content", "<u8"), ("row", "<u4")])
TEXT = np.dtype([("text", "<u8"), ("row", "<u4"), ("held_out", "?")])
"""A text of a row, and whether the row is held out."""
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


def texts(batch: pa.RecordBatch, first: int, held_out: np.ndarray) -> np.ndarray:
    """Return the keys of all texts of a batch, (columns * n,) TEXT; `first` is the unit's row of its first row, and
    `held_out` (n,) bool says which rows are held out.
    """
    columns = [token_hashes(Ragged.from_arrow(batch.column(name))) for name in token_columns(batch.schema)]
    entries = np.empty(len(columns) * batch.num_rows, TEXT)
    entries["text"] = np.concatenate(columns).view(np.uint64)
    entries["row"] = np.tile(np.arange(first, first + batch.num_rows), len(columns))
    entries["held_out"] = np.tile(held_out, len(columns))
    return entries


def token_hashes(lists: Ragged) -> np.ndarray:
    """Return 64-bit hashes of lists of integers, (n,) int64."""
    positions = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths)
    # The running sum may wrap: its differences are sums of random words modulo 2^64 all the same.
    sums = bounds(keyed.draw(keyed.finalize(lists.values.astype(np.int64)), positions + 1))
    hashes: np.ndarray = keyed.mix(sums[lists.offsets[1:]] - sums[lists.offsets[:-1]], lists.lengths)
    return hashes


def repeats(entries: np.ndarray) -> np.ndarray:
    """Return the ascending positions of the keys (n,) KEY that equal an earlier one."""
    order = np.lexsort((entries["content"], entries["id"]))  # stable: of equal keys the first in plan order stays first
    is_first = starts_run(entries["id"][order]) | starts_run(entries["content"][order])
    return np.sort(order[~is_first])


def with_held_out_text(entries: np.ndarray) -> np.ndarray:
    """Return the positions of the texts (n,) TEXT of rows to train on that are also texts of held-out rows."""
    held_out = np.unique(entries["text"][entries["held_out"]])
    (positions,) = np.nonzero(np.isin(entries["text"], held_out) & ~entries["held_out"])
    return positions
