"""Decisions that need all documents: duplicates, near-duplicates, texts of held-out documents, the first N.

    units -> _staged/: shards, keys, bands -> slices and units by turns (`rounds`): duplicates-00017.rows, ...
          -> units: one verdict per document -> _curated/00003.zst -> final shards

With one of these decisions, a unit's shards wait in `_staged` until the keys of all units are known; each unit then
writes its final shards without the documents that were dropped. A kill at any moment leaves both stages intact,
and the result does not depend on the order of the workers. `_staged` is removed once the manifest is written; verdicts
stay, so that a lost shard can be made again from its own unit.

All decisions but the last are made by key: `by_key` gives a function the entries of one slice of the key space, where
all entries of a key meet, and sends back what it decides on their rows. Slices are dealt out to workers: a worker sorts
the entries of one slice at a time, and its memory does not grow with the corpus.

For near-duplicates (`near`), slices of the space of bands find the rows that share one; their units look the codes up;
the same slices compare them; and the units put together what the slices drop.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import zstandard

from clearspan.common import kept
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.units import exchange, near
from clearspan.pipelines.units.curation import DUPLICATE, HELD_OUT_TEXT, KEEP, NEAR_DUPLICATE, OVER_LIMIT, Curation
from clearspan.pipelines.units.exchange import BUCKETS, gather, pack, signed, verified
from clearspan.pipelines.units.job import CURATED, STAGED, Entries, Job, UnitResult, load_result
from clearspan.pipelines.units.keys import repeats, with_held_out_text
from clearspan.shards import storage

SLICE_BYTES = 160_000_000
"""The size of a slice at most, if keys are spread evenly: eight million keys."""
WEIGHTS: dict[str, int] = {Entries.KEYS: 1, Entries.TEXTS: 1, Entries.BANDS: 4}
"""Bytes that a slice may come to hold for each byte of these entries. A candidate is 23 times as large as a band; one
band in six may be shared."""
ROW = np.dtype("<u4")
NUMBER = np.dtype("<u8")

Decide = Callable[[np.ndarray, Curation], tuple[np.ndarray, np.ndarray]]
"""Function of entries (n,) in plan order, among them all of each of their keys. It returns the positions of those on
which there is something to tell their units, (m,) int64, and what, (m,)."""


def staged(job: Job, unit: int) -> UnitResult:
    """Return the result of a unit's first stage.

    Raises:
        PipelineError: it is damaged.
    """
    path = job.result_path(unit, STAGED)
    if result := load_result(path, job.plan, unit):
        return result
    raise PipelineError(f"{path}: damaged: run again to recreate it")


def have_verdicts(job: Job) -> bool:
    """Return whether the verdicts of all units are written."""
    names = set(storage.list_files(job.path(CURATED)))
    return all(Path(job.verdicts_path(unit)).name in names for unit in range(job.num_units))


def is_whole(path: str) -> bool:
    """Return whether a file of decisions that an earlier run wrote is as it was written; report a damaged one."""
    try:
        verified(storage.read_bytes(path))
    except ValueError:
        kept.tell(f"{path}: damaged since it was written: decided again")
        return False
    return True


def num_slices(job: Job) -> int:
    """Return the number of slices, by the entries of all units that take most."""
    totals = dict.fromkeys(WEIGHTS, 0)
    for name, size in storage.file_sizes(job.staged_folder).items():
        if (entries := name.partition("-")[0]) in totals:
            totals[entries] += WEIGHTS[entries] * size
    return min(BUCKETS, max(1, -(-max(totals.values()) // SLICE_BYTES)))


def by_key(job: Job, number: int, slices: int, source: str, dtype: np.dtype, decide: Decide, decision: str) -> None:
    """Make a decision on the entries of one slice.

    Args:
        source: the entries that units wrote, (n,) dtype, by bucket of their key.
        decision: receives what `decide` returns, by unit.
    """
    paths = [job.entries_path(source, unit) for unit in range(job.num_units)]
    first, end = BUCKETS * number // slices, BUCKETS * (number + 1) // slices
    part, offsets = gather(paths, BUCKETS, first, end, dtype)
    positions, answers = decide(part, job.curation)
    units = np.searchsorted(offsets, positions, side="right") - 1
    storage.publish_bytes(signed(pack(answers, units, job.num_units)), job.entries_path(decision, number))


def duplicates(part: np.ndarray, _: Curation) -> tuple[np.ndarray, np.ndarray]:
    """Find the keys (n,) KEY that equal an earlier one: their rows."""
    positions = repeats(part)
    return positions, part["row"][positions]


def held_out_texts(part: np.ndarray, _: Curation) -> tuple[np.ndarray, np.ndarray]:
    """Find the texts (n,) TEXT of rows to train on that are also texts of held-out rows: their rows."""
    positions = with_held_out_text(part)
    return positions, part["row"][positions]


def candidates(part: np.ndarray, _: Curation) -> tuple[np.ndarray, np.ndarray]:
    """Find the bands (n,) BAND that several rows share: the bands and rows."""
    positions = near.shared(part["band"])
    return positions, part[positions]


def similar(part: np.ndarray, curation: Curation) -> tuple[np.ndarray, np.ndarray]:
    """Find the candidates (n,) CANDIDATE that resemble an earlier one: their rows, and what they resemble."""
    assert curation.near_dedup is not None
    dropped, kept, similarity = near.compare(part, near.Banding(curation.near_dedup).accepted)
    answers = np.empty(len(dropped), near.DROPPED)
    answers["row"], answers["kept"], answers["similarity"] = part["row"][dropped], part["id"][kept], similarity
    return dropped, answers


def find_codes(job: Job, unit: int, slices: int) -> None:
    """Write a unit's candidates with their codes, but for its exact duplicates, by band."""
    entries = _decided(job, Entries.CANDIDATES, unit, slices, near.BAND)
    if job.curation.dedup:
        entries = entries[~np.isin(entries["row"], _decided(job, Entries.DUPLICATES, unit, slices, ROW))]
    found = np.empty(len(entries), near.CANDIDATE)
    if len(entries):
        described = np.frombuffer(storage.read_bytes(job.entries_path(Entries.SKETCHES, unit)), near.DESCRIBED)
        for name in ("id", "code"):
            found[name] = described[name][entries["row"]]
        for name in ("band", "row"):
            found[name] = entries[name]
    content = pack(found, exchange.bucket(found["band"], 64), BUCKETS)
    storage.publish_bytes(signed(content), job.entries_path(Entries.CODES, unit))


