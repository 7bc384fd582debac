"""Indexes of a dataset, built once and kept in the cache as HASH.SUFFIX (`common.kept`).

The hash is that of the manifest and of everything that decides how the index is built, the versions of its libraries
among it, so that the index of another dataset or of another version is never used.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from clearspan.common.encoder.fingerprint import digest
from clearspan.common.kept import kept
from clearspan.shards.reader import Dataset


def index_of(
    dataset: Dataset, suffix: str, built_by: Mapping[str, str | int], write: Callable[[Path], None]
) -> AbstractContextManager[Path]:
    """Return a context manager that yields the path of an index of a dataset; `write` writes it to a path.

    Args:
        built_by: everything except the dataset that the index depends on, such as versions.
    """
    manifest = dataset.manifest.to_json().decode("utf-8")
    return kept(f"{digest(manifest=manifest, built_by=dict(built_by))}.{suffix}", write)
