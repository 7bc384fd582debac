"""Options of curation, which drop or hold out documents that the kind keeps, and the verdicts on them.

A verdict is a number for each document of a unit. Some decisions need all documents (duplicates, near-duplicates, the
first N, groups that share texts): `decisions` makes them between two stages of a run.

"Document" stands for an example of any kind.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard

from clearspan.pipelines.text import minhash
from clearspan.pipelines.units.keys import ID_BITS

KEEP, DUPLICATE, OVER_LIMIT, HELD_OUT, NEAR_DUPLICATE = range(5)
REASONS = {DUPLICATE: "duplicate", NEAR_DUPLICATE: "near_duplicate", OVER_LIMIT: "over_limit"}
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
        near_dedup: drop documents with this Jaccard similarity to an earlier one, or more.
    """

    dedup: bool = False
    limit: int | None = None
    holdout_fraction: float = 0.0
    shared_texts: bool = False
    near_dedup: float | None = None

    @property
    def options(self) -> dict[str, Any]:
        """The options as the fingerprint holds them; `shared_texts` follows from the kind."""
        near = {"near_dedup": self.near_dedup, "sketches": minhash.VERSION} if self.near_dedup is not None else {}
        return {"dedup": self.dedup, "limit": self.limit, "holdout_fraction": self.holdout_fraction, **near}

    @property
    def is_staged(self) -> bool:
        """Return whether the decision on a document depends on others."""
        return self.dedup or self.near_dedup is not None or self.limit is not None or self.is_linked

    @property
    def is_linked(self) -> bool:
        """Return whether examples that share a text must all be held out or all be kept."""
        return self.shared_texts and self.holdout_fraction > 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Reasons for which an example that the kind keeps may be dropped."""
        used = {DUPLICATE: self.dedup, NEAR_DUPLICATE: self.near_dedup is not None, OVER_LIMIT: self.limit is not None}
        return tuple(REASONS[verdict] for verdict, is_used in used.items() if is_used)

    def held_out(self, batch: pa.RecordBatch) -> np.ndarray:
        """Return the mask of held-out examples, (n,) bool, by the upper bits of the id: equal texts, and examples of
        one group, whose ids share these bits, are on the same side.
        """
        groups: np.ndarray = batch.column("id").to_numpy() >> LOWER_BITS
        return groups < int(self.holdout_fraction * (1 << (ID_BITS - LOWER_BITS)))


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
