"""Rows of one or several datasets of vectors as one sequence, read in blocks.

    shards -> batches, read ahead by a thread -> blocks of rows: vectors, ids, documents

A row is a text, or a chunk of a text. Rows are numbered consecutively over all datasets, from 0. If the caller asks
for it (`Texts(keep=True)`) and the rows take at most half of the machine's memory, the first search leaves them in
memory for later searches. Otherwise each search reads the shards again, and memory holds two batches and one block.
"""

import bisect
import dataclasses
import functools
import itertools
import operator
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from clearspan.common.errors import PipelineError
from clearspan.common.progress import ProgressBar
from clearspan.retrieval.hits import Hit, hit_of
from clearspan.retrieval.stemming import spread_rows
from clearspan.shards import vectors
from clearspan.shards.reader import Dataset, ShardError

Item = TypeVar("Item")
Condition = Callable[[pa.RecordBatch], np.ndarray]
"""Function of a batch that returns the mask of the rows that may be hits, (rows,) bool."""
DOCUMENT = "document"
"""Name of the column with the id of the document that a chunk belongs to; only datasets of chunks have it."""
FIRST_ROWS = 512
MAX_ROWS = 1 << 16
"""Number of rows of the first block, and maximum number of rows of a block. Up to the maximum, each block has twice as
many rows as the block before it."""
BLOCK_BYTES = 1 << 26
"""Maximum size of a block's vectors in bytes."""


def lengths_of(vectors: np.ndarray) -> np.ndarray:
    """Return the Euclidean lengths of finite vectors, (n, dim) float32, as (n,) float32.

    The squares of numbers above 1e19 exceed the range of float32 although the lengths do not: such vectors are measured
    in float64.
    """
    with np.errstate(over="ignore"):
        squares = np.einsum("ij,ij->i", vectors, vectors)
    lengths = np.asarray(np.sqrt(squares))
    if len(beyond := np.flatnonzero(np.isinf(squares))):
        exact = np.linalg.norm(vectors[beyond].astype(np.float64), axis=1)
        lengths[beyond] = np.minimum(exact, np.finfo(np.float32).max)
    return lengths


@dataclasses.dataclass(frozen=True)
class RowBlock:
    """Rows of a `Texts`, which may belong to several datasets.

    Attributes:
        start: the index of the first row in the `Texts`.
        parts: the rows, as pairs of the index of a dataset and a batch of this dataset.
        taken: the indices of the rows in the `Texts`; None if they are consecutive.
        _known: results that are computed only once: name -> array.
    """

    start: int
    parts: Sequence[tuple[int, pa.RecordBatch]]
    taken: np.ndarray | None = None
    _known: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)

    @property
    def num_rows(self) -> int:
        return sum(batch.num_rows for _, batch in self.parts)

    @property
    def rows(self) -> np.ndarray:
        """The indices of the rows in the `Texts`, (rows,) int64."""
        return np.arange(self.start, self.start + self.num_rows) if self.taken is None else self.taken

    @property
    def ids(self) -> np.ndarray:
        """The ids of the rows, (rows,) int64; for a chunk, the id of its document."""
        names = [(batch, DOCUMENT if DOCUMENT in batch.schema.names else "id") for _, batch in self.parts]
        return np.concatenate([batch.column(name).to_numpy() for batch, name in names])

    def vectors(self) -> np.ndarray:
        """Return the vectors of the rows, (rows, dim) float32."""
        decoded = [vectors.decoded(batch) for _, batch in self.parts]
        return decoded[0] if len(decoded) == 1 else np.concatenate(decoded)

    def lengths(self, vectors: np.ndarray | None = None) -> np.ndarray:
        """Return the Euclidean lengths of the rows' vectors, (rows,) float32. Later calls return the same array.

        Args:
            vectors: the vectors of the rows, (rows, dim), if the caller has them; None to decode them here.
        """
        if "lengths" not in self._known:
            rows = self.vectors() if vectors is None else vectors
            self._known["lengths"] = lengths_of(rows)
        return self._known["lengths"]

    def mask(self, condition: Condition) -> np.ndarray:
        """Return a mask of the rows that fulfill a condition, (rows,) bool."""
        return np.concatenate([condition(batch) for _, batch in self.parts])

    def joined(self) -> "RowBlock":
        """Return the same rows as a block in which consecutive batches of a dataset are joined into one batch."""
        parts = []
        for number, group in itertools.groupby(self.parts, key=operator.itemgetter(0)):
            batches = [batch for _, batch in group]
            parts.append((number, pa.Table.from_batches(batches).combine_chunks().to_batches()[0]))
        return RowBlock(self.start, parts)

    def places(self, file_numbers: dict[tuple[int, str], int]) -> np.ndarray:
        """Return two numbers for each row, (rows, 2) int64, which together with the id identify the row's document.

        Different documents may have the same id. The two numbers of a chunk are the number of its input file and the
        number of its record in this file; all chunks of a document have the same. If the row's dataset has no chunks,
        the numbers are -1 and the index of the row.

        Args:
            file_numbers: (index of a dataset, path of an input file) -> number of the file. Files that are not in the
                dict are added to it, so the caller passes the same dict for all blocks of a search.
        """
        made = []
        ends = np.cumsum([batch.num_rows for _, batch in self.parts])
        for (number, batch), rows in zip(self.parts, np.split(self.rows, ends[:-1]), strict=True):
            if DOCUMENT not in batch.schema.names:
                made.append(np.stack([np.full(batch.num_rows, -1), rows], axis=1))
                continue
            sources = batch.column("source").dictionary_encode()
            known = [
                file_numbers.setdefault((number, source), len(file_numbers))
                for source in sources.dictionary.to_pylist()
            ]
            of_rows = np.array(known, np.int64)[sources.indices.to_numpy()]
            made.append(np.stack([of_rows, batch.column("record").to_numpy()], axis=1))
        return np.concatenate(made)


