"""Indexes of vectors: what makes hits of the nearest rows that an index names, compared with sorting all rows."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clearspan.common.errors import PipelineError
from clearspan.retrieval import index as indexes
from clearspan.retrieval.index import ScoredQueries, VectorIndex, index_class
from clearspan.retrieval.similar import SimilarityFunction, Vectors
from clearspan.retrieval.texts import DOCUMENT, RowBlock

NUM_ROWS, NUM_QUERIES = 60, 5


class Rows:
    """Rows with an id, a field and, if they are chunks, a document; it counts the rows that are read."""

    is_chunked = False
    num_rows = NUM_ROWS
    num_read = 0

    def __init__(self, is_chunked: bool) -> None:
        draws = np.random.default_rng(8)
        self.is_chunked = is_chunked
        self.records = draws.integers(0, 20, NUM_ROWS)
        self.ids = self.records % 14 if is_chunked else draws.permutation(NUM_ROWS)  # equal ids of different documents
        self.years = draws.integers(1990, 2010, NUM_ROWS)

    def take(self, rows: np.ndarray) -> Iterator[RowBlock]:
        for part in np.array_split(rows, 2):
            self.num_read += len(part)
            columns = {"id": pa.array(self.ids[part]), "source": pa.array(["in"] * len(part), pa.string())}
            columns |= {"record": pa.array(self.records[part]), "year": pa.array(self.years[part])}
            columns |= {DOCUMENT: pa.array(self.ids[part])} if self.is_chunked else {}
            yield RowBlock(0, [(0, pa.record_batch(columns))], part)


class Sorted(VectorIndex):
    """An index that finds the nearest rows by sorting all, the last row first among equal ones; it notes the depths."""

    def __init__(self, texts: Any, scores: np.ndarray) -> None:
        super().__init__(texts, SimilarityFunction(SimpleNamespace(similarity_name="dot", similarity=None)))  # type: ignore[arg-type]
        self.scores = scores
        self.depths: list[tuple[int, int]] = []
        self.most = np.full(NUM_QUERIES, NUM_ROWS)  # the number of rows that the index can find for each query

    def nearest(self, queries: Vectors, depth: int) -> tuple[np.ndarray, np.ndarray]:
        self.depths.append((len(queries), depth))
        numbers = queries[:, 0].astype(int)
        scores = self.scores[numbers]
        rows = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
        found = np.take_along_axis(scores, rows, 1)
        rows[np.arange(depth) >= self.most[numbers, None]] = -1
        return rows, found


def by_sorting(rows: Rows, scores: np.ndarray, top: int, year: int | None) -> list[tuple[list[int], list[float]]]:
    found = []
    for of_query in scores.round(6):
        order = np.lexsort((np.arange(NUM_ROWS), -rows.ids, -of_query))
        order = [row for row in order.tolist() if year is None or rows.years[row] > year]
        if rows.is_chunked:
            order = [row for place, row in enumerate(order) if rows.records[row] not in rows.records[order[:place]]]
        found.append((order[:top], of_query[order[:top]].tolist()))
    return found


def queries() -> ScoredQueries:
    return ScoredQueries(1.0, None, np.arange(NUM_QUERIES, dtype=np.float32)[:, None])


@pytest.mark.guarantee("ties-by-id")
@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("year", [None, 1995, 2008, 2010])
@pytest.mark.parametrize("values", [1, 3, 50])
def test_what_an_exact_index_finds_are_the_hits_of_sorting_all_rows(
    is_chunked: bool, year: int | None, values: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = np.random.default_rng(values).integers(0, values, (NUM_QUERIES, NUM_ROWS)) / 7
    scores += np.random.default_rng(5).uniform(-1e-8, 1e-8, scores.shape)  # float32 noise ties them as well
    for top, max_candidates in ((1, 1 << 22), (4, 30), (70, 1)):
        monkeypatch.setattr(indexes, "MAX_CANDIDATES", max_candidates)
        rows = Rows(is_chunked)
        condition = None if year is None else lambda batch: batch.column("year").to_numpy() > year
        index = Sorted(rows, scores)
        assert index.search(queries(), top, condition) == by_sorting(rows, scores, top, year)
        assert all(number == 1 or number * depth <= max_candidates for number, depth in index.depths)


def test_an_index_is_searched_no_deeper_and_no_row_is_read_where_scores_alone_decide() -> None:
    scores = np.random.default_rng(5).permuted(np.tile(np.arange(NUM_ROWS) / 9, (NUM_QUERIES, 1)), axis=1)
    rows = Rows(False)
    index = Sorted(rows, scores)
    assert index.search(queries(), 6) == by_sorting(rows, scores, 6, None)
    assert index.depths == [(NUM_QUERIES, 7)] and rows.num_read == 0
    scores[3] = 0.5
    assert index.search(queries(), 6) == by_sorting(rows, scores, 6, None)
    assert index.depths[1:] == [(NUM_QUERIES, 7), (1, 28), (1, NUM_ROWS)], "deeper for the query alone that needs it"


@pytest.mark.guarantee("exact-search")
def test_a_query_that_has_all_rows_of_an_index_is_not_asked_again() -> None:
    scores = np.random.default_rng(5).random((NUM_QUERIES, NUM_ROWS))
    scores[3] = 0.5  # all are tied: the others must be found
    rows, index = Rows(False), Sorted(Rows(False), scores)
    index.most[:2] = 4
    found = index.search(queries(), 6)
    assert [len(of) for of, _ in found] == [4, 4, 6, 6, 6]
    expected = zip(by_sorting(rows, scores, 6, None), index.most.tolist(), strict=True)
    assert found == [(of[:most], values[:most]) for (of, values), most in expected]
    assert [number for number, _ in index.depths] == [NUM_QUERIES, 1, 1]


@pytest.mark.parametrize(
    "returned",
    [
        (np.zeros((2, 7), int), np.zeros((2, 7))),
        (np.zeros((NUM_QUERIES, 7)), np.zeros((NUM_QUERIES, 7))),
        (np.full((NUM_QUERIES, 7), NUM_ROWS), np.zeros((NUM_QUERIES, 7))),
        (np.full((NUM_QUERIES, 7), -2), np.zeros((NUM_QUERIES, 7))),
    ],
)
def test_what_is_not_a_row_for_each_query_is_refused(returned: tuple[np.ndarray, np.ndarray]) -> None:
    index = Sorted(Rows(False), np.zeros((NUM_QUERIES, NUM_ROWS)))
    index.nearest = lambda queries, depth: returned  # type: ignore[method-assign]
    with pytest.raises(
        PipelineError, match=r"^`index` Sorted: its method nearest, of 5 queries and depth 7, returned rows \w+ \("
    ):
        index.search(queries(), 6)


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda rows, scores: None, "NoneType, not two arrays"),
        (lambda rows, scores: (rows, scores, rows), "tuple, not two arrays"),
        (lambda rows, scores: (rows * 0, scores), "a row twice"),
        (lambda rows, scores: (rows, scores * np.nan), "not a number"),
    ],
)
def test_a_row_twice_no_number_and_no_arrays_are_refused(change: Callable[..., Any], complaint: str) -> None:
    rows, scores = np.tile(np.arange(7), (NUM_QUERIES, 1)), np.zeros((NUM_QUERIES, 7))
    index = Sorted(Rows(False), np.zeros((NUM_QUERIES, NUM_ROWS)))
    index.nearest = lambda queries, depth: change(rows, scores)  # type: ignore[method-assign]
    with pytest.raises(PipelineError, match=f"^`index` Sorted: its method nearest, .*{complaint}"):
        index.search(queries(), 6)


def test_lists_are_taken_as_arrays() -> None:
    rows, scores = Rows(False), np.random.default_rng(0).normal(size=(NUM_QUERIES, NUM_ROWS))
    plain, index = Sorted(rows, scores), Sorted(rows, scores)
    of_arrays = index.nearest
    index.nearest = lambda queries, depth: [each.tolist() for each in of_arrays(queries, depth)]  # type: ignore[method-assign]
    assert index.search(queries(), 6) == plain.search(queries(), 6)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("fais", "`index` fais: choose faiss, or module:Class; did you mean 'faiss'"),
        ("", "`index` : choose faiss, or module:Class"),
        ("own_index:Missing", "own_index:Missing: .* has no 'Missing'"),
        ("own_index:Half", "own_index:Half: not an index of vectors: it lacks nearest"),
        ("own_index:np", "own_index:np: .*, not an index of vectors"),
    ],
)
@pytest.mark.guarantee("own-parts")
def test_an_index_that_cannot_be_used_is_one_line(
    name: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = "import numpy as np\nfrom clearspan.retrieval.index import VectorIndex\nclass Half(VectorIndex): ...\n"
    (tmp_path / "own_index.py").write_text(content, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=complaint) as caught:
        index_class(name)
    assert "\n" not in str(caught.value)
