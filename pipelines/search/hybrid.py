"""Hybrid search: the scores of a model and of BM25 over the kept texts, each with mean 0 and deviation 1 for a query.

    score of a text = w z(similarity of the vectors) + (1 - w) z(BM25)

Of equal scores, the higher id is first, as in `nearest`. The BM25 index is built once (`search.index`) and mapped into
memory; building it holds the numbers of all words. A search is exact: it scores every text for a block of queries,
and memory holds these scores.
"""

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np

from clearspan.common.progress import Bar
from clearspan.common.ranking import BM25, first, rounded, scale_and_shift
from clearspan.common.terminal import one_line
from clearspan.common.words import VERSION as WORDS
from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.search.index import index_of
from clearspan.pipelines.search.nearest import Hit, Similarity, contents_of
from clearspan.shards import vectors
from clearspan.shards.reader import Dataset

VERSION = 1
"""Version of how the index is built, increased whenever that changes."""
TOGETHER = 1 << 25
"""Number of scores of a block of queries: 128 MB, three times."""


def search(
    dataset: Dataset,
    similarity: Similarity,
    queries: np.ndarray,
    texts: Sequence[str],
    weight: float,
    top: int,
    quiet: bool = False,
) -> list[list[Hit]]:
    """Return the `top` texts of a dataset with the highest hybrid scores for each query, best first.

    Args:
        queries: the vectors of the queries, (n, dim).
        texts: the queries, n.
        weight: w, from 0 (BM25 alone) to 1 (the similarity alone).

    Raises:
        PipelineError: the dataset keeps no texts, or they hold no word.
        ShardError: a shard is damaged.
    """
    built_by: dict[str, str | int] = {"version": VERSION, "words": WORDS}
    built_by |= {name: version(name) for name in ("bm25s", "regex")}
    size = max(1, TOGETHER // dataset.num_examples)
    found: list[list[tuple[int, float]]] = []
    with (
        index_of(dataset, "bm25", built_by, lambda path: _write(dataset, path, quiet)) as path,
        Bar(dataset.num_examples * -(-len(texts) // size), "searching", quiet, unit="vector") as bar,
    ):
        words = _Words(path)
        for start in range(0, len(texts), size):
            scores = words.scores(texts[start : start + size], dataset.num_examples)
            _scale(scores, 1 - weight)
            dense, ids, seen = np.empty_like(scores), np.empty(dataset.num_examples, np.int64), 0
            for batch in dataset:
                products = similarity(queries[start : start + size], vectors.decoded(batch))
                dense[:, seen : seen + batch.num_rows] = products
                ids[seen : seen + batch.num_rows] = batch.column("id").to_numpy()
                seen += batch.num_rows
                bar.update(batch.num_rows)
            _scale(dense, weight)
            scores += dense
            for row in scores:
                best = first(row, top, ids)
                found.append(list(zip(best.tolist(), rounded(row[best]).tolist(), strict=True)))
    known = contents_of(dataset, {row for of_query in found for row, _ in of_query})
    return [[Hit(score, *known[row]) for row, score in of_query] for of_query in found]


def _scale(scores: np.ndarray, weight: float) -> None:
    """Give the scores of each query, (n, rows), mean 0 and deviation `weight`, in place."""
    scale, shift = scale_and_shift(scores, weight)
    scores *= scale[:, None]
    scores += shift[:, None]


class _Words:
    """The BM25 index in a file, mapped into memory."""

    def __init__(self, path: Path) -> None:
        from safetensors import safe_open

        self._file: Any = cast(Any, safe_open(str(path), "np"))
        words = self._file.get_tensor("words").tobytes().decode().split("\n")
        self._number = {word: number for number, word in enumerate(words)}
        self._ends = self._file.get_tensor("ends")

    def scores(self, texts: Sequence[str], num_rows: int) -> np.ndarray:
        """Return the scores of a dataset's rows for each query, (len(texts), num_rows) float32."""
        counts = BM25.counts(texts, self._number)
        scores = np.zeros((len(texts), num_rows), np.float32)
        weights, rows = (self._file.get_slice(name) for name in ("weights", "rows"))
        for query in range(len(texts)):
            of_query = slice(counts.indptr[query], counts.indptr[query + 1])
            for word, count in zip(counts.indices[of_query], counts.data[of_query], strict=True):
                start, end = self._ends[word : word + 2].tolist()
                scores[query, rows[start:end]] += np.float32(count) * weights[start:end]
        return scores


def _write(dataset: Dataset, path: Path, quiet: bool) -> None:
    """Write the index of a dataset's texts to a file."""
    from safetensors import SafetensorError
    from safetensors.numpy import save_file

    with Bar(dataset.num_examples, f"indexing {dataset.num_examples:,} texts", quiet, unit="text") as bar:
        index = BM25.of(_texts(dataset, bar), "float32")
    if not index.vocabulary:
        raise PipelineError(f"{dataset.folder}: its texts hold no word of two letters: leave out --hybrid")
    words = np.frombuffer("\n".join(index.vocabulary).encode(), np.uint8)
    weights = index.weights
    arrays = {"words": words, "weights": weights.data, "rows": weights.indices.astype(np.int32)}
    try:
        save_file({**arrays, "ends": weights.indptr.astype(np.int64)}, path)
    except SafetensorError as error:
        raise PipelineError(f"{path}: the index cannot be written (is the disk full?): {one_line(error)}") from None


def _texts(dataset: Dataset, bar: Bar) -> Iterator[str]:
    for batch in dataset:
        if "text" not in batch.schema.names:
            raise PipelineError(f"{dataset.folder}: keeps no texts for --hybrid: run embed with --keep-text")
        yield from batch.column("text").to_pylist()
        bar.update(batch.num_rows)