class Texts:
    """The rows of one or several datasets of vectors, as one sequence.

    Args:
        keep: if true, the rows stay in memory after they are read once, if they take at most half of the machine's
            memory.
        quiet: if true, no progress bars are shown.

    Attributes:
        datasets: the datasets of vectors.
        folders: for each dataset, the folder of its collection, which is shown with its hits.
        id_fields: for each dataset, the name of the stored field with the user's own ids; None if it has no such field.
        num_rows: the number of rows of all datasets.
        is_chunked: whether rows are chunks of documents in at least one dataset.
        quiet: whether no progress bars are shown.
    """

    def __init__(
        self,
        datasets: Sequence[Dataset],
        folders: Sequence[str],
        id_fields: Sequence[str | None],
        keep: bool,
        quiet: bool,
    ) -> None:
        self.datasets = datasets
        self.folders = folders
        self.id_fields = id_fields
        self.quiet = quiet
        self.num_rows = sum(dataset.num_examples for dataset in datasets)
        self.is_chunked = any(options_of(dataset).get("chunk_tokens") for dataset in datasets)
        self._keeps = keep and self.num_bytes <= _memory_bytes() // 2
        self._kept: list[RowBlock] | None = None

    @property
    def num_bytes(self) -> int:
        """The size of all shards of the datasets in bytes."""
        return sum(shard.bytes for dataset in self.datasets for shard in dataset.shards)

    def batches(self, work: str) -> Iterator[tuple[int, int, pa.RecordBatch]]:
        """Yield all rows in batches, as (index of the batch's first row, index of the dataset, batch).

        Args:
            work: the label of the progress bar.

        Raises:
            PipelineError: a dataset was replaced after it was opened.
            ShardError: a shard is damaged for any other reason.
        """
        for block in self.blocks(work):
            start = block.start
            for number, batch in block.parts:
                yield start, number, batch
                start += batch.num_rows

    def blocks(self, work: str) -> Iterator[RowBlock]:
        """Yield all rows in blocks.

        The first block has at most 512 rows, and each block has at most twice as many rows as the block before it. No
        block has more than 65,536 rows (MAX_ROWS); its vectors take about 64 MiB (BLOCK_BYTES) at most.

        Args:
            work: the label of the progress bar.

        Raises:
            PipelineError: a dataset was replaced after it was opened.
            ShardError: a shard is damaged for any other reason.
        """
        if self._kept is not None:
            yield from self._kept
            return
        kept = []
        with ProgressBar(self.num_rows, work, self.quiet, unit="text") as bar:
            for block in self._read():
                if self._keeps:
                    block = block.joined()
                    kept.append(block)
                yield block
                bar.update(block.num_rows)
        if self._keeps:
            self._kept = kept

    def sample(self) -> list[str]:
        """Return a sample of the texts, spread evenly over all rows, in one pass; [] if the datasets store no texts.

        Raises:
            PipelineError: a dataset was replaced after it was opened.
            ShardError: a shard is damaged.
        """
        found: list[str] = []
        chosen = np.array(spread_rows(self.num_rows), np.int64)
        for start, _, batch in self.batches("reading a sample of the texts"):
            if "text" in batch.schema.names:
                rows = chosen[(chosen >= start) & (chosen < start + batch.num_rows)] - start
                found += batch.column("text").take(pa.array(rows)).to_pylist()
        return found

    def _read(self) -> Iterator[RowBlock]:
        size = FIRST_ROWS
        start = 0
        num_rows = 0
        parts: list[tuple[int, pa.RecordBatch]] = []
        numbered = ((number, batch) for number, dataset in enumerate(self.datasets) for batch in dataset)
        for number, batch in read_ahead(self._as_opened(numbered)):
            width = 4 * batch.schema.field("vector").type.list_size
            most = max(FIRST_ROWS, min(MAX_ROWS, BLOCK_BYTES // width))
            place = 0
            while place < batch.num_rows:
                parts.append((number, batch.slice(place, size - num_rows)))
                place += parts[-1][1].num_rows
                num_rows += parts[-1][1].num_rows
                if num_rows == size:
                    yield RowBlock(start, parts)
                    start = start + num_rows
                    size = min(most, 2 * size)
                    parts = []
                    num_rows = 0
        if parts:
            yield RowBlock(start, parts)

    def _as_opened(self, items: Iterator[Item]) -> Iterator[Item]:
        """Yield the items of an iterator that reads shards.

        If the iterator raises ShardError, find out whether a dataset was replaced while it was being read.

        Raises:
            PipelineError: a dataset was replaced after it was opened, so that its shards have changed.
            ShardError: a shard is damaged for any other reason.
        """
        try:
            yield from items
        except ShardError:
            for dataset, folder in zip(self.datasets, self.folders, strict=True):
                if Dataset(dataset.folder).shards != dataset.shards:
                    problem = "was updated or made anew after it was opened"
                    raise PipelineError(
                        f"{folder}: {problem}: open the collection again, or restart the command"
                    ) from None
            raise

    def take(self, rows: Sequence[int] | np.ndarray) -> Iterator[RowBlock]:
        """Yield some of the rows, in blocks. Each shard is read at most once.

        Args:
            rows: ascending indices of rows.

        Raises:
            PipelineError: a dataset was replaced after it was opened.
            ShardError: a shard is damaged for any other reason.
        """
        for start, number, batch, wanted in self._holding(np.asarray(rows).tolist()):
            taken = np.array(wanted)
            yield RowBlock(start, [(number, batch.take(pa.array(taken - start)))], taken)

    def hits(self, found: Sequence[tuple[Sequence[int], Sequence[float]]]) -> list[list[Hit]]:
        """Read the rows that queries found, and return the hits of each query. Each shard is read at most once.

        Args:
            found: for each query, the indices of its rows, and their scores, in the order of the hits.

        Raises:
            PipelineError: a dataset was replaced after it was opened.
            ShardError: a shard is damaged for any other reason.
        """
        known: dict[int, Hit] = {}
        for start, number, batch, wanted in self._holding(sorted({row for rows, _ in found for row in rows})):
            where = (self.folders[number], self.id_fields[number])
            known |= {row: hit_of(batch, row - start, 0.0, *where) for row in wanted}
        return [
            [dataclasses.replace(known[row], score=score) for row, score in zip(rows, scores, strict=True)]
            for rows, scores in found
        ]

    def _holding(self, rows: Sequence[int]) -> Iterator[tuple[int, int, pa.RecordBatch, Sequence[int]]]:
        """Yield each batch that holds at least one of the rows `rows`, in order.

        Args:
            rows: ascending indices of rows.

        Yields:
            (index of the batch's first row, index of its dataset, batch, those of `rows` that are in the batch).
        """

        def between(start: int, end: int) -> Sequence[int]:
            return rows[bisect.bisect_left(rows, start) : bisect.bisect_left(rows, end)]

        def batches() -> Iterator[tuple[int, int, pa.RecordBatch]]:
            start = 0
            for number, dataset in enumerate(self.datasets):
                for shard in dataset.shards:
                    end = start + shard.examples
                    for batch in dataset.batches(shard) if between(start, end) else ():
                        yield start, number, batch
                        start += batch.num_rows
                    start = end

        kept = self._kept is not None or self._keeps
        work = f"reading {self.num_rows:,} texts"
        for start, number, batch in self.batches(work) if kept else self._as_opened(batches()):
            if wanted := between(start, start + batch.num_rows):
                yield start, number, batch, wanted


def read_ahead(items: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the items of an iterator; a thread computes the next item while the caller uses the current one."""
    with ThreadPoolExecutor(1, thread_name_prefix="read") as thread:
        later = thread.submit(next, items, None)
        while (item := later.result()) is not None:
            later = thread.submit(next, items, None)
            yield item


def options_of(dataset: Dataset) -> Mapping[str, Any]:
    """Return the options with which a dataset was made, name -> value."""
    options: Mapping[str, Any] = dataset.manifest.fingerprint.get("options", {})
    return options


@functools.cache
def _memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
