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
from clearspan.pipelines.readers.formats import blaming, built_in, described, format_named
from clearspan.pipelines.readers.sniff import UnknownKindError, look, recognized, sample
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
"""Maximum number of units of the default size. Larger inputs get larger units, as decisions read every unit's keys."""
EXPANSION = 3
"""Typical ratio of the size of text to its compressed size."""
UNKNOWN = "unknown"
"""Format of inputs that are skipped."""


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
        """Return the unit without file statuses, for a worker that sees the inputs on a different file system."""
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
        statuses: name of a file -> its status in the file system.

    Raises:
        PipelineError: a file is of unknown type, or cannot be read in the format that it seems to have.
    """
    describing = {name: known for known in built_in().values() for name in known.descriptions(files)}
    unknown = dict[str, str]()

    def description(name: str) -> Input | None:
        path = storage.join(root, name)
        if name in describing and path not in named:
            describing[name].check_description(path, name, files)
            return None
        with storage.open_input(path) as stream:
            content_hash = sample(stream, files[name])
            try:
                file_format, compression = recognized(path, reading.formats) or look(stream, path, reading.encoding)
            except UnknownKindError as error:
                if path in named:
                    raise
                unknown[name] = error.reason
                return Input(name, files[name], UNKNOWN, None, content_hash, status=statuses.get(name))
        with blaming(file_format, path):
            read_as = format_named(file_format).read_as(reading)
        return Input(name, files[name], read_as, compression, content_hash, status=statuses.get(name))

    yield from filter(None, storage.each(root, description, files))
    check_known(root, unknown, described(), reading.skip_unknown and len(unknown) < len(files))


def cut(root: str, inputs: Iterable[Input], unit_bytes: int, whole: bool = False) -> list[Unit]:
    """Cut the inputs into units of about `unit_bytes`, each as its format can be cut; small files share a unit.

    Args:
        root: common folder of the inputs.
        whole: texts and tables are not cut.
    """
    pieces: list[Piece] = []
    for entry in inputs:
        ranges: list[tuple[int, int | None]] = [(0, None)]
        if entry.compression is None:
            path = storage.join(root, entry.name)
            with blaming(entry.format, path):
                ranges = format_named(entry.format).cut(path, entry.bytes, unit_bytes, whole)
        pieces += [Piece(entry, start, end) for start, end in ranges]
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
        fingerprint: everything, inputs aside, that determines the data: `options`, and further entries of the kind.
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
        units = cut(inputs.root, inputs.files, unit_bytes, whole)
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
    """Return whether a run of any version wrote this content of a plan.json.

    If so, its fingerprint holds the hash of its inputs.
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
