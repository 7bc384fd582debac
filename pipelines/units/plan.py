"""The plan of a run, made before it starts: the inputs, cut into work units, and everything that shapes the output.

Units depend only on the inputs and `unit_bytes`, not on what remains to be done, so shard names and bytes are the same
however often a run was interrupted. Names are relative to the common folder of the inputs, so a plan is the same on
every machine. `plan.json` in the output folder stores it; a run with another plan fails.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers import tars
from clearspan.pipelines.readers.formats import recognized
from clearspan.pipelines.readers.sniff import KNOWN, UnknownKindError, look, rows_format, sample
from clearspan.pipelines.readers.streams import naming, opened
from clearspan.pipelines.records import Input, Inputs, Piece, Reading
from clearspan.pipelines.units.inputs import absolute, check_known, find
from clearspan.pipelines.units.plan_media import catalog, deal
from clearspan.shards import storage
from clearspan.shards.finding import Status

NAME = "plan.json"
FORMAT = 13
"""Version of the output and of the files between the stages, increased whenever either changes."""
MAX_UNITS = 100_000
UNIT_BYTES = 128_000_000
LEAST_UNIT_BYTES = 4_000_000
MEDIA_UNITS = 64
"""Units of images or clips by default: enough for many processes, few enough for large shards."""
MANY_UNITS = 40_000
"""The number of units from which the default size of a unit grows: decisions read a piece of every unit's keys."""
EXPANSION = 3
"""Typical ratio of the size of text to its compressed size."""
RANGES = ("jsonl", "lines", "parquet")
"""Formats that can be cut at any byte: a line or row group belongs to the piece in which it starts."""
UNKNOWN = "unknown"
"""Format of inputs that are skipped."""
BESIDE_ARROW = ("state.json", "dataset_info.json")
ABOVE_ARROW = "dataset_dict.json"
"""Files that Hugging Face's save_to_disk writes beside its tables, and above the folders of several splits."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """Work unit: consecutive pieces of the inputs, processed together. Its number is part of its shards' names."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        """Size of its pieces, as stored."""
        return sum(piece.bytes for piece in self.pieces)

    @property
    def text_bytes(self) -> int:
        """Estimate of its size when decompressed."""
        return sum(piece.bytes * (EXPANSION if piece.input.compression else 1) for piece in self.pieces)

    def elsewhere(self) -> "Unit":
        """Return the unit for a worker that sees the inputs on another file system, where they have another status."""
        inputs = [dataclasses.replace(piece.input, status=None) for piece in self.pieces]
        pieces = zip(self.pieces, inputs, strict=True)
        return Unit(self.number, tuple(dataclasses.replace(piece, input=entry) for piece, entry in pieces))


@dataclasses.dataclass(frozen=True)
class Plan:
    """The inputs under `root`, the fingerprint of everything that shapes the data, and the units that follow."""

    root: str
    inputs: tuple[Input, ...]
    units: tuple[Unit, ...]
    fingerprint: dict[str, Any]

    @functools.cached_property
    def sha256(self) -> str:
        """The hash of plan.json."""
        return sha256_of(self.to_json())

    def to_json(self) -> bytes:
        """Return the content of plan.json, which has no absolute paths."""
        content = {"fingerprint": self.fingerprint, "inputs": self.inputs}
        return orjson.dumps(content, lambda entry: dict(entry.fields), orjson.OPT_PASSTHROUGH_DATACLASS) + b"\n"


def describe(
    root: str,
    files: Mapping[str, int],
    reading: Reading,
    named: Collection[str] = (),
    statuses: Mapping[str, Status] = MappingProxyType({}),
) -> Iterator[Input]:
    """Yield a description of each file, with its format by content.

    Args:
        files: sizes by name under `root`.
        named: paths that the user names directly; they must be of a known type.
        statuses: what the file system says of them, by name.

    Raises:
        PipelineError: a file is of unknown type, or cannot be read as its type.
    """
    descriptions = _descriptions(files)
    unknown = dict[str, str]()

    def described(name: str) -> Input | None:
        path = storage.join(root, name)
        if name in descriptions and path not in named:
            if name.rpartition("/")[2] == BESIDE_ARROW[0]:
                _check_saved(path, files, name.rpartition("/")[0])
            return None
        with storage.open_input(path) as stream:
            content_hash = sample(stream, files[name])
            try:
                file_format, compression = recognized(path, reading.formats) or look(stream, path, reading.encoding)
            except UnknownKindError as error:
                if path in named:
                    raise
                unknown[name] = error.reason
                file_format, compression = UNKNOWN, None
        if file_format == "text" and reading.text_per == "line":
            file_format = "lines"
        form = rows_format(file_format, reading)
        return Input(name, files[name], form, compression, content_hash, status=statuses.get(name))

    yield from filter(None, storage.each(root, described, files))
    check_known(root, unknown, KNOWN, reading.skip_unknown and len(unknown) < len(files))


def _descriptions(files: Collection[str]) -> set[str]:
    """Return the names of files that only describe Arrow tables beside or below them."""
    folders = {name.rpartition("/")[0] for name in files if name.lower().endswith(".arrow")}
    beside = {f"{folder}/{name}".lstrip("/") for folder in folders for name in BESIDE_ARROW}
    return beside | {f"{folder.rpartition('/')[0]}/{ABOVE_ARROW}".lstrip("/") for folder in folders}


