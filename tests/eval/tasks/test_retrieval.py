"""Retrieval: ranks and figures against a slow, obvious reference and against sentence-transformers' own evaluator."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval.files import DataError
from eval.models.embed import Embedder
from eval.models.library import load as load_model
from eval.tasks.retrieval import load, metrics_of, read_collection, relevant_ranks
from eval.tasks.task import Run


def beir(folder: Path, corpus: Sequence[dict], queries: Sequence[dict], qrels: Sequence[tuple[str, str, int]]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def flickr(shared_data: Path, tmp_path: Path) -> Path:
    """Captions of 60 photographs: given one, find the four others. A data folder in BEIR's layout."""
    lines = (shared_data / "retrieval/flickr8k/Flickr8k.token.txt").read_text("utf-8").split("\n")[: 60 * 5]
    captions = [(line.split("#")[0], line.split("#", 1)[1][1:].strip()) for line in lines]
    corpus, queries, qrels = [], [], []
    for i, (image, caption) in enumerate(captions):
        if i % 5 == 0:
            queries.append({"_id": image, "text": caption})
        else:
            corpus.append({"_id": f"c{i}", "title": "", "text": caption})
            qrels.append((image, f"c{i}", 1))
    beir(tmp_path / "retrieval" / "flickr", corpus, queries, qrels)
    return tmp_path


def reference(queries: np.ndarray, documents: np.ndarray, grades: list[dict[int, int]]) -> dict[str, float]:
    """BEIR's figures from the whole sorted ranking of each query, one at a time."""
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


# Small whole numbers make exact scores with many ties.
vectors = st.lists(st.integers(-2, 2), min_size=3, max_size=3)


@given(st.data())
def test_figures_are_those_of_the_whole_sorted_ranking(data: st.DataObject) -> None:
    documents = np.array(data.draw(st.lists(vectors, min_size=1, max_size=30)), np.float32)
    queries = np.array(data.draw(st.lists(vectors, min_size=1, max_size=5)), np.float32)
    judgements = st.dictionaries(st.integers(0, len(documents) - 1), st.integers(1, 3), min_size=1)
    grades = [dict(sorted(data.draw(judgements).items())) for _ in queries]
    ranks = relevant_ranks(
        queries,
        documents,
        [np.array(list(judged)) for judged in grades],
        block_scores=data.draw(st.integers(1, 200)),
    )
    found = metrics_of(ranks, [np.array(list(judged.values())) for judged in grades])
    assert found == pytest.approx(reference(queries, documents, grades), abs=1e-9)


def test_equal_scores_rank_in_corpus_order() -> None:
    ranks = relevant_ranks(np.ones((1, 1)), np.array([[1.0], [2.0], [1.0], [1.0]]), [np.array([0, 1, 3])])
    assert [r.tolist() for r in ranks] == [[2, 1, 4]]


def test_perfect_and_worst_rankings() -> None:
    perfect = metrics_of([np.array([1, 2])], [np.array([2, 1])])
    assert perfect == {"mrr": 100, "recall@1": 50, "recall@10": 100, "ndcg@10": 100}
    assert metrics_of([np.array([11, 50])], [np.array([1, 1])]) == {
        "mrr": pytest.approx(100 / 11),
        "recall@1": 0,
        "recall@10": 0,
        "ndcg@10": 0,
    }


def test_figures_agree_with_sentence_transformers_on_real_captions(flickr: Path, minilm: Path) -> None:
    evaluation = pytest.importorskip("sentence_transformers.sentence_transformer.evaluation")
    collection = read_collection(flickr / "retrieval" / "flickr")
    (task,) = load(flickr).tasks
    ours = task.score(Run(Embedder(load_model(minilm).encode))).scores
    peer = evaluation.InformationRetrievalEvaluator(
        queries={str(i): text for i, text in enumerate(collection.queries)},
        corpus={str(i): text for i, text in enumerate(collection.documents)},
        relevant_docs={str(i): set(map(str, positions)) for i, positions in enumerate(collection.relevant)},
        mrr_at_k=[len(collection.documents)],
        ndcg_at_k=[10],
        precision_recall_at_k=[1, 10],
        accuracy_at_k=[1],
        map_at_k=[1],
        write_csv=False,
    )
    sentence_transformers = pytest.importorskip("sentence_transformers")
    theirs = peer(sentence_transformers.SentenceTransformer(str(minilm), device="cpu"))
    assert ours["mrr"] == pytest.approx(100 * theirs[f"cosine_mrr@{len(collection.documents)}"], abs=1e-6)
    for metric in ("recall@1", "recall@10", "ndcg@10"):
        assert ours[metric] == pytest.approx(100 * theirs[f"cosine_{metric}"], abs=1e-6)
    assert 60 < ours["recall@10"] < 100


