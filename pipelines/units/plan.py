"""What a run will do, decided before it starts: the inputs, cut into work units, and all that shapes the output.

Units depend on the inputs and `unit_bytes` alone, never on what is left to do, so that shard names and bytes are the
same however often a run was interrupted. Names are relative to the inputs' common folder: a plan is the same on every
machine. `plan.json` in the output folder holds a run to it.
"""

import dataclasses
import functools
import hashlib
import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pipelines.errors import PipelineError
from pipelines.readers import tars
from pipelines.readers.content import look, look_for_files, sample
from pipelines.readers.streams import naming, opened
from pipelines.records import Input, Piece, Reading
from shards import finding, storage

NAME = "plan.json"
FORMAT = 5
"""Raised whenever the same inputs and options would give other bytes."""
MAX_UNITS = 100_000
EXPANSION = 3
"""About how many times its compressed size text has."""
RANGES = ("jsonl", "lines", "parquet")
"""Formats that are cut at any byte: a line or a row group belongs to the piece in which it starts."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """Consecutive pieces of the inputs, processed as one; its number names its shards."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)

    @property
    def text_bytes(self) -> int:
        """About how much it is once decompressed."""
        return sum(piece.bytes * (EXPANSION if piece.input.compression else 1) for piece in self.pieces)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The inputs under `root`, the units and the fingerprint of everything that shapes the data."""

    root: str
    inputs: tuple[Input, ...]
    units: tuple[Unit, ...]
    fingerprint: dict[str, Any]

    @functools.cached_property
    def sha256(self) -> str:
        """The hash of plan.json."""
        return hashlib.sha256(self.to_json()).hexdigest()

    def to_json(self) -> bytes:
        """plan.json's bytes: no absolute path in it."""
        index = {entry: position for position, entry in enumerate(self.inputs)}
        record = {
            "fingerprint": self.fingerprint,
            "inputs": [dataclasses.asdict(entry) for entry in self.inputs],
            "units": [[[index[piece.input], piece.start, piece.end] for piece in unit.pieces] for unit in self.units],
        }
        return (json.dumps(record, indent=None, separators=(",", ":")) + "\n").encode()


def find(patterns: Sequence[str]) -> tuple[str, dict[str, int]]:
    """The files that paths and globs name, each once, sorted: their common folder, and by name under it their bytes.

    Raises:
        PipelineError: a path or glob names no file, or they are not all on this machine or in one bucket.
    """
    found: dict[str, int] = {}
    for pattern in patterns:
        try:
            files = storage.find(pattern)
        except FileNotFoundError as error:
            raise PipelineError(f"--input {error}") from None
        found.update((path if storage.is_remote(path) else _absolute(path), size) for path, size in files.items())
    if len(patterns) > 1 and not any(map(storage.is_remote, found)):
        found = finding.once(found)
    root = _common_folder(list(found))
    start = len(root.rstrip("/")) + 1
    return root, dict(sorted(((path[start:], size) for path, size in found.items()), key=_by_folder))


def _absolute(path: str) -> str:
    """The path from the root, a link under the name the user gave it; `..` may lead out of one, and is resolved."""
    if ".." in Path(path).parts:
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))  # noqa: PTH118, PTH119, PTH120
    return os.path.normpath(Path.cwd() / path)


def _by_folder(entry: tuple[str, int]) -> list[str]:
    return entry[0].split("/")


def _common_folder(paths: Sequence[str]) -> str:
    if not any(map(storage.is_remote, paths)):
        return os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120 (strings throughout)
    # "gs://bucket/a/b" -> ["gs:", "", "bucket", "a"]
    folders = [path.split("/")[:-1] for path in paths]
    if len({tuple(folder[:3]) for folder in folders}) > 1:
        raise PipelineError("--input: files of one run must all be on this machine, or all in one bucket")
    shared = itertools.takewhile(lambda names: len(set(names)) == 1, zip(*folders, strict=False))
    return "/".join(names[0] for names in shared)


def describe(root: str, files: dict[str, int], reading: Reading) -> Iterator[Input]:
    """Each file's name under `root`, its size, its format as its content shows it, and what to know it by again."""
    for name, size in files.items():
        if not name.isprintable():
            raise PipelineError(f"{name!r}: a file name that is not printable text cannot be a source: rename it")
        path = storage.join(root, name)
        with storage.open_input(path) as stream:
            known_by = sample(stream, size)
            file_format, compression = (look_for_files if reading.as_bytes else look)(stream, path)
        if file_format == "text" and reading.text_per == "line":
            file_format = "lines"
        yield Input(name, size, file_format, compression, known_by)


