"""Plan of a run, made before the work starts: the inputs, cut into work units, and all that determines the output.

The units depend only on the inputs and `unit_bytes`, and not on how much work an interrupted run has already done.
Therefore a continued run writes shards with the same names and bytes. Names of inputs are relative to their common
folder, so that a plan is the same on every machine. The plan is stored in the output folder as `plan.json`. A run with
a different plan raises an error if the folder has shards of this plan.
"""

import dataclasses
import functools
import hashlib
import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import orjson

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers import formats
from clearspan.pipelines.readers.sniff import UnknownFormatError, detect_format, recognized, sample
from clearspan.pipelines.records import Input, Inputs, ReadOptions, Split
from clearspan.pipelines.units.inputs import absolute, check_known, find
from clearspan.pipelines.units.plan_media import catalog, deal
from clearspan.shards import storage
from clearspan.shards.finding import Status

NAME = "plan.json"
FORMAT = 14
"""Version of the output and of the files between the two stages, increased whenever one of them changes."""
MAX_UNITS = 100_000
UNIT_BYTES = 128_000_000
MIN_UNIT_BYTES = 4_000_000
MEDIA_UNITS = 64
"""Default number of units of images or audio clips: enough for many processes, and few enough for large shards."""
MANY_UNITS = 40_000
"""Maximum number of units of the default size. Larger inputs get larger units, because decisions read the keys of every
unit."""
EXPANSION = 3
"""Typical ratio of the size of text to its compressed size."""
UNKNOWN = "unknown"
"""Format of files of unknown type, which are skipped."""


@dataclasses.dataclass(frozen=True)
class Unit:
    """A work unit: consecutive splits of the inputs, from which one worker makes shards.

    Attributes:
        number: the number of the unit, from 0; it is part of the names of the unit's shards.
        splits: the splits, which are byte ranges of input files.
    """

    number: int
    splits: tuple[Split, ...]

    @property
    def bytes(self) -> int:
        """The size of the unit's splits in bytes, as stored, i.e. possibly compressed."""
        return sum(split.bytes for split in self.splits)

    @property
    def text_bytes(self) -> int:
        """The size of the unit's splits in bytes after decompression; an estimate if they are compressed."""
        return sum(split.bytes * (EXPANSION if split.input.compression else 1) for split in self.splits)

    def elsewhere(self) -> "Unit":
        """Return a copy of the unit without the status of its inputs, for workers that may run on other machines.

        The status of a file holds times and an inode number, which may differ between machines.
        """
        inputs = [dataclasses.replace(split.input, status=None) for split in self.splits]
        splits = zip(self.splits, inputs, strict=True)
        return Unit(self.number, tuple(dataclasses.replace(split, input=entry) for split, entry in splits))


@dataclasses.dataclass(frozen=True)
class Plan:
    """The plan of a run.

    Attributes:
        root: the common folder of the inputs.
        inputs: the input files.
        units: the work units into which the inputs are cut.
        fingerprint: everything that determines the content of the dataset: options, hashes of resources (such as the
            tokenizer), a hash of the list of inputs, ...
        left_out: paths of files that were found and are not inputs, because of their names. They are not stored.
    """

    root: str
    inputs: tuple[Input, ...]
    units: tuple[Unit, ...]
    fingerprint: dict[str, Any]
    left_out: tuple[str, ...] = ()

    @functools.cached_property
    def sha256(self) -> str:
        """The SHA-256 of the content of plan.json."""
        return sha256_of(self.to_json())

    def to_json(self) -> bytes:
        """Return the content of plan.json. Its paths are relative to the common folder of the inputs."""
        content = {"fingerprint": self.fingerprint, "inputs": self.inputs}
        return orjson.dumps(content, lambda entry: dict(entry.fields), orjson.OPT_PASSTHROUGH_DATACLASS) + b"\n"


def describe(
    root: str,
    files: Mapping[str, int],
    reading: ReadOptions,
    named_paths: Collection[str] = (),
    statuses: Mapping[str, Status] = MappingProxyType({}),
) -> Iterator[Input]:
    """Yield an `Input` for each file, with the input format that the file's name and first bytes indicate.

    Files that only describe other files, such as state.json of the library datasets, are left out. If the user has
    chosen to skip files of unknown type, these are yielded with the format UNKNOWN.

    Args:
        root: the common folder of the files.
        files: path of a file relative to `root` -> its size in bytes.
        reading: the rules for reading records from the files.
        named_paths: the paths of files that the user has named one by one, rather than by a folder or a glob; they must
            be of a known type.
        statuses: path of a file relative to `root` -> its status in the file system, such as its modification time.

    Raises:
        PipelineError: a file is of unknown type, or cannot be read in the format that it seems to have.
    """
    describing = {name: known for known in formats.built_in().values() for name in known.descriptions(files)}
    unknown = dict[str, str]()

    def description(name: str) -> Input | None:
        path = storage.join(root, name)
        if name in describing and path not in named_paths:
            describing[name].check_description(path, name, files)
            return None
        with storage.open_input(path) as stream:
            content_hash = sample(stream, files[name])
            try:
                file_format, compression = recognized(path, reading.formats) or detect_format(
                    stream, path, reading.encoding
                )
            except UnknownFormatError as error:
                if path in named_paths:
                    raise
                unknown[name] = error.reason
                return Input(name, files[name], UNKNOWN, None, content_hash, status=statuses.get(name))
        with formats.naming_own_format(file_format, path):
            read_as = formats.format_named(file_format).read_as(reading)
        return Input(name, files[name], read_as, compression, content_hash, status=statuses.get(name))

    yield from filter(None, storage.each(root, description, files))
    check_known(root, unknown, formats.described(), reading.skip_unknown and len(unknown) < len(files))


