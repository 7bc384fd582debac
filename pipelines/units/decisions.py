"""Decisions on examples that depend on all examples: duplicates, near-duplicates, the limit, groups to hold out.

    units -> _staged/: shards, keys, ... -> slices and units, in rounds (`rounds`) -> _staged/duplicates-00017.rows, ...
          -> each unit: a mark for each of its examples (KEEP, DUPLICATE, ...) -> _curated/00003.zst -> final shards

If a run needs one of these decisions, each unit first writes its shards to `_staged`, together with files of hashes of
its examples or of their texts, which serve as keys. When all units have done so, the decisions are made, and each unit
writes its final shards without the dropped examples. A run that is killed at any moment can be continued, and the
result does not depend on the order in which workers finish. `_staged` is removed once the manifest is written. The
marks stay, so that a lost shard can be made again from the inputs of its unit, without the other units.

All decisions but the limit are made in slices of the range of keys (`exchange`), so that a worker's memory does not
grow with the corpus. `by_key` reads what all units wrote about the keys of one slice, and passes it to a function that
decides. It sends the decisions to the units that the entries come from. Entries with equal keys are in the same slice.

Near-duplicates (`near`) take several rounds: slices find the rows that have a band of their MinHash sketches in common;
units send the codes of these rows, which are short forms of the sketches; slices compare the codes; units collect the
rows to drop. Examples that share texts form a group, which is held out as a whole (`linking`). A group can have rows in
several units. Units and slices therefore exchange names of groups until all units use the same names. Slices then
choose the groups to hold out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import zstandard

from clearspan.common.checksummed import append_checksum, strip_checksum
from clearspan.common.errors import PipelineError
from clearspan.common.terminal import warn
from clearspan.pipelines.units import exchange, linking, near
from clearspan.pipelines.units.curation import DUPLICATE, HELD_OUT, KEEP, NEAR_DUPLICATE, OVER_LIMIT, Curation
from clearspan.pipelines.units.exchange import BUCKETS, gather, pack
from clearspan.pipelines.units.job import CURATED, STAGED, Entries, Job, UnitResult, load_result
from clearspan.pipelines.units.keys import TEXT, repeats
from clearspan.shards import storage

SLICE_BYTES = 160_000_000
"""Maximum size of a slice in bytes, if the keys are evenly distributed: eight million keys."""
WEIGHTS: dict[str, int] = {Entries.KEYS: 1, Entries.TEXTS: 3, Entries.BANDS: 4}
"""Bytes that a slice may need in memory for each byte of these entries. A shared band becomes a candidate, which is 23
times as large; up to one band in six may be shared. A text is sent together with the name of its group."""
ROW = np.dtype("<u4")
NUMBER = np.dtype("<u8")

Decide = Callable[[np.ndarray, Curation], tuple[np.ndarray, np.ndarray]]
"""Function that decides on the n entries of a slice, which are in the order of the plan. It returns the indices of the
entries to answer, (m,) int64, and the answers, (m,), which go to the units of these entries."""


def staged(job: Job, unit: int) -> UnitResult:
    """Read the result of a work unit's first stage, in which the unit made its examples.

    Raises:
        PipelineError: the file of the result is damaged.
    """
    path = job.result_path(unit, STAGED)
    if result := load_result(path, job.plan, unit):
        return result
    raise PipelineError(f"{path}: damaged: run again to recreate it")


def have_marks(job: Job) -> bool:
    """Return whether there is a file of marks (KEEP, DUPLICATE, ...) of the examples of every work unit."""
    names = set(storage.list_files(job.path(CURATED)))
    return all(Path(job.marks_path(unit)).name in names for unit in range(job.num_units))


def is_whole(path: str) -> bool:
    """Return True if a file that this run or an interrupted one wrote is undamaged; otherwise warn, and return False.

    Args:
        path: the path of the file, which must exist and end with a hash of its content (`common.checksummed`).
    """
    try:
        strip_checksum(storage.read_bytes(path))
    except ValueError:
        warn(f"{path}: damaged since it was written: made again")
        return False
    return True


def num_slices(job: Job) -> int:
    """Return the number of slices into which to divide the range of keys, which are hashes (`exchange`).

    It is the smallest number with which a slice is expected to need at most 160 MB of memory (SLICE_BYTES), but at most
    4,096 (BUCKETS).
    """
    totals = dict.fromkeys(WEIGHTS, 0)
    for name, size in storage.file_sizes(job.staged_folder).items():
        if (entries := name.partition("-")[0]) in totals:
            totals[entries] += WEIGHTS[entries] * size
    return min(BUCKETS, max(1, -(-max(totals.values()) // SLICE_BYTES)))


def by_key(job: Job, number: int, slices: int, source: str, dtype: np.dtype, decide: Decide, decision: str) -> None:
    """Read the entries of all work units in one slice, decide on them, and write the decisions for the units.

    An entry is a fixed-size record about an example, with a hash as its key. A slice is a part of the range of hashes.

    Args:
        number: the number of the slice.
        slices: the number of slices.
        source: the type of the entries to read, a value of `Entries`, such as KEYS.
        dtype: the dtype of the entries to read.
        decide: a function of the entries and the options of curation. It returns the indices of the entries that it has
            decided on, and the decisions, which are sent to the units that these entries come from.
        decision: the type of the decisions to write, a value of `Entries`, such as DUPLICATES.
    """
    part, offsets = _from_units(job, source, _slice(number, slices), dtype)
    positions, answers = decide(part, job.curation)
    _write(job, decision, number, answers, _units(offsets, positions), job.num_units)


def _slice(number: int, slices: int) -> tuple[int, int]:
    """Return the range of buckets that form a slice, as (first, end); `end` is excluded.

    Buckets are BUCKETS equal parts of the range of hashes; a slice is several of them.

    Args:
        number: the number of the slice.
        slices: the number of slices.
    """
    return BUCKETS * number // slices, BUCKETS * (number + 1) // slices


def _from_units(job: Job, source: str, buckets: tuple[int, int], dtype: np.dtype) -> tuple[np.ndarray, np.ndarray]:
    """Read the entries that all work units wrote, in a range of buckets, which are equal parts of the range of hashes.

    Args:
        source: the type of the entries, a value of `Entries`.
        buckets: the range as (first, end); `end` is excluded.

    Returns:
        entries: the entries, (n,) dtype, one unit after another.
        offsets: the index of each unit's first entry in `entries`, followed by n, (units + 1,) int64.
    """
    return gather([job.entries_path(source, unit) for unit in range(job.num_units)], BUCKETS, *buckets, dtype)


def _units(offsets: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Return the number of the work unit that each of n entries comes from, (n,) int64.

    Args:
        offsets: for each unit, the index of its first entry among the entries of all units; after the last unit, the
            number of all entries, (units + 1,) int64.
        positions: the indices of the n entries among the entries of all units, (n,) int64.
    """
    units: np.ndarray = np.searchsorted(offsets, positions, side="right") - 1
    return units


