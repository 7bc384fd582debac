"""BM25 for the texts of datasets: an index of their words, which is built once, and the scores of blocks of rows.

    texts -> words -> index: for each word, the rows that hold it, and its weights in them -> file in the cache
    words of a query -> their rows and weights in a block of rows -> sum of the weights for each row: its score

The file of the index is mapped into memory. For a frequent word, a block of rows has a weight for every row, because
this is faster to add than the weights of some rows. While the index is built, memory holds the ids of all words of all
texts.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from clearspan.common.errors import PipelineError
from clearspan.retrieval.hybrid import Moments
from clearspan.retrieval.index import index_of, save
from clearspan.retrieval.ranking import BM25
from clearspan.retrieval.stemming import WordFunction
from clearspan.retrieval.texts import MAX_ROWS, Texts, options_of
from clearspan.shards.schema import FIELD

VERSION = 2
"""Version of the method by which the index is built, increased whenever the method changes."""
FREQUENT = 16
"""A word is frequent in a block if more than one in this many rows hold it."""


class Index:
    """The BM25 index of texts, mapped into memory. Create it with `Index.of`."""

    def __init__(self, path: Path, words: WordFunction, num_rows: int) -> None:
        from safetensors import safe_open

        self._file: Any = cast(Any, safe_open(str(path), "np"))
        self._number = {word: n for n, word in enumerate(self._file.get_tensor("words").tobytes().decode().split("\n"))}
        self._ends: NDArray[np.int64] = self._file.get_tensor("ends")
        self._words = words
        self._num_rows = num_rows

    @classmethod
    def of(cls, texts: Texts, words: WordFunction) -> "Index":
        """Open the BM25 index of `texts` from the cache; if the cache does not hold it, build it.

        Args:
            words: function that splits a text into the words that are compared.

        Raises:
            PipelineError: a dataset does not store its texts, or no text holds a word.
            ShardError: a shard is damaged.
        """
        built_by: dict[str, str | int] = {"version": VERSION, **words.key, "bm25s": version("bm25s")}
        with index_of(texts.datasets, "bm25", built_by, lambda path: _write(texts, words, path)) as path:
            return cls(path, words, texts.num_rows)

    def scores(self, queries: Sequence[str]) -> "Scores":
        """Return an object that computes the BM25 scores of all rows for these queries, one block of rows at a time."""
        counts = BM25.counts(queries, self._number, self._words)
        weights, rows = (self._file.get_slice(name) for name in ("weights", "rows"))
        lists = {}
        for word in np.unique(counts.indices).tolist():
            start, end = self._ends[word : word + 2].tolist()
            lists[word] = (rows[start:end], weights[start:end])
        bounds = counts.indptr.tolist()
        found = zip(counts.indices.tolist(), counts.data.tolist(), strict=True)
        of_all = list(found)
        return Scores([of_all[start:end] for start, end in itertools.pairwise(bounds)], lists, self._num_rows)


class Scores:
    """Computes the BM25 scores of all rows for n queries, one block of rows at a time.

    Args:
        words: for each query, pairs of the id of a word and the number of times that the query holds the word.
        lists: id of a word -> the ascending indices of the rows that hold the word, and its weights in these rows.
        num_rows: the number of all rows.

    Attributes:
        means: for each query, the mean of its scores over all rows, (n,) float64.
    """

    def __init__(
        self,
        words: Sequence[Sequence[tuple[int, float]]],
        lists: dict[int, tuple[NDArray[np.int32], NDArray[np.float32]]],
        num_rows: int,
    ) -> None:
        self._words = words
        self._lists = lists
        self._num_rows = num_rows
        sums = {word: weights.sum(dtype=np.float64) for word, (_, weights) in lists.items()}
        self.means = np.array([sum(count * sums[word] for word, count in of_query) for of_query in words]) / num_rows

    def block(self, start: int, end: int) -> "BlockScores":
        """Return the scores of all queries for the rows from `start` to `end` - 1."""
        parts: dict[int, tuple[NDArray[np.intp] | None, NDArray[np.float32]]] = {}
        for word, (rows, weights) in self._lists.items():
            first, last = np.searchsorted(rows, (start, end)).tolist()
            if first == last:
                continue
            at = rows[first:last].astype(np.intp) - start
            part = weights[first:last]
            if (last - first) * FREQUENT > end - start:
                everywhere = np.zeros(end - start, np.float32)
                everywhere[at] = part
                parts[word] = (None, everywhere)
            else:
                parts[word] = (at, part)
        return BlockScores(self._words, parts)

    def deviations(self) -> NDArray[np.float64]:
        """Return the standard deviation of each query's BM25 scores over all rows, (n,)."""
        sums = np.zeros(len(self._words))
        for start in range(0, self._num_rows, MAX_ROWS):
            end = min(start + MAX_ROWS, self._num_rows)
            block = self.block(start, end)
            scores = np.empty((1, end - start), np.float32)
            for query, mean in enumerate(self.means):
                scores[:] = -mean  # without this, sums of squares would lose their precision
                block.add(scores, slice(query, query + 1), np.ones(1))
                sums[query] += float(scores[0] @ scores[0])
        return np.asarray(np.sqrt(sums / self._num_rows))

    def moments(self) -> Moments:
        """Return the moments of each query's BM25 scores over all rows."""
        return Moments(self.means, self.deviations(), np.abs(self.means))


