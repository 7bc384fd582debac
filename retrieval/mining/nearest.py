"""Exact search for the texts that are nearest to queries, by the cosine similarity of a model, or by BM25.

The search by a model finds the `depth` nearest texts for each of m queries. It compares the queries with all texts,
TILE texts at a time; d is the dimension of the vectors:

    for each tile of texts:   m queries (m, d) x texts (TILE, d) -> cosines (m, TILE) -> the `depth` + SPARE best so far
    at the end:               cosines of these texts again in float64, rounded -> sorted -> the best `depth` texts

Its time grows with queries x texts x d. Memory holds the vectors and one tile of cosines. The last digits of a cosine
in float32 depend on the device and on the number of vectors that are multiplied at once. So that the order of the texts
does not depend on this, the cosines of the best texts, and of SPARE (16) more, are computed again in float64.
"""

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.retrieval.bm25 import BM25, Scores
from clearspan.retrieval.scoring import DEFAULT, Scoring
from clearspan.retrieval.texts import MAX_ROWS
from clearspan.retrieval.topk import NONE, Indices, TopK, rounded

TILE = 1 << 14
"""Number of texts that are compared with a block of queries at once."""
SPARE = 16
"""Number of texts beyond `depth` whose cosines are also computed again in float64."""
TOGETHER = 64
"""Number of queries whose vectors of best texts are in memory at once."""
Floats = NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class BestTexts:
    """The best texts of each of m queries, with the best first.

    Attributes:
        indices: the indices of the texts, (m, k) int64, where k is at most the number of texts that were asked for; -1
            (NONE) after the last text that was found for a query.
        scores: the scores of the texts, (m, k) float64; -inf where `indices` is -1.
    """

    indices: Indices
    scores: Floats


class Nearest:
    """Search for the texts whose vectors have the highest cosine similarity with the vector of a query.

    Args:
        vectors: the unit vectors of all N texts, (N, d) float32, where d is their dimension.
        pool: the indices of the texts to search among, in ascending order; None for all texts.
        device: "cpu" to compute with numpy; any other device to compute on it with torch.
    """

    def __init__(self, vectors: NDArray[np.float32], pool: Indices | None = None, device: str = "cpu") -> None:
        self.vectors, self.device = vectors, device
        self.pool = np.arange(len(vectors)) if pool is None else pool

    @functools.cached_property
    def _searched(self) -> Any:
        """The vectors of the texts to search among: a numpy array if the device is the CPU, otherwise a tensor on the
        device.
        """
        searched = self.vectors if len(self.pool) == len(self.vectors) else self.vectors[self.pool]
        if self.device == "cpu":
            return searched
        import torch

        return torch.from_numpy(searched).to(self.device)

    def search(self, queries: NDArray[np.float32], excluded: Sequence[Indices], depth: int) -> BestTexts:
        """Return the `depth` texts nearest to each of m queries.

        Args:
            queries: the vectors of the queries, which are unit vectors, (m, d) float32, where d is their dimension.
            excluded: for each query, the indices of the texts to leave out.
            depth: the number of texts to return for a query; there are fewer if not so many are searched.
        """
        rows, columns = _pairs([self._places(indices) for indices in excluded])
        best = TopK(min(depth + SPARE, len(self.pool)), np.zeros(len(queries)))
        for start in range(0, len(self.pool), TILE):
            tile = self._cosines(queries, start, rows, columns)
            searched = np.arange(start, start + tile.shape[1])
            best.add(tile, searched, ~searched)
        found = best.rows
        indices = np.where(found >= 0, self.pool[found], NONE)
        return ordered(indices, cosines(queries, self.vectors, indices), depth)

    def _places(self, indices: Indices) -> Indices:
        """Return the positions of some texts in the list of texts to search among. Texts that are not in this list are
        left out.

        Args:
            indices: the indices of the texts among all texts.
        """
        places = np.searchsorted(self.pool, indices)
        return places[self.pool[places.clip(max=len(self.pool) - 1)] == indices] if len(self.pool) else places[:0]

    def _cosines(self, queries: NDArray[np.float32], start: int, rows: Indices, columns: Indices) -> Any:
        """Return the cosines of queries and the TILE texts from `start` on, (m, TILE), on the device; -inf where a text
        is excluded.

        Args:
            rows, columns: for each excluded text, the index of its query, and its place among the searched texts.
        """
        inside = (columns >= start) & (columns < start + TILE)
        excluded = (rows[inside], columns[inside] - start)
        texts = self._searched[start : start + TILE]
        if self.device == "cpu":
            tile = queries @ texts.T
            tile[excluded] = -np.inf
            return tile
        import torch

        tile = torch.from_numpy(queries).to(self.device) @ texts.T
        tile[tuple(torch.from_numpy(each).to(self.device) for each in excluded)] = -torch.inf
        return tile