def cut(root: str, inputs: Iterable[Input], unit_bytes: int, whole: bool = False) -> list[Unit]:
    """Cut the inputs into splits, where their formats allow it, and group the splits into units of about `unit_bytes`.

    A compressed file is one split. Small files share a unit.

    Args:
        root: the common folder of the inputs.
        unit_bytes: the approximate size of a unit in bytes.
        whole: if true, texts and tables are not cut; a tar may be cut between its members even then.
    """
    splits: list[Split] = []
    for entry in inputs:
        if entry.compression is not None:
            splits.append(Split(entry, 0, None))
            continue
        path = storage.join(root, entry.name)
        ranges = formats.splits(entry.format, path, entry.bytes, unit_bytes, whole)
        splits += [Split(entry, start, end) for start, end in ranges]
    return grouped(splits, unit_bytes)


def grouped(splits: Iterable[Split], unit_bytes: int) -> list[Unit]:
    """Group consecutive splits into units of at most `unit_bytes`; a larger split is a unit by itself."""
    units: list[list[Split]] = []
    size = 0
    for split in splits:
        if not units or size + split.bytes > unit_bytes:
            units.append([])
            size = 0
        units[-1].append(split)
        size += split.bytes
    return [Unit(number, tuple(splits)) for number, splits in enumerate(units)]


def find_inputs(patterns: Sequence[str], reading: ReadOptions) -> Inputs:
    """Find the input files and recognize their formats.

    Args:
        patterns: paths, folders and globs.
        reading: the rules for reading records from the files.

    Raises:
        PipelineError: a file is missing, is of unknown type, or cannot be read in the format that it seems to have.
    """
    if reading.as_bytes:
        return catalog(patterns, reading)
    left_out = set[str]()
    root, statuses = find(patterns, left_out=left_out)
    sizes = {name: status.bytes for name, status in statuses.items()}
    named = {pattern if storage.is_remote(pattern) else absolute(pattern) for pattern in patterns}
    described = list(describe(root, sizes, reading, named, statuses))
    known = tuple(entry for entry in described if entry.format != UNKNOWN)
    return Inputs(root, known, skipped=len(described) - len(known), left_out=tuple(sorted(left_out)))


def make_plan(
    inputs: Inputs, fingerprint: Mapping[str, Any], unit_bytes: int | None = None, whole: bool = False
) -> Plan:
    """Make the plan of a run on the given inputs: cut them into work units, and complete the fingerprint.

    Args:
        fingerprint: everything apart from the inputs that determines the dataset: the user's options (under the key
            `options`), and further entries of the kind of dataset.
        unit_bytes: the approximate size of a unit in bytes. The default (None) is 128 MB; it is more for inputs of over
            5 TB in all, and less for images or audio clips of less than 8 GB in all.
        whole: if true, texts and tables are not cut; a tar may be cut between its members even then.

    Raises:
        PipelineError: an input is damaged, there are more than MAX_UNITS units, or an option is not valid UTF-8.
    """
    for name, value in fingerprint["options"].items():
        try:
            json.dumps(value, ensure_ascii=False).encode("utf-8")
        except UnicodeEncodeError:
            raise PipelineError(
                f"the option {name} is not valid UTF-8: write it in a terminal whose encoding is UTF-8"
            ) from None
    num_bytes = sum(entry.bytes for entry in inputs.files)
    if inputs.classes is not None:
        unit_bytes = unit_bytes or min(UNIT_BYTES, max(MIN_UNIT_BYTES, num_bytes // MEDIA_UNITS))
        units = grouped(deal(inputs, unit_bytes), unit_bytes)
    else:
        unit_bytes = unit_bytes or max(UNIT_BYTES, num_bytes // MANY_UNITS)
        units = cut(inputs.root, inputs.files, unit_bytes, whole)
    if len(units) > MAX_UNITS:
        raise PipelineError(f"{len(units):,} work units, more than {MAX_UNITS:,}: raise `unit_bytes`")
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
    return Plan(inputs.root, inputs.files, tuple(units), full, inputs.left_out)


def _listing_sha256(inputs: Sequence[Input | list[tuple[str, Any]]]) -> str:
    """Return the SHA-256 of a list of inputs, as it is stored in the fingerprint.

    Args:
        inputs: the inputs, each as an `Input`, or as the list of (name, value) of its fields that was read from
            plan.json.
    """
    listing = orjson.dumps(inputs, lambda entry: entry.fields, orjson.OPT_PASSTHROUGH_DATACLASS)
    return hashlib.sha256(listing[1:-1]).hexdigest()


def sha256_of(plan: bytes) -> str:
    """Return the SHA-256 of the content of plan.json. By this hash, the result of a work unit names its plan.

    Args:
        plan: the content of plan.json.
    """
    return hashlib.sha256(plan).hexdigest()


def is_plan(data: bytes) -> bool:
    """Return whether `data` is the content of a plan.json, written by any version of this program.

    This is true if it holds a list of inputs, and a fingerprint with the hash of this list.
    """
    try:
        plan = orjson.loads(data)
        listing = _listing_sha256([list(entry.items()) for entry in plan["inputs"]])
        return bool(plan["fingerprint"]["inputs"]["sha256"] == listing and plan["fingerprint"]["code"]["format"])
    except (ValueError, LookupError, TypeError, AttributeError):
        return False


def began(folder: str) -> dict[str, Any]:
    """Return the fingerprint of the run that began in an output folder; {} if plan.json is missing or unreadable."""
    try:
        fingerprint: dict[str, Any] = json.loads(storage.read_bytes(storage.join(folder, NAME)))["fingerprint"]
        return {**fingerprint, "options": dict(fingerprint["options"])}
    except (FileNotFoundError, ValueError, LookupError, TypeError, RecursionError):  # `check_ownership` says what is
        return {}