class BlockScores:
    """BM25 scores of a block of rows for some queries.

    Args:
        words: for each query, pairs of the id of a word and the number of times that the query holds the word.
        parts: id of a word -> the rows that hold the word, as indices in the block, and its weights in these rows. If
            the indices are None, there is a weight for each row of the block.
    """

    def __init__(
        self,
        words: Sequence[Sequence[tuple[int, float]]],
        parts: Mapping[int, tuple[NDArray[np.intp] | None, NDArray[np.float32]]],
    ) -> None:
        self._words = words
        self._parts = parts

    def add(self, scores: NDArray[np.float32], queries: slice, scales: NDArray[np.float64]) -> None:
        """Add the BM25 scores for n of the queries to an array, in place.

        Args:
            scores: the array, (n, rows of the block) float32.
            queries: the slice of all queries that selects these n.
            scales: for each of the n queries, the number by which its BM25 scores are multiplied, (n,).
        """
        for row, scale, of_query in zip(scores, scales.tolist(), self._words[queries], strict=True):
            for word, count in of_query:
                if (part := self._parts.get(word)) is None:
                    continue
                rows, weights = part
                factor = np.float32(scale * count)
                added = weights if factor == 1 else weights * factor
                if rows is None:
                    row += added
                else:
                    row[rows] += added


def _write(texts: Texts, words: WordFunction, path: Path) -> None:
    """Write the BM25 index of texts to a file.

    Args:
        words: function that splits a text into the words that are compared.

    Raises:
        PipelineError: a dataset does not store its texts, or no text holds a word.
    """
    index = BM25.of(_texts(texts), "float32", words)
    if not index.vocabulary:
        raise PipelineError(f"{texts.datasets[0].folder}: its texts hold no letter and no digit: search without BM25")
    numbers = np.frombuffer("\n".join(index.vocabulary).encode(), np.uint8)
    weights = index.weights
    weights.sort_indices()
    arrays = {"words": numbers, "weights": weights.data, "rows": weights.indices.astype(np.int32)}
    save(path, {**arrays, "ends": weights.indptr.astype(np.int64)})


def _texts(texts: Texts) -> Iterator[str]:
    for _, number, batch in texts.batches(f"indexing {texts.num_rows:,} texts"):
        if "text" not in batch.schema.names:
            folder = texts.datasets[number].folder
            raise PipelineError(f"{folder}: stores no texts, which BM25 needs: run embed again with `keep_text`")
        title = FIELD + str(options_of(texts.datasets[number]).get("title_field"))
        found = batch.column("text").to_pylist()
        if title in batch.schema.names:  # the title stands before the text, as in embedding
            titles = batch.column(title).to_pylist()
            found = [f"{first} {text}" if first else text for first, text in zip(titles, found, strict=True)]
        yield from found
