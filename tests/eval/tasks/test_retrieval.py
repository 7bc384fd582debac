"""Retrieval: ranks and scores against a slow, simple reference and against sentence-transformers' evaluator."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.eval.data.retrieval import Collection
from clearspan.eval.details import Cell
from clearspan.eval.models.embed import Embedder
from clearspan.eval.tasks import retrieval
from clearspan.eval.tasks.retrieval import RetrievalTask, load, search, shown_queries
from clearspan.eval.tasks.task import Run
from tests.eval.data.test_retrieval import beir


def reference(queries: np.ndarray, documents: np.ndarray, grades: list[dict[int, int]]) -> dict[str, float]:
    """Return BEIR's scores from the complete sorted ranking of each query, one at a time."""
    mrr, recall_1, recall_10, ndcg = [], [], [], []
    for query, judged in zip(queries, grades, strict=True):
        scores = [float(sum(q * d for q, d in zip(query, document, strict=True))) for document in documents]
        ranking = sorted(range(len(documents)), key=lambda i: (-scores[i], i))
        mrr.append(next(1 / rank for rank, i in enumerate(ranking, start=1) if i in judged))
        recall_1.append(len([i for i in ranking[:1] if i in judged]) / len(judged))
        recall_10.append(len([i for i in ranking[:10] if i in judged]) / len(judged))
        gain = sum(judged.get(i, 0) / math.log2(rank + 1) for rank, i in enumerate(ranking[:10], start=1))
        ideal = sorted(judged.values(), reverse=True)[:10]
        ndcg.append(gain / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(ideal, start=1)))
    means = (100 * sum(values) / len(values) for values in (mrr, recall_1, recall_10, ndcg))
    return dict(zip(("mrr", "recall@1", "recall@10", "ndcg@10"), means, strict=True))


def collection(num_documents: int, judged: list[dict[int, int]]) -> Collection:
    """Return a collection with placeholder texts; `judged`: query -> position of a relevant document -> its grade."""
    return Collection(
        documents=[""] * num_documents,
        queries=[""] * len(judged),
        relevant=[np.array(list(grades)) for grades in judged],
        grades=[np.array(list(grades.values())) for grades in judged],
    )


# Small whole numbers make exact scores with many ties.
vectors = st.lists(st.integers(-2, 2), min_size=3, max_size=3)


@pytest.mark.slow
@given(st.data())
def test_figures_are_those_of_the_whole_sorted_ranking(data: st.DataObject) -> None:
    documents = np.array(data.draw(st.lists(vectors, min_size=1, max_size=30)), np.float32)
    queries = np.array(data.draw(st.lists(vectors, min_size=1, max_size=5)), np.float32)
    judgements = st.dictionaries(st.integers(0, len(documents) - 1), st.integers(1, 3), min_size=1)
    grades = [dict(sorted(data.draw(judgements).items())) for _ in queries]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(retrieval, "_BLOCK_SCORES", data.draw(st.integers(1, 200)))
        ranked = search(queries, documents, collection(len(documents), grades)).scores()
    assert ranked == pytest.approx(reference(queries, documents, grades), abs=1e-9)


def test_equal_scores_rank_in_corpus_order() -> None:
    ranked = search(np.ones((1, 1)), np.array([[1.0], [2.0], [1.0], [1.0]]), collection(4, [{2: 1}]))
    assert ranked.figures["mrr"].tolist() == [pytest.approx(1 / 3)]
    assert ranked.nearest == {0: [(1, 2.0), (0, 1.0), (2, 1.0)]}


def test_a_document_below_the_depth_counts_as_not_found() -> None:
    documents = np.arange(20.0, 0, -1)[:, None]
    judged = collection(20, [{5: 1}])
    assert search(np.ones((1, 1)), documents, judged, depth=6).figures["mrr"].tolist() == [pytest.approx(1 / 6)]
    assert search(np.ones((1, 1)), documents, judged, depth=5).figures["mrr"].tolist() == [0]


def test_a_query_that_is_a_document_does_not_find_itself() -> None:
    """Three captions of one photograph and one of another; each is nearest to itself."""
    documents = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.2]])
    judged = replace(collection(4, [{1: 1, 3: 1}, {0: 1, 3: 1}]), itself=np.array([0, 1]))
    ranked = search(documents[:2], documents, judged)
    assert ranked.figures["mrr"].tolist() == [1, 1]
    assert [[position for position, _ in nearest] for nearest in ranked.nearest.values()] == [[1, 3, 2], [0, 3, 2]]


