"""Indexes: what finds, for each query, the best rows of a collection. All doors search by one: commands, page, Python.

    Exact (`retrieval.exact`)         scores every row, by the model, by BM25 or by both
    Faiss (`plugins.faiss_index`)     reads the vectors that are near the query; may miss a hit
    module:Class                      a `VectorIndex` of your own, such as `examples/extend/flat_index.py`

A `VectorIndex` only names the rows whose vectors are nearest. What makes hits of them is here, the same for all:

    queries -> the `depth` nearest rows -> those that fulfill the condition -> the best chunk of each document -> hits
                     ^------------ deeper, while a query has fewer than `top`, or the last of them may be tied
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import numpy as np
from numpy.typing import NDArray

from clearspan.common import plugins
from clearspan.common.errors import PipelineError
from clearspan.common.parsing import did_you_mean
from clearspan.retrieval.bm25 import BM25
from clearspan.retrieval.similar import SimilarityFunction, Vectors
from clearspan.retrieval.texts import Condition, Texts
from clearspan.retrieval.topk import NONE, Indices, TopK, rounded

NAMES: Mapping[str, str] = {"faiss": "clearspan.plugins.faiss_index:Faiss"}
"""Name of an index that is built in, as in `--index` -> its class."""
MAX_CANDIDATES = 1 << 22
"""The most candidates that are in memory at once: queries times depth."""
DEEPER = 4
"""Factor by which the depth grows for queries that have too few hits."""
Ranked = list[tuple[list[int], list[float]]]
"""The rows of each query's hits, and their scores, best first."""


@dataclasses.dataclass(frozen=True)
class ScoredQueries:
    """The queries of a search, and the two scores that it combines: the model's similarity and BM25.

    Attributes:
        weight: the weight of the model's similarity, 0 to 1; BM25 has the weight 1 - weight.
        similarity: the model's similarity function; None if `weight` is 0.
        vectors: the vectors of the queries, (queries, dim) float32; None if `weight` is 0.
        words: the BM25 index; None if `weight` is 1.
        texts: the texts of the queries.
    """

    weight: float
    similarity: SimilarityFunction | None = None
    vectors: Vectors | None = None
    words: BM25 | None = None
    texts: Sequence[str] = ()


