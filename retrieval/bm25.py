"""BM25 over a collection of texts: an index of their words, and the scores of the texts for queries.

    texts -> words (`retrieval.stemming`) -> for each word, the texts that hold it, and how often: `WordCounts`
    counts -> by k1 and b (`retrieval.scoring`), the weight of each word in each text: `BM25`
    query -> its words, and how often it holds each -> sum of count x weight, for a block of texts: `Scores`

Search, mining and evaluation score by this module alone, by Lucene's variant of BM25, as `bm25s` names it; the weights
equal those of `bm25s` to the last digit. The index is in memory, or for a collection of vectors in a file of the cache,
in the format of safetensors, which is mapped into memory. While an index is built, memory holds a number for each word
of all texts.
"""

import dataclasses
import functools
import math
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from clearspan.common.errors import PipelineError
from clearspan.retrieval.index_cache import index_of, save
from clearspan.retrieval.scoring import DEFAULT, Scoring
from clearspan.retrieval.stemming import PLAIN, WordFunction
from clearspan.retrieval.texts import MAX_ROWS, Texts, options_of
from clearspan.retrieval.topk import Indices
from clearspan.shards.schema import FIELD

if TYPE_CHECKING:  # takes a second to import
    from scipy.sparse import csr_array

VERSION = 3
"""Version of the method by which the index is built, increased whenever the method changes."""
FREQUENT = 16
"""A word is frequent in a block if more than one in this many rows hold it."""
Weights = NDArray[np.floating]
Counts = Sequence[tuple[int, float]]
"""The words of a query: pairs of the number of a word, ascending, and how often the query holds it."""


@dataclasses.dataclass(frozen=True)
class WordCounts:
    """The words of n texts, from which the weights of BM25 follow for any k1 and b. Create it with `WordCounts.of`.

    Attributes:
        vocabulary, ends, rows, words: as in `BM25`.
        counts: how often the text holds the word, in the order of `rows`, float32.
        lengths: the number of words of each text, (n,) int64.
    """

    vocabulary: Mapping[str, int]
    ends: NDArray[np.int64]
    rows: NDArray[np.int32]
    counts: NDArray[np.float32]
    lengths: NDArray[np.int64]
    words: WordFunction = PLAIN

    @classmethod
    def of(cls, texts: Iterable[str], words: WordFunction = PLAIN) -> Self:
        from scipy.sparse import csr_array

        numbers: dict[str, int] = {}
        of_texts, ends = array("i"), array("q", [0])
        for text in texts:
            of_texts.extend([numbers.setdefault(word, len(numbers)) for word in words(text)])
            ends.append(len(of_texts))
        all_words, all_ends = np.frombuffer(of_texts, np.int32), np.frombuffer(ends, np.int64)
        ones = np.ones(len(all_words), np.float32)
        counts = csr_array((ones, all_words, all_ends), shape=(len(ends) - 1, len(numbers))).tocsc()
        counts.sum_duplicates()
        of_words = counts.indptr.astype(np.int64), counts.indices.astype(np.int32), counts.data
        return cls(numbers, *of_words, np.diff(all_ends), words)

    def weighted(self, k1: float, b: float, dtype: str = "float64") -> "BM25":
        """Return the BM25 index of the texts; its arrays but the weights are these, not copies.

        Args:
            k1, b: the parameters of the weights, as in `Scoring`.
            dtype: the dtype in which the weights are computed and kept.
        """
        num_texts, numbers = len(self.lengths), np.diff(self.ends)
        idf = [math.log(1 + (num_texts - number + 0.5) / (number + 0.5)) for number in numbers.tolist()]
        mean = self.lengths.mean() if self.vocabulary else 1.0
        of_lengths = k1 * ((1 - b) + b * self.lengths / mean)
        counts = self.counts.astype(dtype)
        weights = np.repeat(np.array(idf, dtype), numbers) * (counts / (of_lengths[self.rows] + counts))
        return BM25(self.vocabulary, self.ends, self.rows, weights.astype(dtype), num_texts, self.words)