def _write(
    job: Job, name: str, number: int, entries: np.ndarray, destination: np.ndarray, destinations: int = BUCKETS
) -> None:
    storage.publish_bytes(append_checksum(pack(entries, destination, destinations)), job.entries_path(name, number))


def duplicates(part: np.ndarray, _: Curation) -> tuple[np.ndarray, np.ndarray]:
    """Find the exact duplicates among examples: those whose key equals the key of an earlier example.

    Args:
        part: the keys of the examples in one slice of the range of keys, (n,) KEY, in the order of the plan. An element
            holds a key and the row number of its example.

    Returns:
        The indices of the duplicates in `part`, (m,) int64, and their row numbers in their work units, (m,) uint32.
    """
    positions = repeats(part)
    return positions, part["row"][positions]


def candidates(part: np.ndarray, _: Curation) -> tuple[np.ndarray, np.ndarray]:
    """Find the bands, which are hashes of parts of MinHash sketches, that several rows have in common.

    Such rows may be near-duplicates.

    Args:
        part: the bands of all rows in one slice of the range of hashes, (n,) BAND: the hash and the row number.

    Returns:
        The indices of the shared bands in `part`, (m,) int64, and these elements of `part`, (m,) BAND.
    """
    positions = near.shared(part["band"])
    return positions, part[positions]


