"""Keys by which examples of different units are compared: the whole example, or each of its texts.

The key of an example is 127 bits of two hashes: its id, and a sum of hashes of its tokens with their positions.
(Without tokens the id alone is the key: 63 bits of the hash of the file's bytes.) For a kind with several ragged
columns, it covers those that every example has, and so not the views of a sentence. The key of a text is the hash of
its tokens.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clearspan.shards import keyed
from clearspan.shards.ragged import Ragged, bounds
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
    # Stable: of equal keys the first in plan order stays first. Sorting by id alone merges sequences sorted already.
    order = np.argsort(entries["id"], kind="stable")
    same_id, same_content = _equals_previous(entries["id"], order), _equals_previous(entries["content"], order)
    if (same_id & ~same_content).any():
        # Two texts with one id, a chance of 1 in 20 among a billion: equal keys need not be adjacent.
        order = np.lexsort((entries["content"], entries["id"]))
        same_id, same_content = _equals_previous(entries["id"], order), _equals_previous(entries["content"], order)
    return np.sort(order[1:][same_id & same_content])


def _equals_previous(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return which values from the second on equal their predecessor in this order, (n - 1,) bool."""
    values = values[order]
    is_equal: np.ndarray = values[1:] == values[:-1]
    return is_equal


def with_held_out_text(entries: np.ndarray) -> np.ndarray:
    """Return the positions of the texts (n,) TEXT of rows to train on that are also texts of held-out rows."""
    held_out = np.unique(entries["text"][entries["held_out"]])
    (positions,) = np.nonzero(np.isin(entries["text"], held_out) & ~entries["held_out"])
    return positions