@dataclasses.dataclass(frozen=True)
class BM25:
    """The BM25 index of n texts. Create it with `BM25.of`, or with `BM25.of_collection`.

    Attributes:
        vocabulary: word -> the number of the word, from 0.
        ends: the weights of the word w are those from ends[w] to ends[w + 1] - 1, (number of words + 1,) int64.
        rows: for each weight, the index of the text that it belongs to, ascending for each word, int32: an array, or a
            slice of a file that is mapped into memory.
        weights: the weights of all words, one word after another, of the same form as `rows`.
        num_texts: n.
        words: function that splits a text into the words that are compared.
    """

    vocabulary: Mapping[str, int]
    ends: NDArray[np.int64]
    rows: Any
    weights: Any
    num_texts: int
    words: WordFunction = PLAIN

    @classmethod
    def of(cls, texts: Iterable[str], scoring: Scoring = DEFAULT, dtype: str = "float64") -> "BM25":
        """Create an index in memory.

        Args:
            dtype: the dtype in which the weights are computed and kept.
        """
        return WordCounts.of(texts, scoring.words).weighted(scoring.k1, scoring.b, dtype)

    @classmethod
    def of_collection(cls, texts: Texts, scoring: Scoring) -> Self:
        """Open the index of a collection from the cache; if the cache does not hold it, build it.

        Raises:
            PipelineError: a dataset does not store its texts, or no text holds a word.
            ShardError: a shard is damaged.
        """
        from safetensors import safe_open

        built_by = {"version": VERSION, **scoring.key}
        with index_of(texts.datasets, "bm25", built_by, lambda path: _write(texts, scoring, path)) as path:
            file: Any = cast(Any, safe_open(str(path), "np"))
        numbers = {word: n for n, word in enumerate(file.get_tensor("words").tobytes().decode().split("\n"))}
        rows, weights = (file.get_slice(name) for name in ("rows", "weights"))
        return cls(numbers, file.get_tensor("ends"), rows, weights, texts.num_rows, scoring.words)

    @property
    def shape(self) -> tuple[int, int]:
        """The number of texts, and the number of words."""
        return self.num_texts, len(self.vocabulary)

    @functools.cached_property
    def by_text(self) -> "csr_array":
        """The weight of each word in each text, (n, number of words)."""
        from scipy.sparse import csc_array

        return csc_array((self.weights[:], self.rows[:], self.ends), shape=self.shape).tocsr()

    def astype(self, dtype: DTypeLike) -> Self:
        """Return an index in memory with its weights rounded to another dtype."""
        return dataclasses.replace(self, weights=self.weights.astype(dtype))

    def scores(self, queries: Iterable[str], dtype: DTypeLike = np.float64) -> "Scores":
        """Return an object that computes the scores of the texts for these queries, whose other words are ignored.

        Args:
            dtype: the dtype in which the scores of all texts are summed.
        """
        known = ([self.vocabulary[word] for word in self.words(text) if word in self.vocabulary] for text in queries)
        counts = [[(word, float(count)) for word, count in sorted(Counter(each).items())] for each in known]
        return Scores(self, counts, dtype)

    def of_word(self, word: int) -> tuple[NDArray[np.int32], Weights]:
        """Return the ascending indices of the texts that hold a word, and its weights in them.

        Args:
            word: the number of the word.
        """
        start, end = self.ends[word : word + 2].tolist()
        return self.rows[start:end], self.weights[start:end]


