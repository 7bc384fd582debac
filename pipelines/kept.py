"""Indexes of a dataset, built once and kept in the cache: HASH.SUFFIX, and HASH.json with its size and sha256.

The hash is that of the manifest and of how the index is built, so that the index of another dataset is never used. Each
search compares the file with its record: a damaged index is built again.
"""

import dataclasses
import hashlib
import sys
from collections.abc import Callable
from pathlib import Path

from clearspan.common.files import cache_folder, move, temporary_name, write_bytes
from clearspan.shards.reader import Dataset
from clearspan.shards.sealed import FileInfo, build, seal, unseal


def kept(dataset: Dataset, built_by: str, suffix: str, write: Callable[[Path], None]) -> Path:
    """Return the path of an index of a dataset; call `write` with a path to write it to, unless it is there.

    Args:
        built_by: everything besides the dataset that the index depends on.
    """
    name = hashlib.sha256(built_by.encode() + dataset.manifest.to_json()).hexdigest()
    path = cache_folder() / f"{name}.{suffix}"
    if not (difference := _difference(path)):
        return path
    if path.exists():
        print(f"{path}: {difference}: building the index again", file=sys.stderr)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(temporary_name(path.name))
    try:
        write(temporary)
        record = seal({"index": dataclasses.asdict(FileInfo.of(temporary))})
        _record(path).unlink(missing_ok=True)
        move(temporary, path)
        write_bytes(_record(path), record)
    finally:
        temporary.unlink(missing_ok=True)
    return path


def _difference(path: Path) -> str:
    """Describe how an index differs from what was written; empty if it does not."""
    try:
        return build(FileInfo, unseal(_record(path).read_bytes()).get("index")).difference(path, "its record")
    except FileNotFoundError:
        return "not there, or without its record"
    except ValueError as error:
        return f"its record is damaged ({error})"


def _record(path: Path) -> Path:
    return path.with_suffix(".json")
