"""Keys by which examples of different units are compared: a key of the whole example, or a key of each of its texts.

Two texts count as equal if they differ only in white space, letter case or Unicode form (`common.same_text`). The
worker that makes the examples attaches hashes of their texts to the batch (`pipelines.attached`). The key of an example
consists of 127 bits of these hashes.

If a kind of dataset attaches no hashes, such as images, the key consists of the example's id (63 bits) and a 64-bit
hash of all tokens with their positions. If it has several columns of tokens, only the columns that every example has
are hashed; views of a sentence are left out. If it has no tokens, the key is the id alone, a hash of the file's bytes.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from clearspan.common.ragged import Ragged, bounds, is_run_start
from clearspan.shards import keyed
from clearspan.shards.schema import token_columns

KEY = np.dtype([("id", "<u8"), ("content", "<u8"), ("row", "<u4")])
TEXT = np.dtype([("text", "<u8"), ("row", "<u4")])
"""A text, as a hash, and a row that holds it."""
ID_BITS = 63


def sides(batch: pa.RecordBatch, hashes: np.ndarray | None) -> np.ndarray:
    """Return a hash of 63 bits (ID_BITS) for each of n examples, (n,) uint64; the upper bit is 0.

    The hash decides whether the example belongs to the held-out part (`Curation.held_out`).

    Args:
        batch: the examples.
        hashes: the hashes of the examples' texts, each as two numbers, (n, 2 * texts) uint64, where `texts` is the
            number of texts of an example; None to use the ids of the examples.
    """
    if hashes is None:
        ids: np.ndarray = batch.column("id").to_numpy().view(np.uint64)
        return ids
    return _combined(hashes[:, ::2]) >> np.uint64(64 - ID_BITS)


def keys(batch: pa.RecordBatch, hashes: np.ndarray | None, first: int, columns: Sequence[str]) -> np.ndarray:
    """Return the keys of n examples, (n,) KEY; two examples with equal keys are exact duplicates.

    An element holds the key, as two numbers (`id` and `content`), and the row number of the example.

    Args:
        batch: the examples.
        hashes: the hashes of the examples' texts, each as two numbers, (n, 2 * texts) uint64, where `texts` is the
            number of texts of an example; None to make the keys from ids and tokens.
        first: the row number, in the work unit, of the batch's first example.
        columns: the names of the columns of tokens that every example has.
    """
    entries = np.empty(batch.num_rows, KEY)
    entries["id"] = sides(batch, hashes)
    entries["row"] = np.arange(first, first + batch.num_rows)
    if hashes is not None:
        entries["content"] = _combined(hashes[:, 1::2])
        return entries
    tokens = [token_hashes(Ragged.from_arrow(batch.column(name))) for name in columns]
    if len(tokens) == 1:
        entries["content"] = tokens[0].view(np.uint64)
    else:
        entries["content"] = keyed.mix(*tokens) if tokens else 0
    return entries


def _combined(hashes: np.ndarray) -> np.ndarray:
    """Combine the hashes of the texts of each row into one hash for the row, (n,) uint64.

    If a row has a single text, its hash stays unchanged.

    Args:
        hashes: the hashes, (n, texts) uint64: a row for each of n examples, and a column for each of its texts.
    """
    if hashes.shape[1] == 1:
        return hashes[:, 0]
    mixed: np.ndarray = keyed.mix(*hashes.view(np.int64).T).view(np.uint64)
    return mixed


def texts(batch: pa.RecordBatch, hashes: np.ndarray | None, first: int, groups: np.ndarray | None = None) -> np.ndarray:
    """Return an entry for each text of n examples, (m,) TEXT: the hash of the text, and its example's row number.

    The group of an example, which the user states by `--group-field`, counts as one of its texts.

    Args:
        batch: the examples.
        hashes: the hashes of the examples' texts, each as two numbers, (n, 2 * texts) uint64, where `texts` is the
            number of texts of an example, without the group; None to hash each column of tokens instead.
        first: the row number, in the work unit, of the batch's first example.
        groups: the hashes of the examples' groups, (n, 1) uint64; None if the examples have no groups.
    """
    if hashes is None:
        named = token_columns(batch.schema)
        columns = [token_hashes(Ragged.from_arrow(batch.column(name))).view(np.uint64) for name in named]
    else:
        columns = list(hashes[:, ::2].T)
    if groups is not None:
        columns += list(groups.T)
    entries = np.empty(len(columns) * batch.num_rows, TEXT)
    entries["text"] = np.concatenate(columns) >> np.uint64(64 - ID_BITS)
    entries["row"] = np.tile(np.arange(first, first + batch.num_rows), len(columns))
    return entries


def token_hashes(lists: Ragged) -> np.ndarray:
    """Return a 64-bit hash of each of n lists of integers, (n,) int64."""
    positions = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths)
    # The running sum may wrap: its differences are sums of random words modulo 2^64 all the same.
    sums = bounds(keyed.draw(keyed.finalize(lists.values.astype(np.int64)), positions + 1))
    hashes: np.ndarray = keyed.mix(sums[lists.offsets[1:]] - sums[lists.offsets[:-1]], lists.lengths)
    return hashes


def repeats(entries: np.ndarray) -> np.ndarray:
    """Return the indices of the keys that equal an earlier key, (m,) int64, in ascending order.

    Args:
        entries: the keys, each with the row number of its example, (n,) KEY.
    """
    order = np.lexsort((entries["content"], entries["id"]))  # stable: of equal keys the first in plan order stays first
    is_first = is_run_start(entries["id"][order]) | is_run_start(entries["content"][order])
    return np.sort(order[~is_first])
