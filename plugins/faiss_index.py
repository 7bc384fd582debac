"""Approximate search in a dataset of vectors by faiss (extra `faiss`), with an inverted index that is built once.

    build:   a sample of the vectors -> centroids -> for each centroid, the list of the vectors nearest to it
    search:  a query -> the lists of the nearest centroids -> the nearest vectors in these lists

The index is kept in the cache (`retrieval.index_cache`). While it is built, memory holds all vectors as float32; a
search maps the file of the index into memory. A hit has the same score as in an exact search, but a near vector is
missed if its list is not read. A dataset of fewer than 512 vectors is searched exactly.
"""

import functools
from pathlib import Path
from typing import Any

import numpy as np

from clearspan.common.errors import PipelineError, check_extra
from clearspan.common.progress import ProgressBar
from clearspan.common.terminal import one_line
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.index_cache import index_of
from clearspan.retrieval.texts import Texts
from clearspan.retrieval.topk import rounded
from clearspan.shards import vectors
from clearspan.shards.reader import Dataset

VERSION = 1
"""Version of the method by which an index is built, increased whenever it changes."""
SAMPLED = 64
"""Number of sampled vectors for each list; faiss advises 39 to 256."""
MIN_LISTS = 8
PART_READ = 16
"""A query reads 1 / PART_READ of the lists, and at least MIN_LISTS lists."""


def search(texts: Texts, similarity: str, queries: np.ndarray, top: int, quiet: bool = False) -> list[list[Hit]]:
    """Return the hits of each query, best first: approximately the `top` nearest vectors of a dataset.

    Args:
        texts: the rows to search. They must be the rows of a single dataset, and not be chunks of documents.
        similarity: the name of the model's similarity, which must be `cosine` or `dot`.
        queries: the vectors of the queries, (n, dim).
        top: the number of hits for each query.
        quiet: whether to hide the progress bar while the index is built.

    Raises:
        PipelineError: faiss is not installed, has no index for this similarity, or cannot search these texts.
        ShardError: a shard is damaged.
    """
    check_extra("faiss", "faiss", feature="`index` faiss")
    import faiss

    if similarity not in ("cosine", "dot"):
        raise PipelineError(f"`index` faiss: the model compares by {similarity} distance: leave out `index`")
    if len(texts.datasets) > 1 or texts.is_chunked:
        what = "chunks of documents" if texts.is_chunked else "several collections"
        raise PipelineError(f"`index` faiss: {what} cannot be searched: leave out `index`")
    (dataset,), is_cosine = texts.datasets, similarity == "cosine"
    built_by: dict[str, str | int] = {"version": VERSION, "similarity": similarity, "faiss": faiss.__version__}
    write = functools.partial(_write, faiss, dataset, is_cosine, quiet)
    with index_of([dataset], "faiss", built_by, write) as path:
        index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)
        scores, rows = index.search(_prepared(faiss, queries, is_cosine), min(top, dataset.num_examples))
    found = [
        ([row for row in of_query if row >= 0], [score for score, row in zip(near, of_query, strict=True) if row >= 0])
        for near, of_query in zip(rounded(scores).tolist(), rows.tolist(), strict=True)
    ]
    return [sorted(hits, key=lambda hit: (-hit.score, -hit.id)) for hits in texts.hits(found)]


def _prepared(faiss: Any, rows: np.ndarray, is_cosine: bool) -> np.ndarray:
    """Return a float32 copy of n vectors, (n, dim), scaled to unit length if the similarity is the cosine.

    Args:
        faiss: the imported package, which is optional.
        rows: the vectors.
    """
    rows = np.array(rows, np.float32, order="C")
    if is_cosine:
        faiss.normalize_L2(rows)
    return rows


def _write(faiss: Any, dataset: Dataset, is_cosine: bool, quiet: bool, path: Path) -> None:
    """Build the index of a dataset of vectors, and write it to the file `path`.

    Args:
        faiss: the imported package, which is optional.
        is_cosine: whether the similarity is the cosine; otherwise it is the dot product.
        quiet: whether to hide the progress bar.

    Raises:
        PipelineError: the file cannot be written.
    """
    lists = min(4 * int(dataset.num_examples**0.5), dataset.num_examples // SAMPLED)
    step = max(1, dataset.num_examples // (SAMPLED * max(lists, 1)))
    sample = _prepared(faiss, np.concatenate([vectors.decoded(batch)[::step] for batch in dataset]), is_cosine)
    index = faiss.IndexFlatIP(sample.shape[1])
    if lists >= MIN_LISTS:
        index = faiss.IndexIVFFlat(index, sample.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
        index.train(sample)
        index.nprobe = max(MIN_LISTS, lists // PART_READ)
    with ProgressBar(dataset.num_examples, f"indexing {dataset.num_examples:,} vectors", quiet, unit="vector") as bar:
        for batch in dataset:
            index.add(_prepared(faiss, vectors.decoded(batch), is_cosine))
            bar.update(batch.num_rows)
    try:
        faiss.write_index(index, str(path))
    except RuntimeError as error:
        raise PipelineError(f"{path}: the index cannot be written (is the disk full?): {one_line(error)}") from None
