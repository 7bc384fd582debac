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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from types import MappingProxyType
from typing import Any

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers import tars
from clearspan.pipelines.readers.formats import recognized
from clearspan.pipelines.readers.sniff import KNOWN, UnknownKindError, look, rows_format, sample
from clearspan.pipelines.readers.streams import naming, opened
from clearspan.pipelines.records import Input, Inputs, Piece, Reading
from clearspan.pipelines.units.inputs import absolute, find
from clearspan.pipelines.units.plan_media import catalog, deal
from clearspan.pipelines.units.plan_media import unit_bytes as small_units
from clearspan.shards import storage

NAME = "plan.json"
FORMAT = 6
"""Raised whenever the same inputs and options would give other bytes."""
MAX_UNITS = 100_000
UNIT_BYTES = 128_000_000
EXPANSION = 3
"""About how many times its compressed size text has."""
RANGES = ("jsonl", "lines", "parquet")
"""Formats that are cut at any byte: a line or a row group belongs to the piece in which it starts."""
UNKNOWN = "unknown"
"""The format of inputs that are passed over: they are no pieces."""
BESIDE_ARROW = ("state.json", "dataset_info.json")
ABOVE_ARROW = "dataset_dict.json"
"""What Hugging Face's save_to_disk writes beside its tables, and above the folders of several."""
NAMED = 3
_COMPACT = json.JSONEncoder(separators=(",", ":")).encode
AT_ONCE = 1000
"""So many inputs or units are brought to JSON at a time."""


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
        return self._json

    @functools.cached_property
    def _json(self) -> bytes:
        index = {entry.name: position for position, entry in enumerate(self.inputs)}
        inputs = ({name: value for name, value in entry.fields if value} for entry in self.inputs)
        units = ([[index[piece.input.name], piece.start, piece.end] for piece in unit.pieces] for unit in self.units)
        head = f'{{"fingerprint":{_COMPACT(self.fingerprint)},"inputs":['.encode()
        return b"".join([head, *_items(inputs), b'],"units":[', *_items(units), b"]}\n"])


def _items(items: Iterable[object], encode: Callable[[object], str] = _COMPACT, between: str = ",") -> Iterator[bytes]:
    """What is between the brackets of a JSON list, in parts: of a million items at once json takes a gigabyte."""
    rest, before = iter(items), ""
    while some := list(itertools.islice(rest, AT_ONCE)):
        yield (before + between.join(map(encode, some))).encode()
        before = between


def describe(root: str, files: Mapping[str, int], reading: Reading, named: Collection[str] = ()) -> Iterator[Input]:
    """Each file's name under `root`, its size, its format as its content shows it, and what to know it by again. Paths
    that are `named`, not found in a folder, must be of a known kind.

    Raises:
        PipelineError: a file is of no known kind, or cannot be read as what it is.
    """
    unknown, passed = list[str](), _descriptions(files)
    for name, size in files.items():
        if not name.isprintable():
            raise PipelineError(f"{name!r}: a file name that is not printable text cannot be a source: rename it")
        path = storage.join(root, name)
        if name in passed and path not in named:
            if name.rpartition("/")[2] == BESIDE_ARROW[0]:
                _check_saved(path, files, name.rpartition("/")[0])
            continue
        with storage.open_input(path) as stream:
            known_by = sample(stream, size)
            try:
                file_format, compression = recognized(path, reading.formats) or look(stream, path)
            except UnknownKindError:
                if path in named:
                    raise
                unknown.append(name)
                file_format, compression = UNKNOWN, None
        if file_format == "text" and reading.text_per == "line":
            file_format = "lines"
        yield Input(name, size, rows_format(file_format, reading), compression, known_by)
    if unknown and (len(unknown) == len(files) or not reading.skip_unknown):
        number = f"{len(unknown):,} {'file' if len(unknown) == 1 else 'files'} of no known kind"
        mend = "name others" if reading.skip_unknown else "leave them out of --input, or go on with --skip-unknown"
        raise PipelineError(f"{root}: {number}, e.g. {', '.join(unknown[:NAMED])}: expected {KNOWN}: {mend}")


def _descriptions(files: Collection[str]) -> set[str]:
    """The files that only describe Arrow tables beside or below them."""
    folders = {name.rpartition("/")[0] for name in files if name.endswith(".arrow")}
    found = {f"{folder}/{name}".lstrip("/") for folder in folders for name in BESIDE_ARROW}
    return found | {f"{folder.rpartition('/')[0]}/{ABOVE_ARROW}".lstrip("/") for folder in folders}


