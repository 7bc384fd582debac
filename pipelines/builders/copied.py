"""Reuse the vectors of an existing dataset when it is updated: `embed --update` embeds only new texts.

    old shards -> index: sorted ids and row numbers (16 bytes per text, in a file that all workers map into memory)
    ids of the texts to embed -> row numbers, by the index -> vectors, read from the verified shards batch by batch

Texts with equal ids are taken to be equal, because an id is 63 bits of the hash of the embedded text. Stored values are
copied unchanged.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from clearspan.common.files import atomic_write
from clearspan.common.terminal import warn
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import ManifestError, ShardInfo
from clearspan.shards.reader import Dataset, ShardError

COLUMNS = ("vector", "scale")
"""Names of the columns that are copied."""


def readable_shards(folder: str, columns: Collection[str]) -> Iterator[tuple[ShardInfo, list[pa.RecordBatch] | None]]:
    """Yield each shard of a dataset with its record batches, or with None if the shard is damaged or missing.

    Nothing is yielded if the manifest is damaged.

    Args:
        folder: the dataset's folder.
        columns: the columns to return; a column that the dataset lacks is left out.
    """
    try:
        dataset = Dataset(folder)
    except ManifestError:
        return
    for shard in dataset.shards:
        batches = []
        try:
            for batch in dataset.batches(shard):
                batches.append(batch.select([name for name in columns if name in batch.schema.names]))
            is_readable = True
        except ShardError:
            is_readable = False
        yield shard, batches if is_readable else None


def write_index(folder: str, path: Path) -> None:
    """Write an index of the n readable examples of a dataset to a file, as an array of numpy, (2, n) int64.

    The first row has the sorted ids of the examples, and the second row has the row number of each of these ids in the
    dataset. The examples of a damaged shard are left out, and a message on stderr says so.

    Args:
        folder: the dataset's folder.
        path: the file to write.
    """
    ids, rows, first = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for shard, batches in readable_shards(folder, ("id",)):
        if batches is None:
            warn(f"{folder}: {shard.name} is damaged or missing: its {shard.examples:,} vectors are computed again")
        else:
            ids += [batch.column("id").to_numpy() for batch in batches]
            rows.append(np.arange(first, first + shard.examples))
        first += shard.examples
    if not first:
        warn(f"{folder}: its {MANIFEST} is damaged: all vectors are computed again")
    unsorted = np.concatenate(ids)
    order = np.argsort(unsorted, kind="stable")
    with atomic_write(path) as stream:
        np.save(stream, np.stack([unsorted[order], np.concatenate(rows)[order]]), allow_pickle=False)


class Copied:
    """Reader of a dataset's vectors by id.

    Args:
        folder: the dataset's folder.
        index: the file that `write_index` wrote.
    """

    def __init__(self, folder: str, index: Path) -> None:
        self._ids, self._rows = np.load(index, mmap_mode="r", allow_pickle=False)
        if len(self._ids):  # otherwise the manifest may be damaged
            self._dataset = Dataset(folder)
            self._ends = np.cumsum([shard.examples for shard in self._dataset.shards], dtype=np.int64)

    def rows(self, ids: Sequence[int]) -> np.ndarray:
        """Return the row numbers in the dataset of n ids, (n,) int64; -1 for an id that the dataset does not have."""
        wanted = np.array(ids, np.int64)
        if not len(self._ids):
            return np.full(len(wanted), -1)
        places = np.searchsorted(self._ids, wanted).clip(max=len(self._ids) - 1)
        return np.where(self._ids[places] == wanted, self._rows[places], -1)

    def vectors(self, rows: np.ndarray) -> pa.RecordBatch:
        """Return the column `vector` of n rows, and the column `scale` if the dataset has it, with the values as they
        are stored.

        Args:
            rows: the row numbers, (n,) int64. The result has the same order.

        Raises:
            ShardError: a shard is damaged.
        """
        order = np.argsort(rows, kind="stable")
        wanted = rows[order]
        parts = list[pa.RecordBatch]()
        for number in np.unique(np.searchsorted(self._ends, wanted, side="right")):
            shard = self._dataset.shards[number]
            first = int(self._ends[number]) - shard.examples
            for batch in self._dataset.batches(shard):
                here = wanted[(wanted >= first) & (wanted < first + batch.num_rows)]
                if len(here):
                    names = [name for name in COLUMNS if name in batch.schema.names]
                    parts.append(batch.select(names).take(pa.array(here - first)))
                first += batch.num_rows
        taken = pa.concat_batches(parts).take(pa.array(np.argsort(order)))
        return pa.record_batch(taken.columns, names=taken.schema.names)