class Scores:
    """The BM25 scores of n texts for m queries: of a block of texts, of all, or of some pairs.

    A score is the sum of count x weight over the words of the query, in the order of their numbers.

    Args:
        index: the index of the texts.
        counts: the words of each query.
        dtype: the dtype in which the scores of all texts are summed.
    """

    def __init__(self, index: BM25, counts: Sequence[Counts], dtype: DTypeLike = np.float64) -> None:
        self.index = index
        self.counts = counts
        self.dtype = dtype

    @property
    def shape(self) -> tuple[int, int]:
        """The number of queries, and the number of texts."""
        return len(self.counts), self.index.num_texts

    def __getitem__(self, queries: "slice | NDArray[np.integer]") -> "Scores":
        """Return the scores for some of the queries."""
        chosen = range(len(self.counts))[queries] if isinstance(queries, slice) else queries.tolist()
        return Scores(self.index, [self.counts[query] for query in chosen], self.dtype)

    def times(self, scales: NDArray[np.float64]) -> "Scores":
        """Return the scores multiplied by a number for each query, (m,), in float64."""
        pairs = zip(self.counts, scales.tolist(), strict=True)
        return Scores(self.index, [[(word, scale * count) for word, count in each] for each, scale in pairs])

    @functools.cached_property
    def _lists(self) -> dict[int, tuple[NDArray[np.int32], Weights]]:
        words = sorted({word for each in self.counts for word, _ in each})
        return {word: self.index.of_word(word) for word in words}

    def block(self, start: int, end: int) -> "BlockScores":
        """Return the scores of the texts from `start` to `end` - 1."""
        parts: dict[int, tuple[NDArray[np.intp] | None, Weights]] = {}
        for word, (rows, weights) in self._lists.items():
            first, last = np.searchsorted(rows, (start, end)).tolist()
            if first == last:
                continue
            at = rows[first:last].astype(np.intp) - start
            part = weights[first:last]
            if (last - first) * FREQUENT > end - start:
                everywhere = np.zeros(end - start, part.dtype)
                everywhere[at] = part
                parts[word] = (None, everywhere)
            else:
                parts[word] = (at, part)
        return BlockScores(self.counts, parts)

    def array(self) -> NDArray[Any]:
        """Return the scores of all texts, (m, n)."""
        scores = np.zeros(self.shape, self.dtype)
        for start in range(0, self.index.num_texts, MAX_ROWS):
            end = min(start + MAX_ROWS, self.index.num_texts)
            self.block(start, end).add(scores[:, start:end], slice(None), np.ones(len(self.counts)))
        return scores

    def of_pairs(self, queries: Indices, texts: Indices) -> NDArray[np.float64]:
        """Return the scores of p pairs of a query and a text, (p,).

        Args:
            queries, texts: the index of the query, and the index of the text, of each pair, (p,).
        """
        from scipy.sparse import csr_array

        pairs = [pair for each in self.counts for pair in each]
        words, counts = np.array([word for word, _ in pairs], np.int64), np.array([count for _, count in pairs])
        ends = np.cumsum([0, *map(len, self.counts)])
        of_queries = csr_array((counts, words, ends), shape=(len(self.counts), len(self.index.vocabulary)))
        products = (of_queries[queries] * self.index.by_text[texts]).tocoo()
        sums = np.bincount(products.coords[0], products.data, len(queries))  # adds in order, as a block does
        return np.asarray(sums, np.float64)

    @functools.cached_property
    def means(self) -> NDArray[np.float64]:
        """The mean of each query's scores over all texts, (m,)."""
        sums = {word: weights.sum(dtype=np.float64) for word, (_, weights) in self._lists.items()}
        totals = [sum(count * sums[word] for word, count in each) for each in self.counts]
        return np.array(totals) / self.index.num_texts

    def deviations(self) -> NDArray[np.float64]:
        """Return the standard deviation of each query's scores over all texts, (m,)."""
        num_texts = self.index.num_texts
        sums = np.zeros(len(self.counts))
        for start in range(0, num_texts, MAX_ROWS):
            end = min(start + MAX_ROWS, num_texts)
            block = self.block(start, end)
            scores = np.empty((1, end - start), np.float32)
            for query, mean in enumerate(self.means):
                scores[:] = -mean  # without this, sums of squares would lose their precision
                block.add(scores, slice(query, query + 1), np.ones(1))
                sums[query] += float(scores[0] @ scores[0])
        return np.asarray(np.sqrt(sums / num_texts))


class BlockScores:
    """The BM25 scores of a block of texts for some queries.

    Args:
        counts: the words of each query.
        parts: number of a word -> the texts that hold the word, as indices in the block, and its weights in these
            texts. If the indices are None, there is a weight for each text of the block.
    """

    def __init__(
        self,
        counts: Sequence[Counts],
        parts: Mapping[int, tuple[NDArray[np.intp] | None, Weights]],
    ) -> None:
        self._counts = counts
        self._parts = parts

    def add(self, scores: Weights, queries: slice, scales: NDArray[np.float64]) -> None:
        """Add the scores for k of the queries to an array, in place, in the dtype of the array.

        Args:
            scores: the array, (k, texts of the block).
            queries: the slice of all queries that selects these k.
            scales: for each of the k queries, the number by which its scores are multiplied, (k,).
        """
        for row, scale, of_query in zip(scores, scales.tolist(), self._counts[queries], strict=True):
            for word, count in of_query:
                if (part := self._parts.get(word)) is None:
                    continue
                rows, weights = part
                factor = scores.dtype.type(scale * count)
                added = weights if factor == 1 else np.multiply(weights, factor, dtype=scores.dtype)
                if rows is None:
                    row += added
                else:
                    row[rows] += added


def _write(texts: Texts, scoring: Scoring, path: Path) -> None:
    index = BM25.of(_texts(texts), scoring, "float32")
    if not index.vocabulary:
        raise PipelineError(f"{texts.datasets[0].folder}: its texts hold no letter and no digit: search without BM25")
    numbers = np.frombuffer("\n".join(index.vocabulary).encode(), np.uint8)
    save(path, {"words": numbers, "weights": index.weights, "rows": index.rows, "ends": index.ends})


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
