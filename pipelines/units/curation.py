"""Decisions that need all documents: exact duplicates, the first N, the held-out part.

    units -> _staged/ shards + keys -> resolve: one verdict per document -> _curated/00003.zst -> units -> final shards

With `dedup` or `limit` a unit's shards wait unchanged in `_staged` until the keys of all units are known; each unit
then writes its final shards without the documents that were dropped. A kill at any moment leaves both stages intact,
and the result does not depend on the order of the workers. `_staged` is removed once the manifest is written; verdicts
stay, so that a lost shard can be made again from its own unit.

A document's key is 127 bits of two hashes: its id, and a sum of hashes of its tokens with their positions. (Without
tokens the id alone is the key: 63 bits of the hash of the file's bytes.) Duplicates are found by sorting the keys, one
slice of the key space at a time (`keys`). Memory holds one slice (each key and its position in the order) and the
verdicts, one byte per kept document. If examples may share texts, the held-out part is decided here too (`linking`).

"Document" stands for an example of any kind. For a kind with several ragged columns, the key covers those that every
example has, and so not the views of a sentence.
"""

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard

from clearspan.pipelines.units import linking
from clearspan.pipelines.units.keys import ID_BITS, in_slices

KEEP, DUPLICATE, OVER_LIMIT, HELD_OUT = range(4)
REASONS = {DUPLICATE: "duplicate", OVER_LIMIT: "over_limit"}
LOWER_BITS = 32


@dataclasses.dataclass(frozen=True)
class Curation:
    """Options of curation.

    Attributes:
        dedup: drop exact duplicates.
        limit: keep the first documents, up to this number.
        holdout_fraction: hold out about this fraction: the documents with the lowest ids, or whole groups of examples
            that share texts.
        shared_texts: whether examples of the kind may share texts.
    """

    dedup: bool = False
    limit: int | None = None
    holdout_fraction: float = 0.0
    shared_texts: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The options as the fingerprint holds them; `shared_texts` follows from the kind."""
        return {"dedup": self.dedup, "limit": self.limit, "holdout_fraction": self.holdout_fraction}

    @property
    def is_staged(self) -> bool:
        """Whether the decision on a document depends on others."""
        return self.dedup or self.limit is not None or self.is_linked

    @property
    def is_linked(self) -> bool:
        """Whether examples that share a text must all be held out or all be kept."""
        return self.shared_texts and self.holdout_fraction > 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons for which an example that the kind keeps may be dropped."""
        on = {"duplicate": self.dedup, "over_limit": self.limit is not None}
        return tuple(reason for reason, used in on.items() if used)

    def held_out(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the mask of held-out examples, (n,) bool, by the upper bits of the id: equal texts, and examples of
        one group, whose ids share these bits, are on the same side.
        """
        groups: np.ndarray = batch.column("id").to_numpy() >> LOWER_BITS
        return groups < int(self.holdout_fraction * (1 << (ID_BITS - LOWER_BITS)))


def mark_duplicates(verdicts: list[np.ndarray], paths: list[str]) -> None:
    """Set the verdict of every row that equals an earlier row of any unit to DUPLICATE.

    Args:
        verdicts: verdicts of each unit, in plan order, (n,) uint8 by row.
        paths: each unit's file of keys.
    """
    for part, units in in_slices(paths):
        repeats = _repeats(part)
        for unit, (first, last) in enumerate(itertools.pairwise(np.searchsorted(repeats, units))):
            verdicts[unit][part["row"][repeats[first:last]]] = DUPLICATE


def _repeats(part: np.ndarray) -> np.ndarray:
    """Return the ascending positions of the keys that equal an earlier one."""
    # Stable: of equal keys the first in plan order stays first. Sorting by id alone merges sequences sorted already.
    order = np.argsort(part["id"], kind="stable")
    same_id, same_content = _equals_previous(part["id"], order), _equals_previous(part["content"], order)
    if (same_id & ~same_content).any():
        # Two texts with one id, a chance of 1 in 20 among a billion: equal keys need not be adjacent.
        order = np.lexsort((part["content"], part["id"]))
        same_id, same_content = _equals_previous(part["id"], order), _equals_previous(part["content"], order)
    return np.sort(order[1:][same_id & same_content])


def _equals_previous(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Return which values from the second on equal their predecessor in this order, (n - 1,) bool."""
    values = values[order]
    is_equal: np.ndarray = values[1:] == values[:-1]
    return is_equal


def rule(curation: Curation, kept: list[int], paths: list[str], links: list[str]) -> list[np.ndarray]:
    """Return the verdicts on the documents of each unit, (n,) uint8 by row.

    Args:
        kept: number of documents of each unit, in plan order.
        paths: each unit's file of keys; read to find duplicates.
        links: each unit's file of links; read if examples may share texts.
    """
    verdicts = [np.zeros(number, np.uint8) for number in kept]
    if curation.dedup:
        mark_duplicates(verdicts, paths)
    if curation.limit is not None:
        left = curation.limit
        for verdict in verdicts:
            (rows,) = np.nonzero(verdict == KEEP)
            verdict[rows[left:]] = OVER_LIMIT
            left -= min(left, len(rows))
    if curation.is_linked:
        kept_rows = [verdict == KEEP for verdict in verdicts]
        masks = linking.held_out(kept_rows, links, curation.holdout_fraction)
        for verdict, mask in zip(verdicts, masks, strict=True):
            verdict[mask] = HELD_OUT
    return verdicts


def pack_verdicts(verdicts: np.ndarray) -> bytes:
    """Return the content of a file of verdicts."""
    return zstandard.ZstdCompressor(write_checksum=True).compress(verdicts.tobytes())


def unpack_verdicts(data: bytes, count: int) -> np.ndarray:
    """Return the verdicts on `count` documents, (count,) uint8; raise ValueError if the file holds anything else."""
    try:
        size = zstandard.frame_content_size(data)
        if size != count:
            raise ValueError(f"{size:,} verdicts on {count:,} documents")
        return np.frombuffer(zstandard.decompress(data), np.uint8)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


class Rebatcher:
    """Combiner of filtered batches into batches of about `size` bytes."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Add a batch; yield a combined one if there is enough for it."""
        if batch.num_rows:
            self._parts.append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= self.size:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yield the remaining rows."""
        if self._parts:
            yield pa.concat_batches(self._parts)
            self._parts, self._bytes = [], 0
