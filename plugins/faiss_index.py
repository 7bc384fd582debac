"""Approximate search in vectors by faiss (extra `faiss`), with an inverted index that is built once.

    build:   a sample of the vectors -> centroids -> for each centroid, the list of the vectors nearest to it
    search:  a query -> the lists of the nearest centroids -> the nearest vectors in these lists

The index is kept in the cache (`retrieval.index_cache`). While it is built, memory holds all vectors as float32; a
search maps the file of the index into memory. A hit has the same score as in an exact search, but a near vector is
missed if its list is not read; more lists are read only for a query that finds too few. A collection of fewer than 512
vectors is searched exactly.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.errors import PipelineError, check_extra
from clearspan.common.progress import ProgressBar
from clearspan.common.terminal import one_line
from clearspan.retrieval.index import VectorIndex
from clearspan.retrieval.index_cache import index_of
from clearspan.retrieval.similar import SimilarityFunction, Vectors
from clearspan.retrieval.texts import Texts
from clearspan.retrieval.topk import Indices
from clearspan.shards.vectors import decoded

VERSION = 1
"""Version of the method by which an index is built, increased whenever it changes."""
SAMPLED = 64
"""Number of sampled vectors for each list; faiss advises 39 to 256."""
MIN_LISTS = 8
PART_READ = 16
"""A query reads 1 / PART_READ of the lists, and at least MIN_LISTS lists."""


class Faiss(VectorIndex):
    """Inverted index of vectors, for models that compare by cosine or dot product.

    Raises:
        PipelineError: faiss is not installed, has no index for this similarity, or cannot write the index.
        ShardError: a shard is damaged.
    """

    def __init__(self, texts: Texts, similarity: SimilarityFunction) -> None:
        super().__init__(texts, similarity)
        check_extra("faiss", "faiss", feature="`index` faiss")
        import faiss

        if not similarity.is_product:
            raise PipelineError(f"`index` faiss: the model compares by {similarity.name} distance: leave out `index`")
        self._faiss: Any = faiss
        built_by: dict[str, str | int] = {"version": VERSION, "similarity": similarity.name}
        with index_of(texts.datasets, "faiss", {**built_by, "faiss": faiss.__version__}, self._write) as path:
            self._index: Any = faiss.read_index(str(path), faiss.IO_FLAG_MMAP | faiss.IO_FLAG_READ_ONLY)

    def prepared(self, vectors: Vectors) -> Vectors:
        vectors = np.array(vectors, np.float32, order="C")
        if self.similarity.name == "cosine":
            self._faiss.normalize_L2(vectors)
        return vectors

    def nearest(self, queries: Vectors, depth: int) -> tuple[Indices, NDArray[np.floating]]:
        scores, rows = self._index.search(queries, depth)
        num_lists = getattr(self._index, "nlist", 0)
        num_read = getattr(self._index, "nprobe", 0)
        while num_read < num_lists and len(short := np.flatnonzero((rows < 0).any(axis=1))):
            num_read = min(2 * num_read, num_lists)
            reading = self._faiss.SearchParametersIVF(nprobe=num_read)
            scores[short], rows[short] = self._index.search(queries[short], depth, params=reading)
        return rows, scores

    def _batches(self) -> Iterator[Vectors]:
        for dataset in self.texts.datasets:
            yield from (self.prepared(decoded(batch)) for batch in dataset)

    def _write(self, path: Path) -> None:
        faiss, num_rows = self._faiss, self.texts.num_rows
        lists = min(4 * int(num_rows**0.5), num_rows // SAMPLED)
        step = max(1, num_rows // (SAMPLED * max(lists, 1)))
        sample = np.concatenate([rows[::step] for rows in self._batches()])
        index = faiss.IndexFlatIP(sample.shape[1])
        if lists >= MIN_LISTS:
            index = faiss.IndexIVFFlat(index, sample.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
            index.train(sample)
            index.nprobe = max(MIN_LISTS, lists // PART_READ)
        with ProgressBar(num_rows, f"indexing {num_rows:,} vectors", self.texts.quiet, unit="vector") as bar:
            for rows in self._batches():
                index.add(rows)
                bar.update(len(rows))
        try:
            faiss.write_index(index, str(path))
        except RuntimeError as error:
            raise PipelineError(f"{path}: the index cannot be written (is the disk full?): {one_line(error)}") from None
