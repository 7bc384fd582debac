"""Decisions that need all documents: duplicates, near-duplicates, the first N, held-out groups that share texts.

    units -> _staged/: shards, keys, bands -> slices and units by turns (`rounds`): duplicates-00017.rows, ...
          -> units: one verdict per document -> _curated/00003.zst -> final shards

With `dedup`, `near_dedup`, `limit` or a held-out part of examples that share texts, a unit's shards wait unchanged in
`_staged` until the keys of all units are known; each unit then writes its final shards without the documents that were
dropped. A kill at any moment leaves both stages intact, and the result does not depend on the order of the workers.
`_staged` is removed once the manifest is written; verdicts stay, so that a lost shard can be made again from its own
unit.

A document's key is 127 bits of two hashes: its id, and a sum of hashes of its tokens with their positions. (Without
tokens the id alone is the key: 63 bits of the hash of the file's bytes.) For a kind with several ragged columns, the
key covers those that every example has, and so not the views of a sentence. Slices are dealt out to workers: a worker
sorts the keys of one slice at a time, and its memory does not grow with the corpus. What one worker does alone are
sums by unit (`limit`).

For near-duplicates (`near`), slices of the space of bands find the rows that share one; their units look the codes up;
the same slices compare them; and the units put together what the slices drop. For examples that share texts
(`linking`), units and slices exchange names of groups until all units use the same; slices of the names then choose the
groups to hold out.
"""

from pathlib import Path

import numpy as np

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.units import exchange, linking, near
from clearspan.pipelines.units.curation import DUPLICATE, HELD_OUT, KEEP, NEAR_DUPLICATE, OVER_LIMIT
from clearspan.pipelines.units.exchange import BUCKETS, gather, pack
from clearspan.pipelines.units.job import (
    BANDS,
    CANDIDATES,
    CODES,
    CURATED,
    DUPLICATES,
    ELIGIBLE,
    HELD,
    KEYS,
    LIMIT,
    LINKS,
    NEAR,
    REPLIES,
    SENT,
    SIMILAR,
    SIZES,
    SKETCHES,
    Job,
    UnitResult,
    load_result,
)
from clearspan.pipelines.units.keys import ID_BITS, KEY
from clearspan.shards import storage

SLICE_BYTES = 160_000_000
"""The size of a slice at most, if keys are spread evenly: eight million keys."""
WEIGHTS = {KEYS: 1, LINKS: 1, BANDS: 4}
"""Bytes that a slice may come to hold for each byte of these entries. A candidate is 23 times as large as a band; one
band in six may be shared."""
ROW = np.dtype("<u4")
NUMBER = np.dtype("<u8")


def staged(job: Job, unit: int) -> UnitResult:
    """Return the result of a unit's first stage.

    Raises:
        PipelineError: it is damaged.
    """
    path = job.staged_path(unit)
    if result := load_result(path, job.plan, unit):
        return result
    raise PipelineError(f"{path}: damaged: run again to recreate it")


def units_with_verdicts(job: Job) -> set[int]:
    """Return the units whose verdicts are written."""
    names = set(storage.list_files(job.path(CURATED)))
    return {unit for unit in range(job.num_units) if Path(job.verdicts_path(unit)).name in names}


