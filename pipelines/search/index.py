"""Indexes of words, and moments of scores: computed once from texts and kept in the cache (`common.kept`).

A file is named by a hash of the manifests and of everything else that decides its content, such as library versions,
so that the index of other texts or of another version is never used.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from clearspan.common.encoder.fingerprint import digest
from clearspan.common.kept import kept
from clearspan.common.terminal import one_line
from clearspan.pipelines.errors import PipelineError
from clearspan.shards.reader import Dataset


def index_of(
    datasets: Sequence[Dataset], suffix: str, built_by: Mapping[str, str | int], write: Callable[[Path], None]
) -> AbstractContextManager[Path]:
    """Return a context manager that yields the path of an index of these datasets, in this order.

    Args:
        built_by: everything, datasets aside, that the index depends on, such as versions.
        write: writes the index to a path, if the cache does not hold it.
    """
    manifests = [dataset.manifest.to_json().decode("utf-8") for dataset in datasets]
    named = {"manifest": manifests[0]} if len(manifests) == 1 else {"manifests": manifests}
    return kept(f"{digest(**named, built_by=dict(built_by))}.{suffix}", write)


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays to a file.

    Raises:
        PipelineError: the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        raise PipelineError(f"{path}: the index cannot be written (is the disk full?): {one_line(error)}") from None
