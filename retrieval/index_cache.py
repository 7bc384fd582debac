"""Cache of indexes: files that are computed once from datasets and kept in the cache folder (`common.cached_file`).

Examples are an index of words for BM25, and the mean and covariance of vectors. The name of a file holds a hash of the
datasets' manifests and of everything else that determines the content, such as the versions of libraries. An index of
other datasets or of an older version is therefore never used.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np

from clearspan.common.encoder.fingerprint import digest
from clearspan.common.errors import PipelineError
from clearspan.common.terminal import one_line
from clearspan.common.verified_cache import cached_file
from clearspan.shards.reader import Dataset


def index_of(
    datasets: Sequence[Dataset], suffix: str, built_by: Mapping[str, str | int | float], write: Callable[[Path], None]
) -> AbstractContextManager[Path]:
    """Return a context manager that yields the path of an index of datasets: a file in the cache.

    If the cache cannot be used, the file is in a temporary folder, which is removed at the end of the context.

    Args:
        datasets: the datasets; the index depends on their order.
        suffix: the extension of the file, which names the type of the index, such as `bm25`.
        built_by: name -> value of whatever determines the index in addition to the datasets, such as a version.
        write: function that writes the index to a path. It is called if the cache does not hold the index.
    """
    manifests = [dataset.manifest.to_json().decode("utf-8") for dataset in datasets]
    named = {"manifest": manifests[0]} if len(manifests) == 1 else {"manifests": manifests}
    return cached_file(f"{digest(**named, built_by=dict(built_by))}.{suffix}", write)


def save(path: Path, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays, given as name -> array, to a file in the format of safetensors.

    Raises:
        PipelineError: the file cannot be written.
    """
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    try:
        save_file(dict(arrays), path)
    except SafetensorError as error:
        raise PipelineError(f"{path}: the index cannot be written (is the disk full?): {one_line(error)}") from None
