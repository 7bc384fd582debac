"""Parts of an exact search, each compared with plain loops over rows."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from clearspan.retrieval import bm25, index_cache
from clearspan.retrieval.bm25 import BM25, FREQUENT, Scores
from clearspan.retrieval.exact import _Scorer
from clearspan.retrieval.texts import DOCUMENT, RowBlock
from clearspan.retrieval.topk import TopK, _is_first

NUM_ROWS = 80
WORDS = [[(0, 1.0), (3, 2.0)], [(1, 1.0)], [], [(2, 3.0), (9, 1.0), (1, 1.0)]]
"""Of each query, the words and how often they stand there; no row holds the word 9."""


def lists() -> dict[int, tuple[np.ndarray, np.ndarray]]:
    """The rows that hold each word: nearly all, few, those of the end alone, one."""
    generator = np.random.default_rng(5)
    rows = [np.arange(0, NUM_ROWS, 2), np.array([3, 40, 41, 79]), np.arange(60, 80), np.array([0])]
    found = {word: (each.astype(np.int32), generator.random(len(each), np.float32)) for word, each in enumerate(rows)}
    return {**found, 9: (np.empty(0, np.int32), np.empty(0, np.float32))}


def of_words() -> Scores:
    found = [lists().get(word, lists()[9]) for word in range(10)]
    rows, weights = (np.concatenate(each) for each in zip(*found, strict=True))
    ends = np.cumsum([0, *(len(each) for each, _ in found)])
    return Scores(BM25({str(word): word for word in range(10)}, ends, rows, weights, NUM_ROWS), WORDS)


def by_loop(start: int, end: int, scales: np.ndarray) -> np.ndarray:
    scores = np.zeros((len(WORDS), NUM_ROWS))
    for query, words in enumerate(WORDS):
        for word, count in words:
            for row, weight in zip(*lists()[word], strict=True):
                scores[query, row] += scales[query] * count * weight
    return scores[:, start:end]


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize(("start", "end"), [(0, 80), (0, 1), (1, 40), (40, 42), (41, 80), (64, 80), (79, 80), (4, 4)])
def test_the_words_of_a_block_are_scored_as_row_by_row(start: int, end: int) -> None:
    assert FREQUENT == 16
    scales = np.array([1.0, 0.5, 2.0, 1.25])
    found = np.full((len(WORDS), end - start), 7.0, np.float32)
    of_words().block(start, end).add(found, slice(0, 4), scales)
    np.testing.assert_allclose(found, 7 + by_loop(start, end, scales), rtol=1e-6)
    some = np.zeros((2, end - start), np.float32)
    of_words().block(start, end).add(some, slice(1, 3), scales[1:3])
    np.testing.assert_allclose(some, by_loop(start, end, scales)[1:3], rtol=1e-6)


@pytest.mark.guarantee("exact-search")
def test_the_score_of_a_pair_and_of_a_block_is_that_of_all_texts_to_the_last_digit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [f"owls {'hunt ' * (row % 5)} by night {row % 7} of {row % 11}" for row in range(3 * FREQUENT)]
    scores = BM25.of(texts).scores(["owls hunt mice by night 3 of 4", "", "7 hunt 7 owls owls", "mice"])
    of_all = scores.array()
    monkeypatch.setattr(bm25, "MAX_ROWS", 7)
    np.testing.assert_array_equal(scores.array(), of_all)
    queries, rows = np.divmod(np.arange(of_all.size), len(texts))
    np.testing.assert_array_equal(scores.of_pairs(queries, rows).reshape(of_all.shape), of_all)
    assert (of_all > 0).any(axis=1).tolist() == [True, False, True, False]
    part = np.zeros((2, 9))
    scores[np.array([2, 0])].block(20, 29).add(part, slice(None), np.ones(2))
    np.testing.assert_array_equal(part, of_all[[2, 0], 20:29])
    np.testing.assert_array_equal(scores[1:3].times(np.array([5, 0.5])).array(), [[0] * len(texts), of_all[2] / 2])


class Products:
    """A similarity: products, divided by the lengths of the rows if it is the cosine."""

    def __init__(self, name: str) -> None:
        self.name = name

    def scores(self, queries: Any, rows: Any, lengths: Any, scales: Any) -> Any:
        assert (lengths is None) is (self.name != "cosine")
        found = queries @ rows.T / (1 if lengths is None else lengths)
        return found if scales is None else found * scales[:, None].astype(np.float32)


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("name", ["cosine", "dot", ""])
@pytest.mark.parametrize("has_words", [True, False])
@pytest.mark.parametrize("allowed", [None, [0, 3, 5, 19], [7]])
def test_each_allowed_row_of_a_block_is_scored_by_both_for_each_part_of_the_queries(
    name: str, has_words: bool, allowed: list[int] | None
) -> None:
    if not name and not has_words:
        return
    generator = np.random.default_rng(6)
    start, size = 39, 20
    rows = generator.standard_normal((size, 6)).astype(np.float32)
    queries = generator.standard_normal((4, 6)).astype(np.float32)
    scorer = object.__new__(_Scorer)
    scorer._similarity = Products(name) if name else None  # type: ignore[assignment]
    scorer._vectors, scorer._words = queries, of_words() if has_words else None
    scorer._scales, scorer._word_scales = np.array([1.0, 2.0, 3.0, 0.5]), np.array([0.5, 1.0, 4.0, 2.0])
    lengths = np.linalg.norm(rows, axis=1)
    block: Any = SimpleNamespace(start=start, num_rows=size, vectors=lambda: rows, lengths=lambda vectors: lengths)
    scores = scorer.block(block, None if allowed is None else np.array(allowed))
    expected = np.zeros((4, size))
    if name:
        expected += queries @ rows.T / (lengths if name == "cosine" else 1)
        expected *= scorer._scales[:, None] if has_words else 1
    if has_words:
        expected += by_loop(start, start + size, scorer._word_scales)
    expected = expected if allowed is None else expected[:, allowed]
    for part in (slice(0, 3), slice(3, 4), slice(0, 4)):
        found = scores(part)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected[part], rtol=1e-5, atol=1e-6)


def batch(sources: list[str], records: list[int], is_chunked: bool) -> pa.RecordBatch:
    columns = {"id": pa.array(records), "source": pa.array(sources), "record": pa.array(records, pa.int64())}
    return pa.record_batch({**columns, **({DOCUMENT: pa.array(records)} if is_chunked else {})})


@pytest.mark.guarantee("exact-search")
def test_a_document_is_known_by_its_collection_its_file_and_its_record() -> None:
    parts = [
        (0, batch(["b.jsonl", "a.jsonl", "b.jsonl"], [5, 5, 6], True)),
        (0, batch(["a.jsonl", "c.jsonl"], [7, 1], True)),
        (1, batch(["a.jsonl", "b.jsonl"], [5, 5], True)),
        (2, batch(["a.jsonl", "a.jsonl"], [5, 6], False)),
        (1, batch(["b.jsonl"], [9], True)),
    ]
    known: dict[tuple[int, str], int] = {}
    assert RowBlock(100, parts).places(known).tolist() == [
        *([0, 5], [1, 5], [0, 6]),
        *([1, 7], [2, 1]),
        *([3, 5], [4, 5]),
        *([-1, 107], [-1, 108]),
        [4, 9],
    ]
    assert known == {(0, "b.jsonl"): 0, (0, "a.jsonl"): 1, (0, "c.jsonl"): 2, (1, "a.jsonl"): 3, (1, "b.jsonl"): 4}
    assert RowBlock(109, [(0, batch(["c.jsonl"], [1], True)), (3, batch(["c.jsonl"], [1], True))]).places(
        known
    ).tolist() == [
        [2, 1],
        [5, 1],
    ]
    of_one_name = batch(["2023/a.jsonl", "2024/a.jsonl", "a.jsonl", "2023/A.jsonl", "2023/a.jsonl"], [5] * 5, True)
    places = RowBlock(0, [(0, of_one_name)]).places({}).tolist()
    assert places == [[0, 5], [1, 5], [2, 5], [3, 5], [0, 5]], "files of one name in other folders are others"


@pytest.mark.guarantee("exact-search")
def test_of_the_chunks_of_a_document_the_first_stays_for_each_query() -> None:
    rows = [
        (0, 5, 1, 0),
        (0, 5, 1, 0),
        (1, 5, 1, 0),
        (0, 6, 1, 0),
        (0, 5, 2, 0),
        (0, 5, 1, 1),
        (1, 5, 1, 0),
        (0, 5, 1, 1),
    ]
    first, second, ids, queries = (np.array(each) for each in zip(*rows, strict=True))
    expected = [row not in rows[:number] for number, row in enumerate(rows)]
    found = _is_first(np.stack([first, second], axis=1), ids, queries)
    assert found.dtype == bool and found.tolist() == expected
    assert _is_first(np.empty((0, 2), np.int64), np.empty(0, np.int64), np.empty(0, np.int64)).tolist() == []


@pytest.mark.guarantee("exact-search")
def test_the_threshold_of_a_query_rises_with_its_worst_hit_and_never_falls() -> None:
    best = TopK(2, np.array([0.0, 10.0, 0.0]), 0.0)
    before = best._least.copy()
    scores = np.array([[0.5, 0.25, 0.75], [0.5, 0.25, 0.0], [0.5, 0.0, 0.0]], np.float32)
    best.add(scores, np.arange(3), np.arange(3), None)
    np.testing.assert_allclose(best._least, [0.5, 0.25, before[2]], atol=1e-5)
    assert (best._least[:2] < [0.5, 0.25]).all() and (best._least[:2] > [0.49999, 0.2499]).all()
    best.add(np.full((3, 1), 0.6, np.float32), np.array([3]), np.array([3]), None)
    assert [rows for rows, _ in best.found] == [[2, 3], [3, 0], [3, 0]]
    np.testing.assert_allclose(best._least, [0.6, 0.5, 0.5], atol=1e-5)


@pytest.mark.guarantee("exact-search")
def test_a_row_without_a_word_of_the_query_is_no_hit_beside_one_that_is_nearly_zero() -> None:
    best = TopK(1, np.zeros(1), 0.0)
    best.add(np.array([[4e-7]], np.float32), np.array([0]), np.array([0]), None)
    best.add(np.array([[0.0]], np.float32), np.array([1]), np.array([1]), None)
    assert best.found == [([0], [0.0])]


@pytest.mark.guarantee("exact-search")
def test_an_index_is_that_of_its_collections_in_their_order_and_of_what_built_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(index_cache, "cached_file", lambda name, write: made.append(write) or name)

    def dataset(content: bytes) -> Any:
        return SimpleNamespace(manifest=SimpleNamespace(to_json=lambda: content))

    def write(path: Path) -> None:
        raise NotImplementedError

    owls, rain = dataset(b'{"owls": 1}'), dataset(b'{"rain": 2}')
    others = [[owls], [rain], [owls, rain], [rain, owls], [owls, owls], [owls, rain, owls]]
    names: list[Any] = [
        index_cache.index_of(datasets, suffix, built_by, write)
        for datasets in others
        for suffix in ("bm25", "moments")
        for built_by in ({"version": 1}, {"version": 2}, {"version": 1, "stemmer": "turkish"}, {})
    ]
    assert len(set(names)) == len(names) and made == [write] * len(names)
    assert all(name.endswith((".bm25", ".moments")) for name in names)
    assert index_cache.index_of([dataset(b'{"owls": 1}')], "bm25", {"version": 1}, write) == names[0]
