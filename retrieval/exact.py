"""Exact search: score every row for every query, in one pass over the vectors.

    block of rows -> rows that fulfill the condition -> similarity + BM25 for each part of the queries -> the best rows

The queries are divided into parts, which are scored by as many threads as there are CPU cores. Memory holds a block of
vectors (64 MiB), the scores of one part of the queries for each thread (32 MiB), and the best rows. If similarity and
BM25 are combined, both are first scaled to a mean of 0 and to a standard deviation that is the weight of the score.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.bm25 import Scores
from clearspan.retrieval.hybrid import Moments
from clearspan.retrieval.index import Index, Ranked, ScoredQueries
from clearspan.retrieval.similar import Vectors
from clearspan.retrieval.texts import Condition, RowBlock, Texts
from clearspan.retrieval.topk import TopK

TOGETHER = 128
"""Number of queries in a part."""


class Exact(Index):
    """Index that scores every row for every query."""

    def search(self, queries: ScoredQueries, top: int, condition: Condition | None = None) -> Ranked:
        from joblib import cpu_count
        from threadpoolctl import threadpool_limits

        texts = self.texts
        with threadpool_limits(1, "blas"), ThreadPoolExecutor(cpu_count()) as pool:
            scorer = _Scorer(texts, queries)
            slices = [slice(start, start + TOGETHER) for start in range(0, scorer.num_queries, TOGETHER)]
            best = [TopK(top, scorer.shifts[part], scorer.above) for part in slices]
            file_numbers: dict[tuple[int, str], int] = {}
            for block in texts.blocks(f"searching {texts.num_rows:,} texts"):
                allowed = None if condition is None else np.flatnonzero(block.mask(condition))
                if allowed is not None and not len(allowed):
                    continue
                rows = block.rows
                ids = block.ids
                places = block.places(file_numbers) if texts.is_chunked else None
                if allowed is not None:
                    rows, ids = rows[allowed], ids[allowed]
                    places = None if places is None else places[allowed]
                scores = scorer.block(block, allowed)

                def add(part: slice, found: TopK) -> None:
                    found.add(scores(part), rows, ids, places)  # noqa: B023  # done before the next block

                list(pool.map(add, slices, best))
        return [of_query for part in best for of_query in part.found]


class _Scorer:
    """Computes the scores of blocks of rows for all queries.

    The final score of a row is the computed score plus a number that depends only on the query (`shifts`).

    Attributes:
        num_queries: the number of queries.
        shifts: for each query, the number to add to the scores that `block` computes, (num_queries,) float64.
        above: only rows whose score from `block` is above this number may be hits. It is 0 if only BM25 is used,
            because all other rows hold no word of the query; otherwise -inf.
    """

    def __init__(self, texts: Texts, queries: ScoredQueries) -> None:
        self._similarity = queries.similarity
        self.above = -np.inf
        self._words: Scores | None = queries.words.scores(queries.texts) if queries.words else None
        self.num_queries = len(queries.texts)
        scales, shifts = np.ones(self.num_queries), np.zeros(self.num_queries)
        self._scales = scales
        self._word_scales = scales
        self.shifts = shifts
        if queries.similarity is None:
            self.above = 0.0
        else:
            assert queries.vectors is not None
            self._vectors = queries.similarity.prepared(queries.vectors)
            if self._words is not None:
                self._scales, shifts = queries.similarity.moments(texts, self._vectors).scale_and_shift(queries.weight)
                self._word_scales, of_words = Moments.of_words(self._words).scale_and_shift(1 - queries.weight)
                self.shifts = shifts + of_words

    def block(self, block: RowBlock, allowed: NDArray[np.intp] | None) -> Callable[[slice], Vectors]:
        """Return a function that computes the scores of a block's rows for some of the queries.

        The function takes a slice of the queries, and returns the scores for them, (queries of the slice, rows to
        score) float32. The query's number in `shifts` must still be added.

        Args:
            allowed: the indices, in the block, of the rows to score; None for all rows.
        """
        size = block.num_rows
        words = None if self._words is None else self._words.block(block.start, block.start + size)
        vectors = lengths = None
        if self._similarity is not None:
            vectors = block.vectors()
            lengths = block.lengths(vectors) if self._similarity.name == "cosine" else None
            if allowed is not None:
                vectors = vectors[allowed]
                lengths = None if lengths is None else lengths[allowed]

        def scores(part: slice) -> Vectors:
            num = len(self._scales[part])
            lexical = None
            if words is not None and (vectors is None or allowed is not None):
                lexical = np.zeros((num, size), np.float32)
                words.add(lexical, part, self._word_scales[part])
                lexical = lexical if allowed is None else lexical[:, allowed]
            if vectors is None:
                assert lexical is not None
                return lexical
            assert self._similarity is not None
            scales = None if words is None else self._scales[part]
            total = self._similarity.scores(self._vectors[part], vectors, lengths, scales)
            if lexical is not None:
                total += lexical
            elif words is not None:
                words.add(total, part, self._word_scales[part])
            return total

        return scores
