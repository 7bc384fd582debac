"""Detection of inputs that are edited during a run, between two calls, or after the dataset is finished.

    planning     the status of each input: its size and times, without reading it  -> .clearspan/status.json
    a unit       compares the status of its inputs before and after it reads, and records a hash of what it read
                                                                                   -> .clearspan/00003.json
    a later run  an input whose status has changed is read again: if its hash differs from the recorded one, an error

Neither file is part of the dataset: on a different machine, the status of a file differs. A unit without these hashes
is done again, like a unit without a result. A status includes the time of the file's last change (ctime), which no
program can set back, so an edit is noticed even if the modification time is restored. The status of an input that was
modified within FRESH_S of planning cannot be trusted: file systems store times with a limited resolution, so an edit
right after planning could leave the same time.
"""

import time
from collections.abc import Collection, Iterator, Sequence

from clearspan.common.progress import ProgressBar, counted
from clearspan.common.sealed import seal, unseal
from clearspan.pipelines.errors import InputChangedError
from clearspan.pipelines.readers import identity
from clearspan.pipelines.records import Piece
from clearspan.pipelines.units.job import RECORDS, done_units
from clearspan.pipelines.units.plan import Plan
from clearspan.shards import storage
from clearspan.shards.finding import Status

STATUS = "status.json"
FRESH_S = 2.0
"""Resolution of times, in seconds, in the usual file system with the coarsest clock, FAT; object stores have 1 s."""


def save_read(folder: str, plan: str, unit: int, hashes: Sequence[str]) -> None:
    """Record what a unit read: a hash of the content of each of its pieces, in order (`readers.identity`).

    Args:
        plan: the SHA-256 of the plan.
    """
    storage.publish_bytes(seal({"plan": plan, "unit": unit, "read": list(hashes)}), _path(folder, unit))


def _path(folder: str, unit: int) -> str:
    return storage.join(folder, RECORDS, f"{unit:05d}.json")


def _load_read(folder: str, plan: str, unit: int) -> list[str] | None:
    """Return the hashes that `save_read` recorded; None if the file is damaged, or belongs to another unit or plan."""
    try:
        record = unseal(storage.read_bytes(_path(folder, unit)))
    except ValueError:
        return None
    return record["read"] if (record.get("plan"), record.get("unit")) == (plan, unit) else None


def _statuses(plan: Plan) -> list[list[int] | None]:
    """Return the status (size, times) of each input, in the order of the plan; None if it has none or is too recent."""
    before = time.time_ns() - int(FRESH_S * 1e9)

    def trusted(status: Status | None) -> list[int] | None:
        return [*status] if status and status.modified < before else None

    return [trusted(entry.status) for entry in plan.inputs]


def _known(folder: str, plan: str) -> list[list[int] | None]:
    """Return the status of each input that an earlier run with this plan recorded; [] if there was no such run."""
    try:
        record = unseal(storage.read_bytes(storage.join(folder, RECORDS, STATUS)))
    except (FileNotFoundError, ValueError):
        return []
    return record["status"] if record.get("plan") == plan else []


def check_inputs(folder: str, plan: Plan, done: Collection[int], quiet: bool = False) -> set[int]:
    """Check that the inputs are still what finished units read, and record the current status of each input.

    Args:
        done: the numbers of the units that have a result.

    Returns:
        The numbers of the finished units whose inputs are known to be unchanged. The others left no usable record.

    Raises:
        InputChangedError: a file has changed.
    """
    statuses = _statuses(plan)
    known = _known(folder, plan.sha256) or [None] * len(statuses)
    pairs = zip(plan.inputs, known, statuses, strict=True)
    touched = {entry.name for entry, before, now in pairs if now is None or before != now}
    same = done_units(folder, RECORDS) & set(done)
    again: list[tuple[Piece, str]] = []
    for unit in plan.units:
        if unit.number in same and not touched.isdisjoint(piece.input.name for piece in unit.pieces):
            read = _load_read(folder, plan.sha256, unit.number)
            if read is None or len(read) != len(unit.pieces):
                same.remove(unit.number)
            else:
                again += [pair for pair in zip(unit.pieces, read, strict=True) if pair[0].input.name in touched]
    for piece, is_same in _compared(plan.root, again, quiet):
        if not is_same:
            raise InputChangedError.of(storage.join(plan.root, piece.input.name))
    storage.publish_if_changed(seal({"plan": plan.sha256, "status": statuses}), storage.join(folder, RECORDS, STATUS))
    return same


def _compared(root: str, pieces: Sequence[tuple[Piece, str]], quiet: bool) -> Iterator[tuple[Piece, bool]]:
    """Yield each piece, and whether its content is still the content that a unit read.

    Args:
        root: the folder that the names of the inputs are relative to.
        pieces: each piece with the hash of the content that the unit read.
        quiet: show no progress bar.
    """
    work = f"comparing {counted(len(pieces), 'part')} of inputs that were modified since they were read"
    size = sum(piece.bytes for piece, _ in pieces)
    with ProgressBar(size, work, quiet or not pieces, unit="B", unit_scale=True) as bar:
        compared = storage.each(root, lambda pair: identity(root, pair[0]) == pair[1], pieces)
        for (piece, _), is_same in zip(pieces, compared, strict=True):
            yield piece, is_same
            bar.update(piece.bytes)
