"""Exact search: the vectors of a dataset that are nearest to queries, streamed shard by shard.

    batch of a shard -> similarity with every query (n, rows) -> rows better than the worst hit -> the best hits so far

Memory holds one batch and the hits. Of equal scores, the vector with the higher id is first, as in trec_eval, so that
the order in which a dataset was made decides nothing.
"""

import dataclasses
import itertools
from collections.abc import Callable, Collection

import numpy as np
import pyarrow as pa

from clearspan.common.progress import Bar
from clearspan.common.ranking import DECIMALS, first, rounded
from clearspan.shards import vectors
from clearspan.shards.reader import Dataset

TOGETHER = 1024
"""Number of queries that are compared with a batch at once."""

Similarity = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Function of queries (n, dim) and vectors (rows, dim), float32, that returns scores (n, rows); higher is nearer."""


@dataclasses.dataclass(frozen=True)
class Hit:
    """A vector near a query. `text` is None if the dataset does not keep the texts."""

    score: float
    id: int
    source: str
    text: str | None = None


class Best:
    """The best hits of n queries among the batches added so far, `top` for each."""

    def __init__(self, num_queries: int, top: int) -> None:
        self.top = top
        self._hits: list[list[tuple[float, int, int, Hit]]] = [[] for _ in range(num_queries)]
        self._worst = np.full(num_queries, -np.inf, np.float32)
        self._seen = 0

    def add(self, scores: np.ndarray, batch: pa.RecordBatch) -> None:
        """Add the rows of a batch, whose scores are (n, rows) float32."""
        ids = batch.column("id").to_numpy()
        may_rank = scores >= self._worst[:, None]
        for query in np.flatnonzero(may_rank.any(axis=1)):
            rows = np.flatnonzero(may_rank[query])
            rows = rows[first(scores[query, rows], self.top, ids[rows])]
            hits = self._hits[query]
            for row, score in zip(rows.tolist(), rounded(scores[query, rows]).tolist(), strict=True):
                hit = Hit(score, *contents(batch, row))
                hits.append((-score, -hit.id, self._seen + row, hit))
            hits.sort(key=lambda hit: hit[:3])
            del hits[self.top :]
            if len(hits) == self.top:
                self._worst[query] = -hits[-1][0] - 10.0**-DECIMALS
        self._seen += batch.num_rows

    @property
    def hits(self) -> list[list[Hit]]:
        """The hits of each query, best first."""
        return [[hit for *_, hit in hits] for hits in self._hits]


def contents(batch: pa.RecordBatch, row: int) -> tuple[int, str, str | None]:
    """Return the id, the source and, if the dataset keeps it, the text of a row."""
    text = batch.column("text")[row].as_py() if "text" in batch.schema.names else None
    return batch.column("id")[row].as_py(), batch.column("source")[row].as_py(), text


def contents_of(dataset: Dataset, rows: Collection[int]) -> dict[int, tuple[int, str, str | None]]:
    """Return the id, source and text of rows, given by their numbers in the dataset."""
    known, ends = {}, list(itertools.accumulate(shard.examples for shard in dataset.shards))
    for shard, end in zip(dataset.shards, ends, strict=True):
        start = end - shard.examples
        wanted = [row for row in rows if start <= row < end]
        for batch in dataset.batches(shard) if wanted else ():
            for row in wanted:
                if start <= row < start + batch.num_rows:
                    known[row] = contents(batch, row - start)
            start += batch.num_rows
    return known


def search(
    dataset: Dataset, similarity: Similarity, queries: np.ndarray, top: int, quiet: bool = False
) -> list[list[Hit]]:
    """Return the `top` nearest vectors of a dataset to each query (n, dim), best first.

    Raises:
        ShardError: a shard is damaged.
    """
    blocks = [queries[first : first + TOGETHER] for first in range(0, len(queries), TOGETHER)]
    best = [Best(len(block), top) for block in blocks]
    with Bar(dataset.num_examples, f"searching {dataset.num_examples:,} vectors", quiet, unit="vector") as bar:
        for batch in dataset:
            others = vectors.decoded(batch)
            for block, found in zip(blocks, best, strict=True):
                found.add(similarity(block, others), batch)
            bar.update(batch.num_rows)
    return [hits for found in best for hits in found.hits]