def _check_saved(path: str, files: Collection[str], folder: str) -> None:
    """Raise PipelineError if tables that save_to_disk's state.json names are missing, or an index selects rows."""
    try:
        state = json.loads(storage.read_bytes(path))
        tables = [entry["filename"] for entry in state["_data_files"]]
    except (ValueError, LookupError, TypeError):
        return  # a file of this name from another program
    if state.get("_indices_data_files"):
        raise PipelineError(f"{path}: an index selects its rows: save it again after flatten_indices()")
    if missing := [name for name in tables if f"{folder}/{name}".lstrip("/") not in files]:
        raise PipelineError(f"{path}: {len(missing):,} of its {len(tables):,} tables are missing, e.g. {missing[0]}")


def member_starts(root: str, inputs: Iterable[Input], unit_bytes: int) -> dict[str, list[int]]:
    """Return the offsets at which large local tars can be cut, by name; a tar on an object store is one unit."""
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
    """Cut the inputs into units of about `unit_bytes`.

    Lines and tables are cut into byte ranges, unless `whole` is set, and tars at the offsets `members`. Other files are
    not cut; small ones share a unit.
    """
    pieces: list[Piece] = []
    for entry in inputs:
        if entry.format in RANGES and entry.compression is None and not whole:
            starts = range(0, max(entry.bytes, 1), unit_bytes)
            pieces += [Piece(entry, start, min(start + unit_bytes, entry.bytes)) for start in starts]
        elif entry.name in members:
            offsets = members[entry.name]
            pieces += [Piece(entry, *ends) for ends in zip(offsets, [*offsets[1:], None], strict=True)]
        else:
            pieces.append(Piece(entry, 0, None))
    return grouped(pieces, unit_bytes)


def grouped(pieces: Iterable[Piece], unit_bytes: int) -> list[Unit]:
    """Group consecutive pieces into units of at most `unit_bytes`, or of one larger piece."""
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
    """Find and describe the input files.

    Raises:
        PipelineError: a file is missing or of unknown type.
    """
    if reading.as_bytes:
        return catalog(patterns, reading)
    root, statuses = find(patterns)
    sizes = {name: status.bytes for name, status in statuses.items()}
    named = {pattern if storage.is_remote(pattern) else absolute(pattern) for pattern in patterns}
    described = list(describe(root, sizes, reading, named, statuses))
    known = tuple(entry for entry in described if entry.format != UNKNOWN)
    return Inputs(root, known, skipped=len(described) - len(known))


def make_plan(
    inputs: Inputs, fingerprint: Mapping[str, Any], unit_bytes: int | None = None, whole: bool = False
) -> Plan:
    """Make the plan for these inputs.

    Args:
        fingerprint: what shapes the data besides the inputs: `options`, and further entries of the kind.
        unit_bytes: size of a unit; None gives 128 MB, more for corpora of over 5 TB, and less for a small number of
            images or audio clips.
        whole: files are not cut.

    Raises:
        PipelineError: an input is damaged, or there are too many units to number.
    """
    num_bytes = sum(entry.bytes for entry in inputs.files)
    if inputs.classes is not None:
        unit_bytes = unit_bytes or min(UNIT_BYTES, max(LEAST_UNIT_BYTES, num_bytes // MEDIA_UNITS))
        units = grouped(deal(inputs, unit_bytes), unit_bytes)
    else:
        unit_bytes = unit_bytes or max(UNIT_BYTES, num_bytes // MANY_UNITS)
        units = cut(inputs.files, unit_bytes, member_starts(inputs.root, inputs.files, unit_bytes), whole)
    if len(units) > MAX_UNITS:
        raise PipelineError(f"{len(units):,} work units, more than {MAX_UNITS:,}: raise --unit-bytes")
    full = {
        **fingerprint,
        "options": {**fingerprint["options"], "unit_bytes": unit_bytes},
        "inputs": {
            "files": len(inputs.files),
            "bytes": num_bytes,
            "sha256": _listing_sha256(inputs.files),
            **({"skipped": inputs.skipped} if inputs.skipped else {}),
        },
        "code": {"format": FORMAT},
    }
    return Plan(inputs.root, inputs.files, tuple(units), full)


def _listing_sha256(inputs: Sequence[Input | list[tuple[str, Any]]]) -> str:
    """Return the hash of the fields of all inputs, each as (name, value)."""
    listing = orjson.dumps(inputs, lambda entry: entry.fields, orjson.OPT_PASSTHROUGH_DATACLASS)
    return hashlib.sha256(listing[1:-1]).hexdigest()


def sha256_of(plan: bytes) -> str:
    """Return the hash of a plan.json by which results name it."""
    return hashlib.sha256(plan).hexdigest()


def is_plan(data: bytes) -> bool:
    """Return whether the content of a plan.json was written by a run, of this version or another: its fingerprint holds
    the hash of its inputs.
    """
    try:
        plan = orjson.loads(data)
        listing = _listing_sha256([list(entry.items()) for entry in plan["inputs"]])
        return bool(plan["fingerprint"]["inputs"]["sha256"] == listing and plan["fingerprint"]["code"]["format"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def began(folder: str) -> dict[str, Any]:
    """Return the fingerprint of the plan in an output folder; empty if there is no plan, or it is not readable."""
    try:
        fingerprint: dict[str, Any] = json.loads(storage.read_bytes(storage.join(folder, NAME)))["fingerprint"]
        return {**fingerprint, "options": dict(fingerprint["options"])}
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError):  # `claim` says what is wrong
        return {}
