"""Retrieval: ranks and scores against a slow, simple reference and against sentence-transformers' evaluator."""

import json
import math
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import given
from hypothesis import strategies as st

from clearspan.eval.data.heldout_data import read
from clearspan.eval.details import Cell
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.tasks import retrieval
from clearspan.eval.tasks.heldout import mean_mrr
from clearspan.eval.tasks.retrieval import RetrievalTask, load, search, shown_queries
from clearspan.eval.tasks.task import TaskContext
from clearspan.retrieval.retrieval_set import RetrievalSet
from clearspan.retrieval.topk import top_indices
from tests.eval.data.test_retrieval import beir


def reference(queries: np.ndarray, documents: np.ndarray, grades: list[dict[int, int]]) -> dict[str, float]:
    """Return BEIR's scores from the complete sorted ranking of each query, one at a time."""
    mrr, recall_1, recall_10, ndcg = [], [], [], []
    for query, judged in zip(queries, grades, strict=True):
        scores = [float(sum(q * d for q, d in zip(query, document, strict=True))) for document in documents]
        ranking = sorted(range(len(documents)), key=lambda i: (-scores[i], -i))
        mrr.append(next(1 / rank for rank, i in enumerate(ranking, start=1) if i in judged))
        recall_1.append(len([i for i in ranking[:1] if i in judged]) / len(judged))
        recall_10.append(len([i for i in ranking[:10] if i in judged]) / len(judged))
        gain = sum(judged.get(i, 0) / math.log2(rank + 1) for rank, i in enumerate(ranking[:10], start=1))
        ideal = sorted(judged.values(), reverse=True)[:10]
        ndcg.append(gain / sum(grade / math.log2(rank + 1) for rank, grade in enumerate(ideal, start=1)))
    means = (100 * sum(values) / len(values) for values in (mrr, recall_1, recall_10, ndcg))
    return dict(zip(("mrr", "recall@1", "recall@10", "ndcg@10"), means, strict=True))


def collection(num_documents: int, judged: list[dict[int, int]]) -> RetrievalSet:
    """Return a collection with placeholder texts; `judged`: query -> position of a relevant document -> its grade."""
    return RetrievalSet(
        names=[f"{number:06}" for number in range(num_documents)],
        documents=[""] * num_documents,
        queries=[""] * len(judged),
        relevant=[np.array(list(grades)) for grades in judged],
        grades=[np.array(list(grades.values())) for grades in judged],
    )


# Small integers make exact scores with many ties.
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


@pytest.mark.guarantee("ties-by-id")
def test_equal_scores_rank_by_id_descending_as_in_trec_eval() -> None:
    """Ids are strings, of which `9` is above `10`."""
    judged = replace(collection(5, [{2: 1}]), names=["9", "10", "11", "100", "8"])
    ranked = search(np.ones((1, 1)), np.array([[1.0], [2.0], [1.0], [1.0], [1.0]]), judged)
    assert ranked.nearest == {0: [(1, 2.0), (0, 1.0), (4, 1.0)]}
    assert ranked.figures["mrr"].tolist() == [1 / 4]
    run = {"q": {name: [1.0, 2.0, 1.0, 1.0, 1.0][number] for number, name in enumerate(judged.names)}}
    theirs = pytrec_eval.RelevanceEvaluator({"q": {"11": 1}}, {"recip_rank"}).evaluate(run)
    assert theirs["q"]["recip_rank"] == 1 / 4


@pytest.mark.guarantee("ties-by-id")
def test_equal_vectors_are_equal_wherever_they_are_in_a_product_of_matrices() -> None:
    """A product of matrices rounds the sums of its last rows in another way."""
    rng = np.random.default_rng(0)
    vector = rng.normal(size=384).astype(np.float32)
    vector /= np.linalg.norm(vector)
    scores = np.tile(vector, (64, 1)) @ np.tile(vector, (1403, 1)).T
    scores[:, -3:] = np.nextafter(scores[:, -3:], np.float32(2))  # as some processors round them
    assert len(np.unique(scores)) > 1
    for row in scores:
        assert top_indices(row, 10, np.arange(1403)).tolist() == list(range(1402, 1392, -1))
        assert top_indices(row, 2000, np.arange(1403)).tolist() == list(range(1402, -1, -1))


