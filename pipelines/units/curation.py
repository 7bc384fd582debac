"""What can be decided of a document only when all are known: exact duplicates, the first N, the held-out part.

    units -> _staged/ shards + keys -> resolve: one verdict a document -> _curated/00003.zst -> units -> final shards

With `dedup` or `limit` a unit's shards wait in `_staged`, never altered there, until every unit's keys are known; then
each unit's final shards are those without what was ruled out. So a kill at any moment leaves either stage as it was,
and nothing depends on which worker was first. `_staged` goes once the manifest is written; verdicts stay, so that a
lost shard is made again from its own unit.

A document's key is 127 bits of two hashes: its id, and a sum of hashes of its tokens, each with its place. (Of what
has no tokens the id alone is the key: 63 bits of its file's own bytes.) Duplicates are found by sorting keys a slice of
the key space at a time (`keys`). In memory are one slice, of each key its columns and its place in the order, and the
verdicts, one byte a kept document. The held-out part waits for every unit too where examples may share a text
(`linking`).

What is said here of documents holds for the examples of any kind. Of a kind with several ragged columns all take part
that each example has; so the views of a sentence do not.
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
    """The switches: drop exact duplicates, keep the first `limit`, hold out the fraction with the lowest ids, or, where
    examples may share a text (`shared_texts`), that of groups of them.
    """

    dedup: bool = False
    limit: int | None = None
    holdout_fraction: float = 0.0
    shared_texts: bool = False

    @property
    def options(self) -> dict[str, Any]:
        """The switches as the fingerprint has them; its kind says whether texts are shared."""
        return {"dedup": self.dedup, "limit": self.limit, "holdout_fraction": self.holdout_fraction}

    @property
    def is_staged(self) -> bool:
        """Whether what becomes of a document depends on others."""
        return self.dedup or self.limit is not None or self.is_linked

    @property
    def is_linked(self) -> bool:
        """True where examples that share a text must be on the same side of the held-out part."""
        return self.shared_texts and self.holdout_fraction > 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why an example that the kind keeps may still be left out."""
        on = {"duplicate": self.dedup, "over_limit": self.limit is not None}
        return tuple(reason for reason, used in on.items() if used)

    def held_out(self, batch: pa.RecordBatch) -> np.ndarray:
        """Marks the examples that are held out, (n,) bool: by the upper bits of the id, so that copies of a text are on
        one side, and so are examples of one group, whose ids have these bits in common.
        """
        return batch.column("id").to_numpy() >> LOWER_BITS < int(self.holdout_fraction * (1 << (ID_BITS - LOWER_BITS)))


def mark_duplicates(verdicts: list[np.ndarray], paths: list[str]) -> None:
    """Sets to DUPLICATE what repeats an earlier row of any unit.

    Args:
        verdicts: of each unit, in plan order, (n,) uint8 by row.
        paths: each unit's keys file.
    """
    for part, units in in_slices(paths):
        repeats = _repeats(part)
        for unit, (first, last) in enumerate(itertools.pairwise(np.searchsorted(repeats, units))):
            verdicts[unit][part["row"][repeats[first:last]]] = DUPLICATE


def _repeats(part: np.ndarray) -> np.ndarray:
    """Finds the keys that are equal to an earlier one, by place, ascending."""
    # Stable: of equal keys the first in plan order stays first. By id alone it is a merge of what is sorted already.
    order = np.argsort(part["id"], kind="stable")
    same_id, same_content = _as_before(part["id"], order), _as_before(part["content"], order)
    if (same_id & ~same_content).any():
        # Two texts of one id, a chance of 1 in 20 among a billion: equal keys need not be neighbours.
        order = np.lexsort((part["content"], part["id"]))
        same_id, same_content = _as_before(part["id"], order), _as_before(part["content"], order)
    return np.sort(order[1:][same_id & same_content])


def _as_before(values: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Marks the values that, in this order and from the second on, equal the one before, (n - 1,) bool."""
    values = values[order]
    return values[1:] == values[:-1]


def rule(curation: Curation, kept: list[int], paths: list[str], links: list[str]) -> list[np.ndarray]:
    """The verdict on each document of each unit, (n,) uint8 by row.

    Args:
        kept: how many documents each unit has, in plan order.
        paths: each unit's keys file; read where duplicates are looked for.
        links: each unit's file of links; read where the held-out part goes by shared texts.
    """
    verdicts = [np.zeros(number, np.uint8) for number in kept]
    if curation.dedup:
        mark_duplicates(verdicts, paths)
    if curation.limit is not None:
        left = curation.limit
        for verdict in verdicts:
            (wanted,) = np.nonzero(verdict == KEEP)
            verdict[wanted[left:]] = OVER_LIMIT
            left -= min(left, len(wanted))
    if curation.is_linked:
        left_over = [verdict == KEEP for verdict in verdicts]
        for verdict, held in zip(verdicts, linking.held_out(left_over, links, curation.holdout_fraction), strict=True):
            verdict[held] = HELD_OUT
    return verdicts


def pack_verdicts(verdicts: np.ndarray) -> bytes:
    return zstandard.ZstdCompressor(write_checksum=True).compress(verdicts.tobytes())


def unpack_verdicts(data: bytes, count: int) -> np.ndarray:
    """The verdicts on `count` documents, (count,) uint8. Raises ValueError where the bytes are not theirs."""
    try:
        size = zstandard.frame_content_size(data)
        if size != count:
            raise ValueError(f"{size:,} verdicts on {count:,} documents")
        return np.frombuffer(zstandard.decompress(data), np.uint8)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


class Rebatcher:
    """Joins what is left of batches to batches of about `size` bytes of tokens again."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._parts: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Yields a batch when there is enough for one."""
        if batch.num_rows:
            self._parts.append(batch)
            self._bytes += batch.nbytes
        if self._bytes >= self.size:
            yield from self.rest()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """Yields what there is."""
        if self._parts:
            yield pa.concat_batches(self._parts)
            self._parts, self._bytes = [], 0