class LexicalSearch:
    """Search for the texts with the highest BM25 score for a query. A text that has no word of the query is not found.

    Args:
        texts: all texts.
        pool: the indices of the texts to search among, in ascending order; None for all texts.
        scoring: how BM25 scores a text.
    """

    def __init__(self, texts: Sequence[str], pool: Indices | None = None, scoring: Scoring = DEFAULT) -> None:
        self._index = BM25.of(texts, scoring)
        self._is_searched = np.ones(len(texts), bool)
        if pool is not None:
            self._is_searched = np.isin(np.arange(len(texts)), pool)

    def search(self, queries: Sequence[str], excluded: Sequence[Indices], depth: int) -> BestTexts:
        """Return the `depth` texts with the highest BM25 scores for each query. If scores are equal, the lower index is
        first.

        Args:
            excluded: for each query, the indices of the texts to leave out.
            depth: the number of texts to return for a query; there are fewer if not so many have a word of it.
        """
        if len(queries) != len(excluded):
            raise ValueError(f"{len(queries)} queries, and texts to leave out for {len(excluded)}")
        of_all = self._index.scores(queries)
        indices = np.full((len(queries), depth), NONE, np.int64)
        scores = np.full((len(queries), depth), -np.inf)
        for first in range(0, len(queries), TOGETHER):
            part = slice(first, first + TOGETHER)
            for row, (found, values) in enumerate(self._best(of_all[part], excluded[part], depth), start=first):
                indices[row, : len(found)], scores[row, : len(found)] = found, values
        return BestTexts(indices, scores)

    def _best(
        self, scores: Scores, excluded: Sequence[Indices], depth: int
    ) -> Sequence[tuple[Sequence[int], Sequence[float]]]:
        """Return the indices and the scores of the `depth` best texts of each query, best first."""
        num_queries, num_texts = scores.shape
        rows, columns = _pairs(excluded)
        best = TopK(depth, np.zeros(num_queries), threshold=0)
        for start in range(0, num_texts, MAX_ROWS):
            searched = np.arange(start, min(start + MAX_ROWS, num_texts))
            tile = np.zeros((num_queries, len(searched)))
            scores.block(start, start + len(searched)).add(tile, slice(None), np.ones(num_queries))
            inside = (columns >= start) & (columns < start + len(searched))
            tile[rows[inside], columns[inside] - start] = -np.inf
            tile[:, ~self._is_searched[searched]] = -np.inf
            best.add(tile, searched, ~searched)
        return best.found

    def scores(self, queries: Sequence[str], indices: Sequence[Indices]) -> list[Floats]:
        """Return the BM25 scores of some texts for each query; 0 for a text that has no word of the query.

        Args:
            indices: for each query, the indices of the texts to score.

        Returns:
            For each query, an array with the scores of its texts.
        """
        scores = rounded(self._index.scores(queries).of_pairs(*_pairs(indices)))
        return np.split(scores, np.cumsum([len(each) for each in indices])[:-1])


def _pairs(indices: Sequence[Indices]) -> tuple[Indices, Indices]:
    """Return the index of the query, and the index of the text, for each text of each query."""
    rows = np.repeat(np.arange(len(indices)), [len(each) for each in indices])
    return rows, np.concatenate([np.empty(0, np.int64), *indices])


def cosines(queries: NDArray[np.float32], vectors: NDArray[np.float32], indices: Indices) -> Floats:
    """Return the cosine similarities of each of m queries with r texts, (m, r) float64, rounded to 6 decimals.

    Args:
        queries: the vectors of the queries, which are unit vectors, (m, d), where d is their dimension.
        vectors: the unit vectors of all N texts, (N, d).
        indices: for each query, the indices of the texts to compare with it, (m, r). -1 (NONE) stands for no text; its
            similarity is -inf.
    """
    found = np.full(indices.shape, -np.inf)
    for start in range(0, len(queries), TOGETHER):
        part = slice(start, start + TOGETHER)
        gathered = vectors[indices[part].clip(min=0)].astype(np.float64)
        found[part] = rounded(np.matmul(gathered, queries[part, :, None].astype(np.float64))[..., 0])
    return np.where(indices < 0, -np.inf, found)


def ordered(indices: Indices, scores: Floats, depth: int) -> BestTexts:
    """Return the best `depth` texts of each query, highest score first; if scores are equal, the lower index is first.

    Args:
        indices: the indices of r texts for each of m queries, in any order, (m, r).
        scores: the scores of these texts, (m, r).
        depth: the number of texts to return for a query; at most r are returned.
    """
    order = np.lexsort((indices, -scores), axis=1)[:, :depth]
    return BestTexts(np.take_along_axis(indices, order, 1), np.take_along_axis(scores, order, 1))
