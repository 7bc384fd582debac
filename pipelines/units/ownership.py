"""Claim of an output folder for a plan, and which files in it were written by a run: only these may be removed.

It is needed for a folder whose run wrote no shard, for example because the text field was misnamed, when the user runs
the corrected command. A file counts as written by the run if the plan implies its name and the run could have written
its content.
"""

import hashlib
import io
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import zstandard

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.units.curation import pack_verdicts
from clearspan.pipelines.units.decisions import decides_nothing
from clearspan.pipelines.units.job import (
    CURATED,
    DONE,
    ENTRIES,
    EXCLUDED,
    REJECTED,
    STAGED,
    STOPPED,
    VALIDATION,
    UnitResult,
    is_decision,
)
from clearspan.pipelines.units.plan import NAME, Plan, compare
from clearspan.shards import storage
from clearspan.shards.manifest import resources

_SUFFIXES = "|".join(("json", r"jsonl\.zst", "zst", *ENTRIES))
_OF_UNIT = re.compile(rf"({DONE}|{REJECTED}|{EXCLUDED}|{STAGED}|{CURATED})/(\d{{5}})\.({_SUFFIXES})")


def claim(folder: str, plan: Plan) -> None:
    """Make sure that the output folder of a run belongs to this plan or is empty.

    A folder of another plan without shards is emptied, if all its files are known to come from a run of that plan.

    Raises:
        PipelineError: the folder holds anything else.
    """
    names = [name for name in storage.tree(folder) if not name.startswith(".") and "/." not in name]
    if NAME not in names:
        if names:
            raise PipelineError(f"{folder}: holds other files ({names[0]}): choose a new or empty --output")
        return
    old = storage.read_bytes(storage.join(folder, NAME))
    try:
        compare(folder, old, plan)
    except PipelineError:
        if not all(is_own(name, old, storage.join(folder, *name.split("/"))) for name in names):
            raise
        for name in sorted(names, key=NAME.__eq__):  # the plan last: a run after a kill needs it
            storage.remove(storage.join(folder, *name.split("/")))


def is_own(name: str, plan: bytes, path: str) -> bool:
    """Return whether the run of this plan.json, which wrote no shard, wrote a file.

    Args:
        name: the file's name in the output folder.
        plan: content of plan.json.
        path: the file's path.
    """
    try:
        record = json.loads(plan)
        fingerprint, num_units = record["fingerprint"], len(record["units"])
        of_code = {"format"} == fingerprint["code"].keys()
        sha256 = _sha256(plan)
        return of_code and _is_own(name, fingerprint, num_units, sha256, lambda: storage.read_bytes(path))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return False


def _is_own(name: str, fingerprint: dict[str, Any], num_units: int, plan: str, read: Callable[[], bytes]) -> bool:
    if name in (NAME, STOPPED):
        return True
    if sha256 := resources(fingerprint).get(name.removeprefix(f"{VALIDATION}/")):
        return _sha256(read()) == sha256
    if is_decision(name):
        return decides_nothing(read(), num_units)
    match = _OF_UNIT.fullmatch(name)
    if not match or int(match[2]) >= num_units:
        return False
    place, suffix = match[1], match[3]
    if (place, suffix) in ((DONE, "json"), (STAGED, "json")):
        result = UnitResult.from_json(read(), plan, int(match[2]))
        return not result.shards and not result.held
    if place == STAGED:
        return decides_nothing(read(), num_units)
    if (place, suffix) == (CURATED, "zst"):
        return read() == pack_verdicts(np.empty(0, np.uint8))
    fields = {REJECTED: ["source", "offset", "reason", "head"], EXCLUDED: ["source", "id", "text"]}
    return suffix == "jsonl.zst" and place in fields and _fields(read()) == fields[place]


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _fields(data: bytes) -> list[str]:
    """Return the field names in the first line of a file that a tally writes; empty for any other file."""
    try:
        with zstandard.ZstdDecompressor().stream_reader(data) as lines:
            first = io.BufferedReader(lines).readline()
    except zstandard.ZstdError:
        return []
    return list(json.loads(first))
