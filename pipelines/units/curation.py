"""What can be decided of a document only when all are known: exact duplicates, the first N, the held-out part.

    units -> _staged/ shards + keys -> resolve: one verdict a document -> _curated/00003.zst -> units -> final shards

With `dedup` or `limit` a unit's shards wait in `_staged`, never altered there, until every unit's keys are known; then
each unit's final shards are those without what was ruled out. So a kill at any moment leaves either stage as it was,
and nothing depends on which worker was first. `_staged` goes once the manifest is written; verdicts stay, so that a
lost shard is made again from its own unit.

A document's key is 127 bits of two hashes: its id, and a sum of hashes of its tokens, each with its place. (Of what
has no tokens the id alone is the key: 63 bits of its file's own bytes.) Duplicates
are found by sorting keys a slice of the key space at a time. In memory are one slice, of PART_KEYS keys (each key, its
place in the order, columns in that order), and the verdicts, one byte a kept document. Every slice opens every unit's
keys once, READERS at a time.

What is said here of documents holds for the examples of any kind. Of a kind with several ragged columns all take part
that each example has; so the views of a sentence do not.
"""

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pyarrow as pa
import zstandard

from shards import keyed, storage
from shards.ragged import Ragged, bounds

KEEP, DUPLICATE, OVER_LIMIT = range(3)
REASONS = {DUPLICATE: "duplicate", OVER_LIMIT: "over_limit"}
KEY = np.dtype([("id", "<u8"), ("content", "<u8"), ("row", "<u4")])
BUCKETS = 256
ID_BITS = 63
LOWER_BITS = 32
PART_KEYS = 32_000_000
READERS = 16


@dataclasses.dataclass(frozen=True)
class Curation:
    """The switches: drop exact duplicates, keep the first `limit`, hold out the fraction with the lowest ids."""

    dedup: bool = False
    limit: int | None = None
    holdout_fraction: float = 0.0

    @property
    def is_staged(self) -> bool:
        """Whether what becomes of a document depends on others."""
        return self.dedup or self.limit is not None

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


def keys(batch: pa.RecordBatch, first: int, columns: Sequence[str]) -> np.ndarray:
    """The keys of a batch by ids and these columns of tokens, (n,) of KEY; its first row is the unit's row `first`."""
    found = np.empty(batch.num_rows, KEY)
    found["id"] = batch.column("id").to_numpy()
    found["row"] = np.arange(first, first + batch.num_rows)
    hashes = [_hashes(Ragged.from_arrow(batch.column(name))) for name in columns]
    found["content"] = hashes[0].view(np.uint64) if len(hashes) == 1 else keyed.mix(*hashes) if hashes else 0
    return found


def _hashes(lists: Ragged) -> np.ndarray:
    """64-bit hashes of lists of whole numbers, (n,) int64."""
    places = np.arange(len(lists.values)) - np.repeat(lists.offsets[:-1], lists.lengths)
    # Of random words modulo 2^64, so that the running sum may wrap: its differences do not.
    sums = bounds(keyed.draw(keyed.finalise(lists.values.astype(np.int64)), places + 1))
    return keyed.mix(sums[lists.offsets[1:]] - sums[lists.offsets[:-1]], lists.lengths)


def pack_keys(parts: Iterable[np.ndarray]) -> bytes:
    """A unit's keys as a file: how many are in each bucket of ids, then all, sorted."""
    found = np.concatenate([np.empty(0, KEY), *parts])
    found = found[np.lexsort((found["row"], found["content"], found["id"]))]
    counts = np.bincount((found["id"] >> np.uint64(ID_BITS - 8)).astype(np.int64), minlength=BUCKETS)
    return counts.astype("<u4").tobytes() + found.tobytes()


def mark_duplicates(verdicts: list[np.ndarray], paths: list[str]) -> None:
    """Sets to DUPLICATE what repeats an earlier row of any unit.

    Args:
        verdicts: of each unit, in plan order, (n,) uint8 by row.
        paths: each unit's keys file.
    """
    with ThreadPoolExecutor(READERS) as pool:
        counts = np.array(list(pool.map(_counts, paths)), dtype=np.int64).reshape(len(paths), BUCKETS)
        for start, end in _slices(counts.sum(axis=0)):
            units = bounds(counts[:, start:end].sum(axis=1))
            part = np.empty(units[-1], KEY)
            into = [part[first:last] for first, last in itertools.pairwise(units)]
            list(pool.map(_read, paths, counts[:, :start].sum(axis=1), into))
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


def _counts(path: str) -> np.ndarray:
    with storage.open_input(path) as stream:
        return np.frombuffer(stream.read(4 * BUCKETS), "<u4")


def _read(path: str, first: int, into: np.ndarray) -> None:
    """Fills `into` with the file's keys from number `first` on."""
    with storage.open_input(path) as stream:
        stream.seek(4 * BUCKETS + int(first) * KEY.itemsize)
        into[:] = np.frombuffer(stream.read(into.nbytes), KEY)


def _slices(totals: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of buckets that hold at most PART_KEYS keys, or are one bucket."""
    start = size = 0
    for bucket, total in enumerate(totals):
        if size and size + total > PART_KEYS:
            yield start, bucket
            start, size = bucket, 0
        size += int(total)
    yield start, BUCKETS


def rule(curation: Curation, kept: list[int], paths: list[str]) -> list[np.ndarray]:
    """The verdict on each document of each unit, (n,) uint8 by row.

    Args:
        kept: how many documents each unit has, in plan order.
        paths: each unit's keys file; read where duplicates are looked for.
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