class Index(ABC):
    """Finds the best rows of a collection for queries.

    Args:
        texts: the rows of the collection.
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    @abstractmethod
    def search(self, queries: ScoredQueries, top: int, condition: Condition | None = None) -> Ranked:
        """Return, for each query, the indices in `texts` of the `top` best rows, and their scores; best first.

        If rows are chunks of documents, only the best row of each document is returned. Among rows whose scores are
        equal to six decimals, the one with the higher id is first.

        Args:
            queries: the queries, and the scores to combine.
            top: the maximum number of rows for each query.
            condition: function that returns, for a batch, the mask of the rows that may be hits; None: all rows may be.

        Raises:
            PipelineError: the index cannot be used with this collection.
            ShardError: a shard is damaged.
        """


class VectorIndex(Index):
    """Index of vectors, for searches by the model alone. One of your own is a subclass that builds or opens what it
    searches when it is made, and has the method `nearest`: `examples/extend/flat_index.py` shows all of it.

    Args:
        texts: the rows of the collection.
        similarity: the model's similarity function; `similarity.name` is `cosine`, `dot`, `euclidean` or `manhattan`.
    """

    def __init__(self, texts: Texts, similarity: SimilarityFunction) -> None:
        super().__init__(texts)
        self.similarity = similarity

    @abstractmethod
    def nearest(self, queries: Vectors, depth: int) -> tuple[Indices, NDArray[np.floating]]:
        """Return the rows whose vectors are most similar to each of n queries, and their similarities; best first.

        Args:
            queries: the vectors of the queries, (n, dim) float32, in the form that `prepared` gives.
            depth: the number of rows for each query, at most `texts.num_rows`.

        Returns:
            The indices of the rows, (n, depth), and their similarities, (n, depth). The index -1 stands for no row;
            only a query that has found all rows that the index can find has one.
        """

    def prepared(self, vectors: Vectors) -> Vectors:
        """Return vectors, (n, dim), in the form in which the index compares them: of unit length for the cosine."""
        return self.similarity.prepared(vectors)

    def vectors(self) -> Iterator[Vectors]:
        """Yield the vectors of all rows in their order, (rows, dim) each, in the form that `prepared` gives.

        Raises:
            ShardError: a shard is damaged.
        """
        for block in self.texts.blocks(f"indexing {self.texts.num_rows:,} vectors"):
            yield self.prepared(block.vectors())

    def search(self, queries: ScoredQueries, top: int, condition: Condition | None = None) -> Ranked:
        assert queries.vectors is not None
        vectors = self.prepared(queries.vectors)
        found: dict[int, tuple[list[int], list[float]]] = {}
        waiting, depth = np.arange(len(vectors)), min(top + 1, self.texts.num_rows)
        while len(waiting):
            together, left = max(1, MAX_CANDIDATES // depth), []
            for part in (waiting[start : start + together] for start in range(0, len(waiting), together)):
                hits, are_complete = self._hits(vectors[part], depth, top, condition)
                found |= zip(part.tolist(), hits, strict=True)
                left.append(part[~are_complete])
            waiting, depth = np.concatenate(left), min(DEEPER * depth, self.texts.num_rows)
        return [found[query] for query in range(len(vectors))]

    def _hits(
        self, vectors: Vectors, depth: int, top: int, condition: Condition | None
    ) -> tuple[Ranked, NDArray[np.bool_]]:
        """Return the hits among the `depth` nearest rows of each query, and whether no deeper row can be a hit."""
        rows, scores = self._nearest(vectors, depth)
        query, column = np.nonzero(rows >= 0)
        row, score = rows[query, column], rounded(scores[query, column])
        known, at = np.unique(row, return_inverse=True)
        ids, is_allowed = np.zeros(len(known), np.int64), np.ones(len(known), bool)
        places = np.zeros((len(known), 2), np.int64) if self.texts.is_chunked else None
        # Rows are read only if more than their scores decides.
        is_read = condition is not None or places is not None or _is_tied(query, score)
        file_numbers: dict[tuple[int, str], int] = {}
        for block in self.texts.take(np.unique(row[np.broadcast_to(is_read, row.shape)])):
            here = np.searchsorted(known, block.rows)
            ids[here] = block.ids
            if places is not None:
                places[here] = block.places(file_numbers)
            if condition is not None:
                is_allowed[here] = block.mask(condition)
        kept = is_allowed[at]
        at = at[kept]
        best = TopK(top, np.zeros(len(vectors)))
        best.add_pairs(query[kept], score[kept], row[kept], ids[at], None if places is None else places[at])
        worst = np.array([of_query[-1] if len(of_query) == top else -np.inf for _, of_query in best.found])
        is_full = worst > rounded(scores).min(axis=1)
        return best.found, is_full | (rows < 0).any(axis=1) | (depth == self.texts.num_rows)

    def _nearest(self, vectors: Vectors, depth: int) -> tuple[Indices, NDArray[np.floating]]:
        """Return what `nearest` returns, after a check of its form.

        Raises:
            PipelineError: it is not of the documented form, names a row twice, or has a score that is not a number.
        """
        returned = self.nearest(vectors, depth)
        asked = (
            f"`index` {type(self).__name__}: its method nearest, of {len(vectors)} queries and depth {depth}, returned"
        )
        try:
            rows, scores = map(np.asarray, returned)
        except (TypeError, ValueError):
            raise PipelineError(f"{asked} {type(returned).__name__}, not two arrays: rows and scores") from None
        is_of_form = rows.shape == scores.shape == (len(vectors), depth) and np.issubdtype(rows.dtype, np.integer)
        if not is_of_form or (rows < NONE).any() or (rows >= self.texts.num_rows).any():
            raise PipelineError(
                f"{asked} rows {rows.dtype} {rows.shape} and scores {scores.shape}, not the indices of "
                f"{self.texts.num_rows:,} rows"
            )
        ordered = np.sort(rows, axis=1)
        if ((ordered[:, 1:] == ordered[:, :-1]) & (ordered[:, 1:] != NONE)).any() or np.isnan(
            scores[rows != NONE]
        ).any():
            raise PipelineError(f"{asked} a row twice for a query, or a score that is not a number")
        return rows.astype(np.int64, copy=False), cast(NDArray[np.floating], scores)


def index_class(name: str) -> type[VectorIndex]:
    """Return the class of an index: `faiss`, or `module:Class` for one of your own.

    Raises:
        ValueError: there is no such index, or the class is not a complete subclass of `VectorIndex`.
    """
    spec = NAMES.get(name, name)
    if not plugins.is_spec(spec):
        raise ValueError(f"`index` {name}: choose {' or '.join(NAMES)}, or module:Class{did_you_mean(name, NAMES)}")
    return plugins.load_class(spec, VectorIndex, "an index of vectors")


def _is_tied(query: Indices, score: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return a mask of the candidates, (c,), whose score another candidate of the same query has."""
    order = np.lexsort((score, query))
    is_same = (np.diff(query[order]) == 0) & (np.diff(score[order]) == 0)
    is_tied = np.zeros(len(order), bool)
    is_tied[order] = np.append(is_same, False) | np.insert(is_same, 0, False)
    return is_tied
