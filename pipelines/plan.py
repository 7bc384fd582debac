"""What a run will do, decided before it starts: the inputs, cut into work units, and all that shapes the output.

Units depend on the inputs and `unit_bytes` alone, never on what is left to do, so that shard names and bytes are the
same however often a run was interrupted. Names are relative to the inputs' common folder: a plan is the same on every
machine. `plan.json` in the output folder holds a run to it.
"""

import dataclasses
import glob
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from pipelines.errors import PipelineError
from pipelines.readers.streams import sniff
from pipelines.records import Input, Piece
from pipelines.tokenization import TokenizerFiles

NAME = "plan.json"
FORMAT = 1
"""Raised whenever the same inputs and options would give other bytes."""
MAX_UNITS = 100_000


@dataclasses.dataclass(frozen=True)
class Unit:
    """Consecutive pieces of the inputs, processed as one; its number names its shards."""

    number: int
    pieces: tuple[Piece, ...]

    @property
    def bytes(self) -> int:
        return sum(piece.bytes for piece in self.pieces)


@dataclasses.dataclass(frozen=True)
class Plan:
    """The inputs under `root`, the units and the fingerprint of everything that shapes the data."""

    root: Path
    inputs: tuple[Input, ...]
    units: tuple[Unit, ...]
    fingerprint: dict[str, Any]

    def to_json(self) -> bytes:
        """plan.json's bytes: no absolute path in it."""
        index = {entry: position for position, entry in enumerate(self.inputs)}
        record = {
            "fingerprint": self.fingerprint,
            "inputs": [dataclasses.asdict(entry) for entry in self.inputs],
            "units": [[[index[piece.input], piece.start, piece.end] for piece in unit.pieces] for unit in self.units],
        }
        return (json.dumps(record, indent=None, separators=(",", ":")) + "\n").encode()


def find(patterns: Sequence[str]) -> tuple[Path, list[Path]]:
    """The files that paths and globs name, sorted, each once, and their common folder.

    Raises:
        PipelineError: a path or glob names no file.
    """
    found: set[Path] = set()
    for pattern in patterns:
        if Path(pattern).is_dir():
            raise PipelineError(f"{pattern}: a folder: name its files, e.g. '{Path(pattern) / '*.jsonl'}'")
        matches = [pattern] if Path(pattern).is_file() else glob.glob(pattern, recursive=True)  # noqa: PTH207 (absolute)
        # Not resolve(): a link keeps the name the user gave it.
        files = [Path(os.path.normpath(Path.cwd() / match)) for match in matches if Path(match).is_file()]
        if not files:
            raise PipelineError(f"--input {pattern}: no such file")
        found.update(files)
    root = Path(os.path.commonpath([file.parent for file in found]))
    return root, sorted(found)


def describe(root: Path, files: Iterable[Path]) -> Iterator[Input]:
    """Each file's name under `root`, its size, and its format as its content shows it."""
    for file in files:
        name = file.relative_to(root).as_posix()
        if not name.isprintable():
            raise PipelineError(f"{name!r}: a file name that is not printable text cannot be a source: rename it")
        file_format, compression = sniff(file)
        yield Input(name, file.stat().st_size, file_format, compression)


def cut(inputs: Iterable[Input], unit_bytes: int) -> list[Unit]:
    """Units of about `unit_bytes`: uncompressed lines in byte ranges, other files whole, small ones together."""
    units: list[list[Piece]] = []
    size = 0
    for entry in inputs:
        if entry.format == "jsonl" and entry.compression is None:
            starts = range(0, max(entry.bytes, 1), unit_bytes)
            pieces = [Piece(entry, start, min(start + unit_bytes, entry.bytes)) for start in starts]
        else:
            pieces = [Piece(entry, 0, None)]
        for piece in pieces:
            if not units or size + piece.bytes > unit_bytes:
                units.append([])
                size = 0
            units[-1].append(piece)
            size += piece.bytes
    return [Unit(number, tuple(pieces)) for number, pieces in enumerate(units)]


def make_plan(patterns: Sequence[str], options: dict[str, Any], tokenizer: TokenizerFiles, unit_bytes: int) -> Plan:
    """The plan for these inputs. `options` are those that shape the data, besides `unit_bytes`.

    Raises:
        PipelineError: an input is missing or of no known format, or there are too many units to number.
    """
    root, files = find(patterns)
    inputs = tuple(describe(root, files))
    units = tuple(cut(inputs, unit_bytes))
    if len(units) > MAX_UNITS:
        raise PipelineError(f"{len(units):,} work units, more than {MAX_UNITS:,}: raise --unit-bytes")
    listing = json.dumps([dataclasses.astuple(entry) for entry in inputs]).encode()
    fingerprint = {
        "tokenizer": {"sha256": tokenizer.sha256, "vocab_size": tokenizer.vocab_size},
        "options": {**options, "unit_bytes": unit_bytes},
        "inputs": {
            "files": len(inputs),
            "bytes": sum(entry.bytes for entry in inputs),
            "sha256": hashlib.sha256(listing).hexdigest(),
        },
        "code": {"version": metadata.version("clearspan"), "format": FORMAT},
    }
    return Plan(root, inputs, units, fingerprint)


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
        theirs, ours = ({(e["name"], e["bytes"]) for e in side["inputs"]} for side in (record, current))
    except (ValueError, KeyError, TypeError):
        raise PipelineError(f"{folder}: its {NAME} is not readable: {mend}") from None
    changed = sorted(theirs ^ ours)
    if changed:
        lines.append(f"first input that differs: {changed[0][0]}")
    raise PipelineError(f"{folder} was begun with other inputs or options ({'; '.join(lines)}): {mend}")