def _check_saved(path: str, files: Collection[str], folder: str) -> None:
    """Raises PipelineError where tables that save_to_disk's state.json names are not there, or not all rows count."""
    try:
        state = json.loads(storage.read_bytes(path))
        tables = [entry["filename"] for entry in state["_data_files"]]
    except (ValueError, LookupError, TypeError):
        return  # another's file of this name says nothing of tables
    if state.get("_indices_data_files"):
        raise PipelineError(f"{path}: which rows count is in an index: save it again after flatten_indices()")
    if lost := [name for name in tables if f"{folder}/{name}".lstrip("/") not in files]:
        raise PipelineError(
            f"{path}: names {len(lost):,} of {len(tables):,} tables that are not there, e.g. {lost[0]}: bring them "
            "back, or name the tables instead of their folder"
        )


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
    inputs: Iterable[Input],
    unit_bytes: int,
    members: Mapping[str, list[int]] = MappingProxyType({}),
    whole: bool = False,
) -> list[Unit]:
    """Units of about `unit_bytes`: lines and tables in byte ranges (but where files stay `whole`), tars between
    `members`, other files whole, small ones together."""
    pieces: list[Piece] = []
    for entry in inputs:
        if entry.format in RANGES and entry.compression is None and not whole:
            starts = range(0, max(entry.bytes, 1), unit_bytes)
            pieces += [Piece(entry, start, min(start + unit_bytes, entry.bytes)) for start in starts]
        elif entry.name in members:
            starts_at = members[entry.name]
            pieces += [Piece(entry, *ends) for ends in zip(starts_at, [*starts_at[1:], None], strict=True)]
        else:
            pieces.append(Piece(entry, 0, None))
    return grouped(pieces, unit_bytes)


def grouped(pieces: Iterable[Piece], unit_bytes: int) -> list[Unit]:
    """Units of consecutive pieces, each of at most `unit_bytes` or one piece."""
    units: list[list[Piece]] = []
    size = 0
    for piece in pieces:
        if not units or size + piece.bytes > unit_bytes:
            units.append([])
            size = 0
        units[-1].append(piece)
        size += piece.bytes
    return [Unit(number, tuple(pieces)) for number, pieces in enumerate(units)]


def find_inputs(patterns: Sequence[str], reading: Reading) -> Inputs:
    """The files that paths and globs name, as the plan has them: their common folder, and each file described.

    Raises:
        PipelineError: one is missing or of no known format.
    """
    if reading.as_bytes:
        return catalog(patterns, reading)
    root, files = find(patterns)
    named = {pattern if storage.is_remote(pattern) else absolute(pattern) for pattern in patterns}
    found = list(describe(root, files, reading, named))
    known = tuple(entry for entry in found if entry.format != UNKNOWN)
    return Inputs(root, known, skipped=len(found) - len(known))


def make_plan(
    inputs: Inputs, fingerprint: Mapping[str, Any], unit_bytes: int | None = None, whole: bool = False
) -> Plan:
    """The plan for these inputs. `fingerprint` holds what shapes the data besides them: `options`, and what else the
    kind names. Without `unit_bytes` units are of 128 MB, and of pictures and clips smaller ones where there are few.
    `whole`: files are not cut.

    Raises:
        PipelineError: an input is damaged, or there are too many units to number.
    """
    num_bytes = sum(entry.bytes for entry in inputs.files)
    if inputs.classes is not None:
        unit_bytes = unit_bytes or small_units(num_bytes, UNIT_BYTES)
        units = grouped(deal(inputs, unit_bytes), unit_bytes)
    else:
        unit_bytes = unit_bytes or UNIT_BYTES
        units = cut(inputs.files, unit_bytes, member_starts(inputs.root, inputs.files, unit_bytes), whole)
    if len(units) > MAX_UNITS:
        raise PipelineError(f"{len(units):,} work units, more than {MAX_UNITS:,}: raise --unit-bytes")
    listing = hashlib.sha256(b"[")
    for some in _items((entry.fields for entry in inputs.files), json.dumps, ", "):
        listing.update(some)
    listing.update(b"]")
    full = {
        **fingerprint,
        "options": {**fingerprint["options"], "unit_bytes": unit_bytes},
        "inputs": {
            "files": len(inputs.files),
            "bytes": num_bytes,
            "sha256": listing.hexdigest(),
            **({"skipped": inputs.skipped} if inputs.skipped else {}),
        },
        "code": {"version": metadata.version("clearspan"), "format": FORMAT},
    }
    return Plan(inputs.root, inputs.files, tuple(units), full)


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


def _known_by(entry: Mapping[str, Any]) -> tuple[str, int, str, str]:
    return entry["name"], entry.get("bytes", 0), entry.get("sample", ""), entry.get("label", "")


def compare(folder: str, old: bytes, plan: Plan) -> None:
    """Raises PipelineError, naming what differs, unless `old` (a plan.json) is this plan."""
    new = plan.to_json()
    if old == new:
        return
    mend = f"choose another --output, or delete {folder}"
    try:
        record, current = json.loads(old), json.loads(new)
        lines = differences(record["fingerprint"], current["fingerprint"])
        theirs, ours = (set(map(_known_by, side["inputs"])) for side in (record, current))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise PipelineError(f"{folder}: its {NAME} is not readable: {mend}") from None
    changed = sorted(theirs ^ ours)
    if changed:
        lines.append(f"first input that differs: {changed[0][0]}")
    raise PipelineError(f"{folder} was begun with other inputs or options ({'; '.join(lines)}): {mend}")