def num_slices(job: Job) -> int:
    """Return the number of slices, by the entries of all units that take most."""
    totals = dict.fromkeys(WEIGHTS, 0)
    for name, size in storage.file_sizes(job.staged_folder).items():
        if (entries := name.rpartition(".")[2]) in totals:
            totals[entries] += WEIGHTS[entries] * size
    return min(BUCKETS, max(1, -(-max(totals.values()) // SLICE_BYTES)))


def find_duplicates(job: Job, number: int, slices: int) -> None:
    """Write the rows whose key equals an earlier one, of the keys in one slice."""
    part, offsets = gather(job.entries_paths(KEYS), BUCKETS, *exchange.slice_of(number, slices), KEY)
    repeats = _repeats(part)
    _write(job, DUPLICATES, number, part["row"][repeats], _files(offsets, repeats))


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


def find_candidates(job: Job, number: int, slices: int) -> None:
    """Write the rows that share a band with another, of the bands in one slice."""
    part, offsets = gather(job.entries_paths(BANDS), BUCKETS, *exchange.slice_of(number, slices), near.BAND)
    chosen = near.shared(part["band"])
    _write(job, CANDIDATES, number, part[chosen], _files(offsets, chosen))


def find_codes(job: Job, unit: int, slices: int) -> None:
    """Write a unit's candidates with their codes, but for its exact duplicates, by band."""
    entries = _decided(job, CANDIDATES, unit, slices, near.BAND)
    if job.curation.dedup:
        entries = entries[~np.isin(entries["row"], _decided(job, DUPLICATES, unit, slices, ROW))]
    candidates = np.empty(len(entries), near.CANDIDATE)
    if len(entries):
        described = np.frombuffer(storage.read_bytes(job.path(job.entries_name(SKETCHES, unit))), near.DESCRIBED)
        for name in ("id", "code"):
            candidates[name] = described[name][entries["row"]]
        for name in ("band", "row"):
            candidates[name] = entries[name]
    _write(job, CODES, unit, candidates, exchange.bucket(candidates["band"], 64), BUCKETS)


def find_similar(job: Job, number: int, slices: int) -> None:
    """Write the rows that resemble an earlier document, of the bands in one slice."""
    assert job.curation.near_dedup is not None
    paths = _paths(job, CODES, job.num_units)
    part, offsets = gather(paths, BUCKETS, *exchange.slice_of(number, slices), near.CANDIDATE)
    dropped, kept, similarity = near.compare(part, near.Banding(job.curation.near_dedup).accepted)
    entries = np.empty(len(dropped), near.DROPPED)
    entries["row"], entries["kept"], entries["similarity"] = part["row"][dropped], part["id"][kept], similarity
    _write(job, SIMILAR, number, entries, _files(offsets, dropped))


def find_near(job: Job, unit: int, slices: int) -> None:
    """Write the rows of a unit that any slice drops as near-duplicates, each once."""
    merged = near.merge(_decided(job, SIMILAR, unit, slices, near.DROPPED))
    storage.publish_bytes(merged.tobytes(), job.path(job.decision_name(NEAR, unit)))


def near_duplicates(job: Job, unit: int) -> np.ndarray:
    """Return the rows of a unit that are near-duplicates, and what they resemble, (n,) `near.DROPPED`, ascending.

    Raises:
        PipelineError: the file of an earlier run is missing or damaged.
    """
    path = job.path(job.decision_name(NEAR, unit))
    try:
        return np.frombuffer(storage.read_bytes(path), near.DROPPED)
    except (FileNotFoundError, ValueError) as error:
        raise PipelineError(f"{path}: missing or damaged: delete {job.path(CURATED)} and run again") from error


def find_limits(job: Job, _: int, slices: int) -> None:
    """Write how many of its documents each unit keeps, so that all units together keep the first ones."""
    assert job.curation.limit is not None
    results = storage.each(job.folder, lambda unit: staged(job, unit), range(job.num_units))
    kept = np.array([result.counts.kept for result in results], np.int64)
    paths = _paths(job, DUPLICATES, slices) if job.curation.dedup else []
    for index in storage.each(job.folder, lambda path: exchange.read_index(path, job.num_units), paths):
        kept -= np.diff(index)
    if job.curation.near_dedup is not None:
        sizes = storage.file_sizes(job.path(CURATED))
        names = [Path(job.decision_name(NEAR, unit)).name for unit in range(job.num_units)]
        kept -= np.array([sizes[name] for name in names], np.int64) // near.DROPPED.itemsize
    before = np.cumsum(kept) - kept
    left = np.clip(job.curation.limit - before, 0, kept)
    _write(job, LIMIT, 0, left.astype(NUMBER), np.arange(job.num_units))


def send_names(job: Job, unit: int, slices: int, iteration: int) -> None:
    """Write the pairs of text and name that a unit sends in an iteration, for the slices of the texts.

    The last bucket holds the unit's current names: in iteration 0 one for each row, later one for each of its groups of
    iteration 0 that shares a text with another unit.
    """
    if iteration == 0:
        entries, _ = gather([job.path(job.entries_name(LINKS, unit))], BUCKETS, 0, BUCKETS, KEY)
        kept = staged(job, unit).counts.kept
        names = np.zeros(kept, linking.MEMBER)
        names["group"] = linking.components(entries, _dropped(job, unit, kept, slices) == KEEP)
        entries = entries[names["group"][entries["row"]] != linking.DROPPED]
        members = linking.members(entries["id"], names["group"][entries["row"]])
        buckets = exchange.bucket(members["text"], ID_BITS)  # hashes of texts are spread evenly, and sorted
    else:
        first, last = (_replies(job, unit, slices, each) for each in (0, iteration - 1))
        names = _names(job, unit, iteration - 1) if iteration > 1 else linking.members(first["text"], first["text"])
        names["group"] = linking.rename(names["group"], last)
        groups = linking.rename(first["text"], names)
        texts = np.concatenate([first["text"], first["group"], last["text"]])
        members = linking.members(texts, np.concatenate([groups, groups, last["group"]]))
        buckets = _bucket(members["text"])
    to = np.append(buckets, np.full(len(names), BUCKETS))
    _write(job, f"{SENT}{iteration}", unit, np.append(members, names), to, BUCKETS + 1)


def reply(job: Job, number: int, slices: int, iteration: int) -> None:
    """Write the replies to units, of the texts in one slice."""
    part, offsets = _from_units(job, f"{SENT}{iteration}", exchange.slice_of(number, slices), linking.MEMBER)
    positions, replies = linking.replies(part, to_all=iteration == 0)
    _write(job, f"{REPLIES}{iteration}", number, replies, _files(offsets, positions))


def has_converged(job: Job, iteration: int) -> bool:
    """Return whether the iteration before had no replies."""
    if iteration == 0:
        return False
    nothing = len(pack(np.empty(0, linking.MEMBER), np.empty(0, np.int64), job.num_units))
    sizes, before = storage.file_sizes(job.staged_folder), f"{REPLIES}{iteration - 1}-"
    return all(size == nothing for name, size in sizes.items() if name.startswith(before))


def count_groups(job: Job, unit: int, slices: int) -> None:
    """Write the number of a unit's rows in each group; the last bucket holds their total."""
    sizes = linking.sizes(_groups(job, unit), _replies(job, unit, slices, _last_iteration(job, unit)))
    kept = np.zeros(1, linking.SIZE)[: len(sizes)]
    kept["rows"] = sizes["rows"].sum(dtype=np.int64)
    to = np.append(_bucket(sizes["group"]), np.full(len(kept), BUCKETS))
    _write(job, SIZES, unit, np.append(sizes, kept), to, BUCKETS + 1)


def weigh_groups(job: Job, number: int, slices: int) -> None:
    """Write the number of rows whose group may be held out, of the groups in one slice."""
    part, _, _ = _eligible(job, number, slices)
    rows = part["rows"].sum(dtype=NUMBER, keepdims=True)[: len(part)]
    _write(job, ELIGIBLE, number, rows, np.zeros(len(rows), np.int64))


def find_held_out(job: Job, number: int, slices: int) -> None:
    """Write the groups to hold out, of the groups in one slice."""
    part, units, wanted = _eligible(job, number, slices)
    weighed, _ = gather(_paths(job, ELIGIBLE, slices), job.num_units, 0, 1, NUMBER)
    held = linking.draws(part["group"]) < wanted / max(1, int(weighed.sum()))
    _write(job, HELD, number, part["group"][held], units[held])


def _eligible(job: Job, number: int, slices: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Return the groups of a slice that may be held out, (n,) SIZE, their units, (n,), and the rows wanted of all."""
    part, offsets = _from_units(job, SIZES, exchange.slice_of(number, slices), linking.SIZE)
    kept, _ = _from_units(job, SIZES, (BUCKETS, BUCKETS + 1), linking.SIZE)
    wanted = job.curation.holdout_fraction * int(kept["rows"].sum(dtype=np.int64))
    (chosen,) = np.nonzero(linking.eligible(part, max(1, wanted)))
    return part[chosen], _files(offsets, chosen), wanted


def _bucket(names: np.ndarray) -> np.ndarray:
    """Return the bucket of each name (n,) uint64, (n,) int64."""
    return exchange.bucket(linking.mixed(names), 64)


def _from_units(job: Job, decision: str, buckets: tuple[int, int], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Return what all units wrote for a range of buckets, after which the last is the unit's alone."""
    return gather(_paths(job, decision, job.num_units), BUCKETS + 1, *buckets, dtype)


def _replies(job: Job, unit: int, slices: int, iteration: int) -> np.ndarray:
    """Return the replies to a unit in an iteration, (n,) MEMBER."""
    return _decided(job, f"{REPLIES}{iteration}", unit, slices, linking.MEMBER)


def _names(job: Job, unit: int, iteration: int) -> np.ndarray:
    """Return the last bucket of what a unit sent in an iteration, (n,) MEMBER."""
    path = job.path(job.decision_name(f"{SENT}{iteration}", unit))
    return gather([path], BUCKETS + 1, BUCKETS, BUCKETS + 1, linking.MEMBER)[0]


def _groups(job: Job, unit: int) -> np.ndarray:
    """Return the group of each row of a unit after the last iteration, (n,) uint64."""
    groups, last = _names(job, unit, 0)["group"], _last_iteration(job, unit)
    return linking.rename(groups, _names(job, unit, last)) if last else groups


def _last_iteration(job: Job, unit: int) -> int:
    names = (job.decision_name(f"{SENT}{iteration}", unit) for iteration in range(linking.ITERATIONS))
    return sum(storage.exists(job.path(name)) for name in names) - 1


def decides_nothing(content: bytes, num_units: int) -> bool:
    """Return whether a file of decisions is of units without documents: it holds an index alone, or limits of 0."""
    return not content.strip(b"\0") or content == pack(np.zeros(num_units, NUMBER), np.arange(num_units), num_units)


def decide(job: Job, unit: int, kept: int, slices: int) -> np.ndarray:
    """Return the verdicts on the `kept` documents of a unit's first stage, (kept,) uint8 by row."""
    verdicts = _dropped(job, unit, kept, slices)
    if job.curation.is_linked:
        held = _decided(job, HELD, unit, slices, NUMBER)
        verdicts[np.isin(_groups(job, unit), held)] = HELD_OUT
    return verdicts


def _dropped(job: Job, unit: int, kept: int, slices: int) -> np.ndarray:
    verdicts = np.full(kept, KEEP, np.uint8)
    if job.curation.dedup:
        verdicts[_decided(job, DUPLICATES, unit, slices, ROW)] = DUPLICATE
    if job.curation.near_dedup is not None:
        verdicts[near_duplicates(job, unit)["row"]] = NEAR_DUPLICATE
    if job.curation.limit is not None:
        (left,) = _decided(job, LIMIT, unit, 1, NUMBER)
        verdicts[np.flatnonzero(verdicts == KEEP)[int(left) :]] = OVER_LIMIT
    return verdicts


def _files(offsets: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the number of the file that each gathered entry comes from, (n,) int64."""
    files: np.ndarray = np.searchsorted(offsets, positions, side="right") - 1
    return files


def _paths(job: Job, decision: str, count: int) -> list[str]:
    return [job.path(job.decision_name(decision, number)) for number in range(count)]


def _write(
    job: Job, decision: str, number: int, entries: np.ndarray, to: np.ndarray, num_destinations: int | None = None
) -> None:
    """Publish what a slice decided on, by unit; a unit's keys go to `num_destinations` slices."""
    content = pack(entries, to, num_destinations or job.num_units)
    storage.publish_bytes(content, job.path(job.decision_name(decision, number)))


def _decided(job: Job, decision: str, unit: int, slices: int, dtype: np.dtype) -> np.ndarray:
    """Return the entries of a unit from all slices."""
    return gather(_paths(job, decision, slices), job.num_units, unit, unit + 1, dtype)[0]