def similar(part: np.ndarray, curation: Curation) -> tuple[np.ndarray, np.ndarray]:
    """Find the near-duplicates among candidates, which are rows that have a band of their MinHash sketches in common.

    Args:
        part: the candidates whose bands are in one slice of the range of hashes, (n,) CANDIDATE, in the order of the
            plan. An element holds the hash of the band, the row number, the id of the example, and a short form of its
            sketch.

    Returns:
        The indices in `part` of the candidates to drop, (m,) int64, and an entry for each of them, (m,) DROPPED: its
        row, the id of the earlier candidate that it resembles, and their estimated similarity.
    """
    assert curation.near_dedup is not None
    dropped, kept, similarity = near.compare(part, near.Banding(curation.near_dedup).accepted)
    answers = np.empty(len(dropped), near.DROPPED)
    answers["row"], answers["kept"], answers["similarity"] = part["row"][dropped], part["id"][kept], similarity
    return dropped, answers


def find_codes(job: Job, unit: int, slices: int) -> None:
    """Write the codes of the rows of a work unit that have a band of their MinHash sketches in common with another row.

    A code is a short form of a row's sketch (`near`). Exact duplicates are left out. The file is sorted by the buckets
    of the bands' hashes. So each slice, a range of buckets, can read its part of the file, and compare these rows.

    Args:
        unit: the number of the unit.
        slices: the number of slices.
    """
    entries = _decided(job, Entries.CANDIDATES, unit, slices, near.BAND)
    entries = entries[~_are_duplicates(job, unit, slices)[entries["row"]]]
    found = np.empty(len(entries), near.CANDIDATE)
    if len(entries):
        described = np.frombuffer(storage.read_bytes(job.entries_path(Entries.SKETCHES, unit)), near.DESCRIBED)
        for name in ("id", "code"):
            found[name] = described[name][entries["row"]]
        for name in ("band", "row"):
            found[name] = entries[name]
    _write(job, Entries.CODES, unit, found, exchange.bucket(found["band"], 64))


def _are_duplicates(job: Job, unit: int, slices: int) -> np.ndarray:
    """Return the mask of the rows of a work unit that are exact duplicates of earlier rows, (rows,) bool.

    Args:
        unit: the number of the unit.
        slices: the number of slices that looked for duplicates.
    """
    mask = np.zeros(staged(job, unit).counts.kept, bool)
    if job.curation.dedup:
        mask[_decided(job, Entries.DUPLICATES, unit, slices, ROW)] = True
        if job.curation.has_chunks:  # the first row of a document stands for all of its rows
            heads = np.frombuffer(storage.read_bytes(job.entries_path(Entries.HEADS, unit)), bool)
            mask = mask[heads][np.cumsum(heads) - 1] if len(heads) else mask
    return mask


