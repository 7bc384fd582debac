"""Indexes of a dataset, built once and kept in the cache as HASH.SUFFIX.

The hash is that of the manifest and of how the index is built, so that the index of another dataset is never used. A
file has this name only once it is complete.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path

from clearspan.common.files import cache_folder, move, temporary_name
from clearspan.shards.reader import Dataset


def kept(dataset: Dataset, built_by: str, suffix: str, write: Callable[[Path], None]) -> Path:
    """Return the path of an index of a dataset; call `write` with a path to write it to, unless it is there.

    Args:
        built_by: everything besides the dataset that the index depends on.
    """
    name = hashlib.sha256(built_by.encode() + dataset.manifest.to_json()).hexdigest()
    path = cache_folder() / f"{name}.{suffix}"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(temporary_name(path.name))
        try:
            write(temporary)
            move(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)
    return path