def test_a_query_that_no_document_is_ranks_all_beside_one_that_is() -> None:
    documents = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    judged = replace(collection(3, [{1: 1}, {1: 1}]), itself=np.array([0, -1]))
    ranked = search(documents[[0, 0]], documents, judged)
    assert ranked.figures["mrr"].tolist() == [1, 0.5]
    alone = search(np.ones((1, 1)), np.ones((1, 1)), replace(collection(1, [{0: 1}]), itself=np.array([0])))
    assert alone.figures["mrr"].tolist() == [0]


def test_a_query_of_beirs_layout_does_not_find_the_document_of_its_id(tmp_path: Path) -> None:
    """As in BEIR, where ArguAna's arguments and Quora's questions are documents and queries; here q3 answers q3."""
    texts = {"q1": "an owl hunts", "q2": "hunting owls", "q3": "the night train"}
    corpus = [{"_id": name, "title": "", "text": text} for name, text in texts.items()]
    queries = [{"_id": name, "text": text} for name, text in {**texts, "q4": "an owl hunts"}.items()]
    qrels = [("q1", "q2", 1), ("q2", "q1", 1), ("q3", "q3", 1), ("q4", "q1", 1)]
    beir(tmp_path / "retrieval" / "own", corpus, queries, qrels)
    (task,) = load(tmp_path).tasks
    letters = [set(text) for text in texts.values()]
    scored = task.score(
        Run(
            Embedder(
                lambda given: np.array(
                    [[len(set(t) & s) / len(set(t) | s) for s in letters] for t in given], np.float32
                )
            )
        )
    )
    assert scored.scores["mrr"] == 100
    assert scored.counts == {"queries": 4, "documents": 3, "queries that are documents": 2}


def test_a_query_with_candidates_ranks_these_alone() -> None:
    """By hand: correct answers at ranks 2 and 3 of three, and at rank 1 of two."""
    documents = np.array([[3.0], [2.0], [1.0], [9.0], [8.0]])
    judged = replace(collection(5, [{1: 1, 2: 1}, {3: 1}]), candidates=[np.array([0, 1, 2]), np.array([3, 4])])
    ranked = search(np.ones((2, 1)), documents, judged).figures
    assert {key: values.tolist() for key, values in ranked.items()} == {
        "map": [pytest.approx((1 / 2 + 2 / 3) / 2), 1],
        "mrr": [0.5, 1],
    }


def test_the_queries_shown_are_few_and_evenly_apart() -> None:
    assert shown_queries(40460) == [0, 13486, 26972]
    assert shown_queries(3) == [0, 1, 2]


def test_a_folder_in_another_layout_is_missing_and_said_so(tmp_path: Path) -> None:
    beir(tmp_path / "retrieval" / "own", [{"_id": "d", "text": "a"}], [{"_id": "q", "text": "b"}], [("q", "d", 1)])
    (tmp_path / "retrieval" / "cranfield").mkdir()
    loaded = load(tmp_path)
    assert [task.name for task in loaded.tasks] == ["retrieval/own"]
    assert loaded.missing["retrieval/cranfield"].endswith("cranfield/corpus.jsonl")


def test_the_report_shows_the_rank_of_the_relevant_document_and_marks_it() -> None:
    """Documents at cosines 1, 0.8, 0.6 and 0 of the one query; the third is relevant. Texts are shown in one line."""
    vectors = {"query": (1, 0), "same": (1, 0), "near": (0.8, 0.6), "right\nhere": (0.6, 0.8), "far": (0, 1)}
    query, *documents = vectors
    texts = replace(collection(4, [{2: 1}]), queries=[query], documents=documents)
    scored = RetrievalTask("own", texts).score(Run(Embedder(lambda given: np.array([vectors[text] for text in given]))))
    (table,) = scored.details.tables
    assert table.caption == "own: query\nrelevant: right here"
    ((rank, *nearest),) = table.rows
    assert rank == 3
    assert nearest == [
        Cell("same", "cosine 1.00"),
        Cell("near", "cosine 0.80"),
        Cell("right here", "cosine 0.60", True),
    ]