def send_names(job: Job, unit: int, slices: int, iteration: int) -> None:
    """Write the names that a work unit uses for its groups of rows that share texts, in one iteration of `linking`.

    A group's name is the smallest hash of its texts that the unit knows. A group may have rows in several units, so the
    units agree on its name in iterations: they send names to the slices, which reply with smaller names. The unit
    writes two files:

    - for the slices: pairs (MEMBER) of the hash of a text and the name of the text's group, sorted by the bucket of the
      text. After iteration 0, the hash is an earlier name of the group.
    - for the unit itself: in iteration 0, the name of each row's group. In a later iteration, for each group with texts
      that other units have too, a pair (MEMBER) of its name in iteration 0 and its name in this iteration.

    Args:
        unit: the number of the unit.
        slices: the number of slices.
        iteration: the number of the iteration, from 0.
    """
    if iteration == 0:
        is_kept = ~_are_duplicates(job, unit, slices)
        entries = np.frombuffer(storage.read_bytes(job.entries_path(Entries.TEXTS, unit)), TEXT)
        names = np.zeros(len(is_kept), linking.MEMBER)
        names["group"] = linking.components(entries, is_kept)
        entries = entries[is_kept[entries["row"]]]
        members = linking.members(entries["text"], names["group"][entries["row"]])
    else:
        first, last = (_replies(job, unit, slices, each) for each in (0, iteration - 1))
        names = _names(job, unit, iteration - 1) if iteration > 1 else linking.members(first["text"], first["text"])
        names["group"] = linking.rename(names["group"], last)
        groups = linking.rename(first["text"], names)
        texts = np.concatenate([first["text"], first["group"], last["text"]])
        members = linking.members(texts, np.concatenate([groups, groups, last["group"]]))
    storage.publish_bytes(
        append_checksum(names.tobytes()), job.entries_path(_entries_in(Entries.NAMES, iteration), unit)
    )
    _write(job, _entries_in(Entries.SENT, iteration), unit, members, _bucket(members["text"]))


def reply_to_all(part: np.ndarray, _: Curation) -> tuple[np.ndarray, np.ndarray]:
    """For each text that several work units sent, reply to all of them with the smallest of their names for its group.

    A group is rows that share texts; its name is a hash. A group may have rows in several units, so units agree on its
    name in iterations (`linking`). This function is for iteration 0, and `reply` for later ones.

    Args:
        part: the pairs that all units sent for the texts in one slice of the range of hashes, (n,) MEMBER: the hash of
            a text (in the field `text`), and the unit's name for the text's group (in the field `group`).

    Returns:
        The indices of the pairs that get a reply, (m,) int64, and the replies, (m,) MEMBER: the sent name (in `text`)
        and the smallest name (in `group`).
    """
    return linking.replies(part, to_all=True)


def reply(part: np.ndarray, _: Curation) -> tuple[np.ndarray, np.ndarray]:
    """For each text, reply with the smallest name for its group to the work units that use a larger name.

    A group is rows that share texts; its name is a hash. A group may have rows in several units, so units agree on its
    name in iterations (`linking`). `reply_to_all` is for iteration 0, and this function for later ones.

    Args:
        part: the pairs that all units sent for the texts in one slice of the range of hashes, (n,) MEMBER: the hash of
            a text (in the field `text`), and the unit's name for the text's group (in the field `group`).

    Returns:
        The indices of the pairs that get a reply, (m,) int64, and the replies, (m,) MEMBER: the sent name (in `text`)
        and the smallest name (in `group`).
    """
    return linking.replies(part, to_all=False)


def has_converged(job: Job, iteration: int) -> bool:
    """Return whether an iteration of `linking` is unnecessary, because no unit got a reply in the previous iteration.

    In these iterations, the units agree on the names of groups of rows that share texts: a unit sends names, and gets
    replies with smaller names. Iteration 0 is always necessary.

    Args:
        iteration: the number of the iteration, from 0.
    """
    if iteration == 0:
        return False
    nothing = len(append_checksum(pack(np.empty(0, linking.MEMBER), np.empty(0, np.int64), job.num_units)))
    sizes, before = storage.file_sizes(job.staged_folder), f"{_entries_in(Entries.REPLIES, iteration - 1)}-"
    return all(size == nothing for name, size in sizes.items() if name.startswith(before))


def count_groups(job: Job, unit: int, slices: int) -> None:
    """Write the number of rows that a work unit has in each of its groups; the rows of a group share texts (`linking`).

    A group is known by its name, the smallest hash of its texts. Units that have rows of the same group exchange names
    until they agree, but only in a limited number of iterations. Further entries mark the names on which they may not
    agree yet. The file is sorted by the buckets of the names, because each slice, a range of buckets, reads its part of
    the file next.

    Args:
        unit: the number of the unit.
        slices: the number of slices.
    """
    sizes = linking.sizes(_groups(job, unit), _replies(job, unit, slices, _last_iteration(job, unit)))
    _write(job, Entries.SIZES, unit, sizes, _bucket(sizes["group"]))