def member_starts(root: str, inputs: Iterable[Input], unit_bytes: int) -> dict[str, list[int]]:
    """Finds where the large tars among the inputs can be cut, by name. On an object store one is a unit: no seeking."""
    starts = {}
    for entry in inputs:
        path = storage.join(root, entry.name)
        large = entry.bytes > unit_bytes and not storage.is_remote(path)
        if entry.format == "tar" and entry.compression is None and large:
            with naming(path, "tar"), opened(path, None) as stream:
                starts[entry.name] = tars.cuts(stream, unit_bytes)
    return starts


def cut(
    inputs: Iterable[Input], unit_bytes: int, members: Mapping[str, list[int]] = MappingProxyType({})
) -> list[Unit]:
    """Units of about `unit_bytes`: lines and tables in byte ranges, tars between `members`, other files whole, small
    ones together."""
    units: list[list[Piece]] = []
    size = 0
    for entry in inputs:
        if entry.format in RANGES and entry.compression is None:
            starts = range(0, max(entry.bytes, 1), unit_bytes)
            pieces = [Piece(entry, start, min(start + unit_bytes, entry.bytes)) for start in starts]
        elif entry.name in members:
            starts_at = members[entry.name]
            pieces = [Piece(entry, *ends) for ends in zip(starts_at, [*starts_at[1:], None], strict=True)]
        else:
            pieces = [Piece(entry, 0, None)]
        for piece in pieces:
            if not units or size + piece.bytes > unit_bytes:
                units.append([])
                size = 0
            units[-1].append(piece)
            size += piece.bytes
    return [Unit(number, tuple(pieces)) for number, pieces in enumerate(units)]


def find_inputs(patterns: Sequence[str], reading: Reading) -> tuple[str, tuple[Input, ...]]:
    """The files that paths and globs name, as the plan has them: their common folder, and each file described.

    Raises:
        PipelineError: one is missing or of no known format.
    """
    root, files = find(patterns)
    return root, tuple(describe(root, files, reading))


def make_plan(root: str, inputs: tuple[Input, ...], fingerprint: Mapping[str, Any], unit_bytes: int) -> Plan:
    """The plan for these inputs. `fingerprint` holds what shapes the data besides them: `options`, and what else the
    kind names.

    Raises:
        PipelineError: an input is damaged, or there are too many units to number.
    """
    units = tuple(cut(inputs, unit_bytes, member_starts(root, inputs, unit_bytes)))
    if len(units) > MAX_UNITS:
        raise PipelineError(f"{len(units):,} work units, more than {MAX_UNITS:,}: raise --unit-bytes")
    listing = json.dumps([dataclasses.astuple(entry) for entry in inputs]).encode()
    whole = {
        **fingerprint,
        "options": {**fingerprint["options"], "unit_bytes": unit_bytes},
        "inputs": {
            "files": len(inputs),
            "bytes": sum(entry.bytes for entry in inputs),
            "sha256": hashlib.sha256(listing).hexdigest(),
        },
        "code": {"version": metadata.version("clearspan"), "format": FORMAT},
    }
    return Plan(root, inputs, units, whole)


def differences(old: Any, new: Any, prefix: str = "") -> list[str]:
    """What differs between two nested records, one "field: old there, new now" each."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = [*old, *(key for key in new if key not in old)]
        found = (differences(old.get(key), new.get(key), f"{prefix}.{key}" if prefix else key) for key in keys)
        return [line for lines in found for line in lines]
    return [] if old == new else [f"{prefix}: {_short(old)} there, {_short(new)} now"]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 24 else f"{text[:16]}..."


def compare(folder: str, old: bytes, plan: Plan) -> None:
    """Raises PipelineError, naming what differs, unless `old` (a plan.json) is this plan."""
    new = plan.to_json()
    if old == new:
        return
    mend = f"choose another --output, or delete {folder}"
    try:
        record, current = json.loads(old), json.loads(new)
        lines = differences(record["fingerprint"], current["fingerprint"])
        theirs, ours = ({(e["name"], e["bytes"], e["sample"]) for e in side["inputs"]} for side in (record, current))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PipelineError(f"{folder}: its {NAME} is not readable: {mend}") from None
    changed = sorted(theirs ^ ours)
    if changed:
        lines.append(f"first input that differs: {changed[0][0]}")
    raise PipelineError(f"{folder} was begun with other inputs or options ({'; '.join(lines)}): {mend}")