def put_together(job: Job, unit: int, slices: int) -> None:
    """Write the verdicts on a unit's documents, all but that of the limit, and its near-duplicates."""
    verdicts = np.full(staged(job, unit).counts.kept, KEEP, np.uint8)
    if job.curation.separates_texts:
        verdicts[_decided(job, Entries.SHARED, unit, slices, ROW)] = HELD_OUT_TEXT
    if job.curation.dedup:
        verdicts[_decided(job, Entries.DUPLICATES, unit, slices, ROW)] = DUPLICATE
    if job.curation.near_dedup is not None:
        merged = near.merge(_decided(job, Entries.SIMILAR, unit, slices, near.DROPPED))
        storage.publish_bytes(signed(merged.tobytes()), job.entries_path(Entries.NEAR, unit))
        verdicts[merged["row"]] = NEAR_DUPLICATE
    content = zstandard.ZstdCompressor(write_checksum=True).compress(verdicts.tobytes())
    storage.publish_bytes(content, job.verdicts_path(unit))


def find_limits(job: Job, _: int, slices: int) -> None:
    """Write how many of its documents each unit keeps, so that all units together keep the first ones."""
    assert job.curation.limit is not None
    each = storage.each(job.folder, lambda unit: _put_together(job, unit), range(job.num_units))
    kept = np.array([np.count_nonzero(verdicts == KEEP) for verdicts in each], np.int64)
    before = np.cumsum(kept) - kept
    left = np.clip(job.curation.limit - before, 0, kept)
    storage.publish_bytes(signed(left.astype(NUMBER).tobytes()), job.entries_path(Entries.LIMIT, 0))


def verdicts_on(job: Job, unit: int) -> np.ndarray:
    """Return the verdicts on the documents of a unit's first stage, (n,) uint8 by row.

    Raises:
        PipelineError: a file of verdicts is missing or damaged.
    """
    verdicts = _put_together(job, unit)
    if job.curation.limit is not None:
        left = _read(job, job.entries_path(Entries.LIMIT, 0), NUMBER)[unit]
        verdicts[np.flatnonzero(verdicts == KEEP)[int(left) :]] = OVER_LIMIT
    return verdicts


def near_duplicates(job: Job, unit: int) -> np.ndarray:
    """Return the rows of a unit that are near-duplicates, and what they resemble, (n,) `near.DROPPED`, ascending.

    Raises:
        PipelineError: the file is missing or damaged.
    """
    return _read(job, job.entries_path(Entries.NEAR, unit), near.DROPPED)


def _put_together(job: Job, unit: int) -> np.ndarray:
    return _read(job, job.verdicts_path(unit), np.dtype(np.uint8), zstandard.decompress).copy()


def _read(job: Job, path: str, dtype: np.dtype, content: Callable[[bytes], bytes] = verified) -> np.ndarray:
    try:
        return np.frombuffer(content(storage.read_bytes(path)), dtype)
    except (FileNotFoundError, ValueError, zstandard.ZstdError) as error:
        raise PipelineError(f"{path}: missing or damaged: delete {job.path(CURATED)} and run again") from error


def _decided(job: Job, decision: str, unit: int, slices: int, dtype: np.dtype) -> np.ndarray:
    """Return the entries of a unit from all slices."""
    paths = [job.entries_path(decision, number) for number in range(slices)]
    return gather(paths, job.num_units, unit, unit + 1, dtype)[0]