def add_up(job: Job, _: int, slices: int) -> None:
    """Count the rows of all work units that are not exact duplicates, and write the sum to a file.

    The slices read the file (`Entries.ROWS`), to determine how many rows to hold out. The arguments `_` and `slices`
    are not used; the functions of all rounds have them.
    """
    each = storage.each(job.folder, lambda unit: _groups(job, unit), range(job.num_units))
    total = sum(np.count_nonzero(groups != linking.DROPPED) for groups in each)
    storage.publish_bytes(append_checksum(np.array([total], NUMBER).tobytes()), job.entries_path(Entries.ROWS, 0))


def weigh_groups(job: Job, number: int, slices: int) -> None:
    """Write two numbers for one slice: the number of rows in groups that may be held out, and the number of all groups.

    A group is rows that share texts (`linking`). It belongs to the slice that its name, a hash, falls into. The numbers
    of all slices are added up later, by `find_held_out` and `count_together`.

    Args:
        number: the number of the slice.
        slices: the number of slices.
    """
    part, _, _, num_groups = _eligible(job, number, slices)
    weight = np.array([part["rows"].sum(dtype=NUMBER), num_groups], NUMBER).tobytes()
    storage.publish_bytes(append_checksum(weight), job.entries_path(Entries.ELIGIBLE, number))


def count_together(job: Job, _: int, slices: int) -> None:
    """Write statistics of the whole run about groups of rows that share texts (`Together`).

    The argument `_` is not used; the functions of all rounds have it.

    Args:
        slices: the number of slices, each of which has counted its groups (`weigh_groups`).
    """
    rows = _number(job, Entries.ROWS, 0)
    each = [_read(job, job.entries_path(Entries.ELIGIBLE, number), NUMBER) for number in range(slices)]
    eligible, groups = np.array(each).sum(axis=0).tolist()
    figures = np.array([rows, groups, rows - eligible], NUMBER)
    storage.publish_bytes(append_checksum(figures.tobytes()), job.entries_path(Entries.TOGETHER, 0))


class Together(NamedTuple):
    """Statistics of a run about its groups of rows that share texts (`linking`).

    Attributes:
        rows: the number of rows that are not exact duplicates.
        groups: the number of groups of these rows.
        large: the number of rows that may not be held out, because their group is too large, or because the work units
            have not agreed on one name for their group.
    """

    rows: int
    groups: int
    large: int


def groups_made(job: Job) -> Together | None:
    """Read the statistics of the groups of rows that share texts; return None if their file is missing or damaged."""
    try:
        rows, groups, large = map(int, _read(job, job.entries_path(Entries.TOGETHER, 0), NUMBER))
        return Together(rows, groups, large)
    except PipelineError:
        return None


def find_held_out(job: Job, number: int, slices: int) -> None:
    """Choose the groups of one slice to hold out, and write their names for the work units that have rows of them.

    A group is rows that share texts (`linking`). It belongs to the slice that its name, a hash, falls into.

    Args:
        number: the number of the slice.
        slices: the number of slices.
    """
    part, units, wanted, _ = _eligible(job, number, slices)
    weighed = sum(_number(job, Entries.ELIGIBLE, each) for each in range(slices))
    held = linking.held_out(part["group"], wanted, weighed)
    _write(job, Entries.GROUPS, number, part["group"][held], units[held], job.num_units)