def test_a_document_is_its_title_and_text(tmp_path: Path) -> None:
    corpus = [{"_id": "d1", "title": "Wing", "text": "in a slipstream ."}, {"_id": "d2", "text": "no title"}]
    collection = read_collection(beir(tmp_path / "c", corpus, [{"_id": "q", "text": "wings"}], [("q", "d1", 1)]))
    assert collection.documents == ["Wing in a slipstream .", "no title"]


def test_queries_without_a_relevant_document_are_left_out(tmp_path: Path) -> None:
    corpus = [{"_id": "d1", "text": "one"}, {"_id": "d2", "text": "two"}]
    queries = [{"_id": q, "text": q} for q in ("unjudged", "irrelevant", "graded")]
    qrels = [("graded", "d2", 2), ("graded", "d1", 0), ("irrelevant", "d1", 0)]
    collection = read_collection(beir(tmp_path / "c", corpus, queries, qrels))
    assert collection.queries == ["graded"]
    assert [r.tolist() for r in collection.relevant] == [[1]]
    assert [g.tolist() for g in collection.grades] == [[2]]


def test_files_with_windows_line_ends_read_the_same(tmp_path: Path) -> None:
    contents = ([{"_id": "d1", "text": "one"}], [{"_id": "q", "text": "q"}], [("q", "d1", 1)])
    folder = beir(tmp_path / "c", *contents)
    for file in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (folder / file).write_bytes((folder / file).read_bytes().replace(b"\n", b"\r\n"))
    collection = read_collection(folder)
    assert (collection.documents, collection.relevant[0].tolist()) == (["one"], [0])


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("corpus.jsonl", '{"_id": "d1", "text": "one"}\n{"_id": \n', r"corpus\.jsonl:2: not JSON"),
        ("corpus.jsonl", "[1]\n", r"corpus\.jsonl:1: expected a JSON object"),
        ("corpus.jsonl", '{"_id": "d1"}\n', r"corpus\.jsonl:1: field text must be a string, found None"),
        ("corpus.jsonl", '{"_id": 7, "text": "one"}\n', r"corpus\.jsonl:1: field _id must be a string, found 7"),
        ("corpus.jsonl", '{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n', r":2: _id 'd1' is there twice"),
        ("queries.jsonl", '\n{"_id": "q", "text": null}\n', r"queries\.jsonl:2: field text must be a string"),
        ("qrels/test.tsv", "q\td1\t1\n", r"test\.tsv:1: expected the header"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\n", r"test\.tsv:2: expected 3 .* found 2"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td9\t1\n", r":2: corpus-id 'd9' is not in corpus\.jsonl"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nx\td1\t1\n", r":2: query-id 'x' is not in queries\.jsonl"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\thigh\n", r":2: score must be a whole number"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\tnan\n", r":2: score must be a whole number"),
        ("qrels/test.tsv", f"query-id\tcorpus-id\tscore\nq\td1\t{10**30}\n", r":2: score must be below"),
        ("qrels/test.tsv", f"query-id\tcorpus-id\tscore\nq\td1\t{'9' * 5000}\n", r":2: score must be a whole .{,90}$"),
        ("corpus.jsonl", '{"_id": "d1", "text": "\\ud800"}\n', r":1: field text holds '\\ud800', half of a character"),
        ("corpus.jsonl", '{"_id": "d1", "title": "\\udfff", "text": "a"}\n', r":1: field title holds"),
        ("queries.jsonl", '{"_id": "\\ud83d", "text": "a"}\n', r"queries\.jsonl:1: field _id holds"),
        ("corpus.jsonl", f'{{"_id": "d1", "n": {"9" * 5000}}}\n', r"corpus\.jsonl:1: cannot be read as JSON"),
        ("corpus.jsonl", '{"_id":' + "[" * 100_000, r"corpus\.jsonl:1: cannot be read as JSON: maximum recursion"),
        ("corpus.jsonl", f'{{"_id": {[1] * 9999}, "text": "a"}}\n', r":1: field _id must be a string, .{,70}$"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\t1\nq\td1\t1\n", r":3: .* is there twice"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\t0\n", r"test\.tsv: grades no document above 0"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = beir(tmp_path / "c", [{"_id": "d1", "text": "one"}], [{"_id": "q", "text": "q"}], [("q", "d1", 1)])
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read_collection(folder)
    assert "\n" not in str(error.value)


def test_a_folder_in_another_layout_is_missing_and_said_so(flickr: Path) -> None:
    (flickr / "retrieval" / "cranfield").mkdir()
    loaded = load(flickr)
    assert [task.name for task in loaded.tasks] == ["retrieval/flickr"]
    assert "corpus.jsonl, queries.jsonl, qrels/test.tsv" in loaded.missing["retrieval/cranfield"]


def test_no_collection_at_all_is_said_so(tmp_path: Path) -> None:
    assert str(tmp_path / "retrieval") in load(tmp_path).missing["retrieval"]