@pytest.mark.guarantee("ties-by-id")
@pytest.mark.slow
def test_a_constant_encoder_finds_nothing_and_is_told(tmp_path: Path, shared_data: Path) -> None:
    """Whether relevant documents are first in the corpus, candidates are in order, or each query has its document."""
    corpus = [{"_id": f"d{number:03}", "title": "", "text": f"article {number}"} for number in range(200)]
    queries = [{"_id": f"q{number}", "text": f"question {number}"} for number in range(20)]
    qrels = [(f"q{number}", f"d{document:03}", 1) for number in range(20) for document in (number % 3, 5)]
    beir(tmp_path / "retrieval" / "own", corpus, queries, qrels)
    shutil.copytree(shared_data / "retrieval" / "trecqa_wang", tmp_path / "retrieval" / "trecqa")
    embedder = EmbeddingSimilarity(lambda given: np.ones((len(given), 8), np.float32))
    own, trecqa = load(tmp_path).tasks
    assert own.score(TaskContext(embedder)).scores["ndcg@10"] == 0
    assert trecqa.score(TaskContext(embedder)).scores["map"] < 45
    assert isinstance(trecqa, RetrievalTask)
    num_texts = len({*trecqa.collection.documents})
    assert embedder.warnings() == [
        f"{num_texts:,} different texts have 1 different embedding: the model is (nearly) constant, so its scores say "
        "nothing: it may have collapsed in training, or be damaged"
    ]
    lines = (shared_data / "sentences" / "wiki1m_head_11914.txt").read_text(encoding="utf-8").split("\n")[:2000]
    (tmp_path / "own.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    same = EmbeddingSimilarity(lambda given: np.ones((len(given), 8), np.float32))
    assert mean_mrr(same, [read(tmp_path / "own.jsonl").collection]) < 1


@pytest.mark.parametrize(("kinds", "told"), [(1, True), (9, True), (10, False), (1000, False)])
def test_a_model_with_fewer_than_a_hundredth_of_different_vectors_is_told(kinds: int, told: bool) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(kinds, 16)).astype(np.float32)[np.arange(1000) % kinds]
    rows *= rng.uniform(1, 2, (1000, 1))  # of one direction, whatever their length
    embedder = EmbeddingSimilarity(lambda given: rows[: len(given)])
    embedder.embed([f"text {number}" for number in range(1000)])
    assert len(embedder.warnings()) == told


def test_a_document_below_the_depth_counts_as_not_found() -> None:
    documents = np.arange(20.0, 0, -1)[:, None]
    judged = collection(20, [{5: 1}])
    assert search(np.ones((1, 1)), documents, judged, depth=6).figures["mrr"].tolist() == [pytest.approx(1 / 6)]
    assert search(np.ones((1, 1)), documents, judged, depth=5).figures["mrr"].tolist() == [0]


def test_a_query_that_is_a_document_does_not_find_itself() -> None:
    """Three captions of one photograph and one of another; each is nearest to itself."""
    documents = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.8, 0.2]])
    judged = replace(collection(4, [{1: 1, 3: 1}, {0: 1, 3: 1}]), own_document=np.array([0, 1]))
    ranked = search(documents[:2], documents, judged)
    assert ranked.figures["mrr"].tolist() == [1, 1]
    assert [[position for position, _ in nearest] for nearest in ranked.nearest.values()] == [[1, 3, 2], [0, 3, 2]]


def test_a_query_that_no_document_is_ranks_all_beside_one_that_is() -> None:
    documents = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    judged = replace(collection(3, [{1: 1}, {1: 1}]), own_document=np.array([0, -1]))
    ranked = search(documents[[0, 0]], documents, judged)
    assert ranked.figures["mrr"].tolist() == [1, 0.5]
    alone = search(np.ones((1, 1)), np.ones((1, 1)), replace(collection(1, [{0: 1}]), own_document=np.array([0])))
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
        TaskContext(
            EmbeddingSimilarity(
                lambda given: np.array(
                    [[len(set(t) & s) / len(set(t) | s) for s in letters] for t in given], np.float32
                )
            )
        )
    )
    assert scored.scores["mrr"] == 100
    assert scored.counts == {"queries": 4, "documents": 3, "queries that are documents": 2}


def test_a_relevant_document_that_the_corpus_lacks_counts_as_not_found_as_in_trec_eval(tmp_path: Path) -> None:
    texts = {"q1": "an owl hunts", "q2": "hunting owls", "q3": "the night train"}
    corpus = [{"_id": f"d{name}", "text": text} for name, text in texts.items()]
    queries = [{"_id": name, "text": text} for name, text in texts.items()]
    qrels = [("q1", "dq1", 1), ("q1", "gone", 2), ("q2", "dq2", 3), ("q3", "gone", 1), ("q3", "gone too", 1)]
    beir(tmp_path / "retrieval" / "own", corpus, queries, qrels)
    (task,) = load(tmp_path).tasks
    letters = [set(text) for text in texts.values()]

    def vectors(given: Sequence[str]) -> np.ndarray:
        return np.array([[len(set(t) & s) / len(set(t) | s) for s in letters] for t in given], np.float32)

    scored = task.score(TaskContext(EmbeddingSimilarity(vectors)))
    units = {text: vectors([text])[0] / np.linalg.norm(vectors([text])[0]) for text in texts.values()}
    run = {q: {f"d{d}": float(units[t] @ units[u]) for d, u in texts.items()} for q, t in texts.items()}
    judged = {q: {d: grade for query, d, grade in qrels if query == q} for q in texts}
    theirs = pytrec_eval.RelevanceEvaluator(judged, {"recip_rank", "recall.1,10", "ndcg_cut.10"}).evaluate(run)
    for name, measure in retrieval.MEASURES.items():
        assert scored.scores[name] == pytest.approx(100 * np.mean([each[measure] for each in theirs.values()]))
    assert scored.scores["recall@10"] == 50 and scored.counts["relevant documents not in the corpus"] == 3
    assert retrieval.remarks([task]) == [
        "retrieval/own: 3 relevant documents not in the corpus: counted as not found, as in trec_eval"
    ]


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
    scored = RetrievalTask("own", texts).score(
        TaskContext(EmbeddingSimilarity(lambda given: np.array([vectors[text] for text in given])))
    )
    (table,) = scored.details.tables
    assert table.caption == "own: query\nrelevant: right here"
    ((rank, *nearest),) = table.rows
    assert rank == 3
    assert nearest == [
        Cell("same", "cosine 1.00"),
        Cell("near", "cosine 0.80"),
        Cell("right here", "cosine 0.60", True),
    ]