def _eligible(job: Job, number: int, slices: int) -> tuple[np.ndarray, np.ndarray, float, int]:
    """Find the groups that may be held out among the groups of one slice. A group is rows that share texts (`linking`).

    Args:
        number: the number of the slice.
        slices: the number of slices.

    Returns:
        sizes: the number of rows that these groups have in each work unit, (n,) SIZE. An element holds the name of a
            group, and the number of its rows in one unit.
        units: for each element of `sizes`, the number of its unit, (n,) int64.
        wanted: the number of rows to hold out in the whole run.
        num_groups: the number of groups of the slice, including those that may not be held out.
    """
    part, offsets = _from_units(job, Entries.SIZES, _slice(number, slices), linking.SIZE)
    wanted = job.curation.holdout_fraction * _number(job, Entries.ROWS, 0)
    (chosen,) = np.nonzero(linking.eligible(part, wanted))
    return part[chosen], _units(offsets, chosen), wanted, len(np.unique(part["group"][part["rows"] > 0]))


def _number(job: Job, name: str, number: int) -> int:
    return int(_read(job, job.entries_path(name, number), NUMBER)[0])


def _entries_in(entries: str, iteration: int) -> str:
    """Return the beginning of the names of the files that hold one type of entries in one iteration, e.g. `replies3`.

    Args:
        entries: the type of the entries, a value of `Entries`.
        iteration: the number of one of the iterations in which units agree on the names of groups of rows (`linking`).
    """
    return f"{entries}{iteration}"


def _bucket(names: np.ndarray) -> np.ndarray:
    """Return the number of the bucket (a part of the range of hashes) of each text or group, (n,) int64.

    Args:
        names: hashes of texts, or names of groups, which are such hashes too, (n,) uint64.
    """
    return exchange.bucket(linking.mixed(names), 64)


def _replies(job: Job, unit: int, slices: int, iteration: int) -> np.ndarray:
    """Read the replies to a work unit in an iteration of `linking`: old and new names of groups, (n,) MEMBER.

    In these iterations, the units agree on the names of groups of rows that share texts: a unit sends names, and gets
    replies with smaller names. A reply holds the old name in the field `text`, and the new one in `group`.

    Args:
        unit: the number of the unit.
        slices: the number of slices; each of them may have replied.
        iteration: the number of the iteration, from 0.
    """
    return _decided(job, _entries_in(Entries.REPLIES, iteration), unit, slices, linking.MEMBER)


def _names(job: Job, unit: int, iteration: int) -> np.ndarray:
    """Read the names of groups that a work unit stored for itself in an iteration of `linking`, (n,) MEMBER.

    In these iterations, the units agree on the names of groups of rows that share texts. For iteration 0, there is an
    element for each row, with the name of its group in the field `group`. For a later iteration, an element holds a
    group's name in iteration 0 (in the field `text`) and its name in the later iteration (in `group`).

    Args:
        unit: the number of the unit.
        iteration: the number of the iteration, from 0.
    """
    path = job.entries_path(_entries_in(Entries.NAMES, iteration), unit)
    return _read(job, path, linking.MEMBER).copy()


def _groups(job: Job, unit: int) -> np.ndarray:
    """Return the name of the group of each row of a work unit, (rows,) uint64, after the last iteration of `linking`.

    A group is rows that share texts. In the iterations, the units agree on the names of their groups. A row that is an
    exact duplicate has the name `linking.DROPPED`.
    """
    groups, last = _names(job, unit, 0)["group"], _last_iteration(job, unit)
    return linking.rename(groups, _names(job, unit, last)) if last else groups


def _last_iteration(job: Job, unit: int) -> int:
    paths = (job.entries_path(_entries_in(Entries.SENT, iteration), unit) for iteration in range(linking.ITERATIONS))
    return sum(map(storage.exists, paths)) - 1


