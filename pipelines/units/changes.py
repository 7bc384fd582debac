"""Detection of inputs that are edited during a run, between two runs, or after the dataset is finished.

    planning     notes the size and times of each input (its status), without reading the input
                                                                                   -> .clearspan/status.json
    a unit       compares the status of its inputs before and after it reads them, and records a hash of what it read
                                                                                   -> .clearspan/00003.json
    a later run  reads an input again if its status has changed; raises an error if the hash of what it reads differs
                 from the recorded hash

The files in .clearspan are not part of the dataset, because the status of an input differs from machine to machine. If
the hashes that a unit recorded are missing, the unit is done again, as if it had no result. A status includes the time
of the file's last change (ctime), which no program can set, so an edit is noticed even if the modification time is
restored. If an input was modified less than two seconds before planning, its status is not trusted: file systems store
times with a limited resolution, so an edit right after planning could leave the same time.
"""

import dataclasses
import time
from collections.abc import Collection, Iterator, Sequence

from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.progress import ProgressBar, counted
from clearspan.pipelines.errors import InputChangedError
from clearspan.pipelines.readers import content_hash
from clearspan.pipelines.records import Inputs, ReadOptions, Split
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.job import RECORDS, done_units
from clearspan.pipelines.units.plan import Plan
from clearspan.shards import storage
from clearspan.shards.finding import Status

STATUS = "status.json"
FRESH_S = 2.0
"""Resolution of times, in seconds, in the usual file system with the coarsest clock, FAT; object stores have 1 s."""


def save_read(folder: str, plan: str, unit: int, hashes: Sequence[str]) -> None:
    """Record, in the output folder, hashes of the input that a work unit has read.

    Args:
        folder: the output folder.
        plan: the SHA-256 of the plan.
        unit: the number of the unit.
        hashes: a hash of the content of each of the unit's splits (`readers.content_hash`), in order.
    """
    storage.publish_bytes(dump_checksummed({"plan": plan, "unit": unit, "read": list(hashes)}), _path(folder, unit))


def _path(folder: str, unit: int) -> str:
    return storage.join(folder, RECORDS, f"{unit:05d}.json")


def _recorded_hashes(folder: str, plan: str, unit: int) -> list[str] | None:
    """Return the hashes that `save_read` recorded for a work unit; None if their file is damaged.

    The result is also None if the file belongs to another unit or plan.

    Args:
        folder: the output folder.
        plan: the SHA-256 of the plan.
        unit: the number of the unit.
    """
    try:
        record = load_checksummed(storage.read_bytes(_path(folder, unit)))
    except ValueError:
        return None
    return record["read"] if (record.get("plan"), record.get("unit")) == (plan, unit) else None


def _statuses(plan: Plan) -> list[list[int] | None]:
    """Return the status of each input (its size, times and inode number, as in `Status`), in the order of the plan.

    The status is None if the plan has no status for the input, or if the input was modified less than two seconds ago
    (FRESH_S), so that a further edit could go unnoticed.
    """
    before = time.time_ns() - int(FRESH_S * 1e9)

    def trusted(status: Status | None) -> list[int] | None:
        return [*status] if status and status.modified < before else None

    return [trusted(entry.status) for entry in plan.inputs]


def _recorded_statuses(folder: str, plan: str) -> list[list[int] | None]:
    """Return the status (size, times and inode number) of each input, as an earlier run with the same plan recorded it.

    The status is None if the input was modified just before that run, so that a further edit could go unnoticed. The
    list is empty if no run with this plan has recorded statuses.

    Args:
        folder: the output folder.
        plan: the SHA-256 of the plan.
    """
    try:
        record = load_checksummed(storage.read_bytes(storage.join(folder, RECORDS, STATUS)))
    except (FileNotFoundError, ValueError):
        return []
    return record["status"] if record.get("plan") == plan else []


def check_inputs(folder: str, plan: Plan, done: Collection[int], quiet: bool = False) -> set[int]:
    """Check that the inputs have not changed since units read them, and record the current status of each input.

    The status of a file is its size, times and inode. If it has changed, the content is compared with the hashes that
    the units recorded.

    Args:
        folder: the output folder.
        done: the numbers of the units that have a result.
        quiet: show no progress bar.

    Returns:
        The numbers of the finished units whose inputs have not changed. For the other finished units this is unknown,
        because the hashes that they recorded are missing or damaged.

    Raises:
        InputChangedError: the content of an input has changed.
    """
    statuses = _statuses(plan)
    known = _recorded_statuses(folder, plan.sha256) or [None] * len(statuses)
    pairs = zip(plan.inputs, known, statuses, strict=True)
    touched = {entry.name for entry, before, now in pairs if now is None or before != now}
    same = done_units(folder, RECORDS) & set(done)
    again: list[tuple[Split, str]] = []
    for unit in plan.units:
        if unit.number in same and not touched.isdisjoint(split.input.name for split in unit.splits):
            read = _recorded_hashes(folder, plan.sha256, unit.number)
            if read is None or len(read) != len(unit.splits):
                same.remove(unit.number)
            else:
                again += [pair for pair in zip(unit.splits, read, strict=True) if pair[0].input.name in touched]
    for split, is_same in _compared(plan.root, again, quiet):
        if not is_same:
            raise InputChangedError.of(storage.join(plan.root, split.input.name))
    storage.publish_if_changed(
        dump_checksummed({"plan": plan.sha256, "status": statuses}), storage.join(folder, RECORDS, STATUS)
    )
    return same


def have_changed(folder: str, inputs: Inputs, reading: ReadOptions, quiet: bool = False) -> bool:
    """Return whether the inputs of a finished dataset have changed; False if its plan cannot be read.

    Args:
        folder: the folder of the dataset.
        inputs: the input files as they are now.
        reading: the rules by which the readers find records in the inputs.
        quiet: show no progress bar.
    """
    began = planning.began(folder)
    if not began:
        return False
    own = {name: value for name, value in began.items() if name not in ("inputs", "code")}
    plan = planning.make_plan(inputs, own, began["options"]["unit_bytes"], reading.uncut)
    if plan.fingerprint["inputs"] != began["inputs"]:
        return True
    plan = dataclasses.replace(plan, fingerprint=began)
    try:
        check_inputs(folder, plan, done_units(folder) & {unit.number for unit in plan.units}, quiet)
    except InputChangedError:  # an edit that the plan does not show
        return True
    return False


def _compared(root: str, splits: Sequence[tuple[Split, str]], quiet: bool) -> Iterator[tuple[Split, bool]]:
    """Yield each split, and whether the hash of its content equals the hash that was recorded when a unit read it.

    Args:
        root: the folder that the names of the inputs are relative to.
        splits: each split, with the recorded hash.
        quiet: show no progress bar.
    """
    work = f"comparing {counted(len(splits), 'part')} of inputs that were modified since they were read"
    size = sum(split.bytes for split, _ in splits)
    with ProgressBar(size, work, quiet or not splits, unit="B", unit_scale=True) as bar:
        compared = storage.each(root, lambda pair: content_hash(root, pair[0]) == pair[1], splits)
        for (split, _), is_same in zip(splits, compared, strict=True):
            yield split, is_same
            bar.update(split.bytes)