def put_together(job: Job, unit: int, slices: int) -> None:
    """Write the marks (KEEP, DUPLICATE, ...) of the examples of a work unit, and the list of its near-duplicates.

    These marks ignore the limit on the number of examples; `marks_of` applies it when it reads them.

    Args:
        unit: the number of the unit.
        slices: the number of slices, whose decisions are put together.
    """
    marks = np.full(staged(job, unit).counts.kept, KEEP, np.uint8)
    if job.curation.is_linked:
        held = _decided(job, Entries.GROUPS, unit, slices, NUMBER)
        marks[np.isin(_groups(job, unit), held)] = HELD_OUT
    elif job.curation.holdout_fraction:
        sides = np.frombuffer(storage.read_bytes(job.entries_path(Entries.SIDES, unit)), bool)
        marks[sides] = HELD_OUT
    marks[_are_duplicates(job, unit, slices)] = DUPLICATE
    if job.curation.near_dedup is not None:
        merged = near.merge(_decided(job, Entries.SIMILAR, unit, slices, near.DROPPED))
        storage.publish_bytes(append_checksum(merged.tobytes()), job.entries_path(Entries.NEAR, unit))
        marks[merged["row"]] = NEAR_DUPLICATE
    content = zstandard.ZstdCompressor(write_checksum=True).compress(marks.tobytes())
    storage.publish_bytes(content, job.marks_path(unit))


def find_limits(job: Job, _: int, slices: int) -> None:
    """Write how many examples each work unit may keep, so that the run keeps its first `curation.limit` examples.

    `marks_of` reads these numbers. The arguments `_` and `slices` are not used; the functions of all rounds have
    them.
    """
    assert job.curation.limit is not None
    each = storage.each(job.folder, lambda unit: _put_together(job, unit), range(job.num_units))
    kept = np.array([np.count_nonzero(are_kept(marks)) for marks in each], np.int64)
    before = np.cumsum(kept) - kept
    left = np.clip(job.curation.limit - before, 0, kept)
    storage.publish_bytes(append_checksum(left.astype(NUMBER).tobytes()), job.entries_path(Entries.LIMIT, 0))


def are_kept(marks: np.ndarray) -> np.ndarray:
    """Return the mask of the examples that are not dropped, (n,) bool: those with the mark KEEP or HELD_OUT.

    Args:
        marks: the marks of the examples, (n,) uint8.
    """
    return np.isin(marks, (KEEP, HELD_OUT))


def marks_of(job: Job, unit: int) -> np.ndarray:
    """Return the final mark of each row of a work unit, (rows,) uint8, such as KEEP, DUPLICATE or OVER_LIMIT.

    Raises:
        PipelineError: a file of marks is missing or damaged.
    """
    marks = _put_together(job, unit)
    if job.curation.limit is not None:
        left = _read(job, job.entries_path(Entries.LIMIT, 0), NUMBER)[unit]
        marks[np.flatnonzero(are_kept(marks))[int(left) :]] = OVER_LIMIT
    return marks


def near_duplicates(job: Job, unit: int) -> np.ndarray:
    """Read the near-duplicates among the rows of a work unit, (n,) `near.DROPPED`, in ascending order of rows.

    An element holds a dropped row, the id of the example that it resembles, and their estimated similarity.

    Raises:
        PipelineError: the file of near-duplicates is missing or damaged.
    """
    return _read(job, job.entries_path(Entries.NEAR, unit), near.DROPPED)


def _put_together(job: Job, unit: int) -> np.ndarray:
    return _read(job, job.marks_path(unit), np.dtype(np.uint8), zstandard.decompress).copy()


def _read(job: Job, path: str, dtype: np.dtype, content: Callable[[bytes], bytes] = strip_checksum) -> np.ndarray:
    try:
        return np.frombuffer(content(storage.read_bytes(path)), dtype)
    except (FileNotFoundError, ValueError, zstandard.ZstdError) as error:
        raise PipelineError(f"{path}: missing or damaged: delete {job.path(CURATED)} and run again") from error


def _decided(job: Job, decision: str, unit: int, slices: int, dtype: np.dtype) -> np.ndarray:
    """Read what all slices have decided for a work unit, (n,) dtype, such as the unit's rows that are duplicates.

    Args:
        decision: the type of the decisions, a value of `Entries`.
        slices: the number of slices.
        dtype: the dtype of a decision.
    """
    paths = [job.entries_path(decision, number) for number in range(slices)]
    return gather(paths, job.num_units, unit, unit + 1, dtype)[0]
