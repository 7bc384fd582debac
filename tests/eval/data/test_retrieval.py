"""Retrieval collections as published; messages about malformed files name file and line."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.records import DataError
from clearspan.eval.data.retrieval_data import read_collection, read_cranfield, read_flickr8k, read_trecqa
from clearspan.eval.tasks.retrieval import RetrievalTask, remarks
from clearspan.retrieval.retrieval_set import RetrievalSet


def beir(folder: Path, corpus: Sequence[dict], queries: Sequence[dict], qrels: Sequence[tuple[str, str, int]]) -> Path:
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


def test_queries_without_a_relevant_document_are_left_out(tmp_path: Path) -> None:
    corpus = [{"_id": "d1", "text": "one"}, {"_id": "d2", "text": "two"}]
    queries = [{"_id": q, "text": q} for q in ("unjudged", "irrelevant", "graded")]
    qrels = [("graded", "d2", 2), ("graded", "d1", 0), ("irrelevant", "d1", 0)]
    collection = read_collection(beir(tmp_path / "c", corpus, queries, qrels))
    assert collection.queries == ["graded"]
    assert [r.tolist() for r in collection.relevant] == [[1]]
    assert [g.tolist() for g in collection.grades] == [[2]]


def test_a_relevant_document_that_the_corpus_lacks_is_kept_apart(tmp_path: Path) -> None:
    corpus = [{"_id": "d1", "text": "one"}, {"_id": "d2", "text": "two"}]
    queries = [{"_id": q, "text": q} for q in ("found", "lost", "irrelevant")]
    qrels = [("found", "gone", 3), ("found", "d2", 2), ("found", "gone too", 1), ("lost", "gone", 1)]
    collection = read_collection(beir(tmp_path / "c", corpus, queries, [*qrels, ("irrelevant", "gone", 0)]))
    assert collection.queries == ["found", "lost"] and collection.num_dropped == 1 and collection.num_absent == 3
    assert [r.tolist() for r in collection.relevant] == [[1], []]
    assert [g.tolist() for g in collection.grades] == [[2], []]
    assert [a.tolist() for a in collection.absent or ()] == [[3, 1], [1]]
    assert [a.tolist() for a in collection.select([1]).absent or ()] == [[1]]


def test_a_judged_query_without_a_text_is_left_out_and_counted(tmp_path: Path) -> None:
    qrels = [("lost", "d", 1), ("lost too", "d", 2), ("irrelevant", "d", 0), ("found", "d", 1)]
    folder = beir(tmp_path / "c", [{"_id": "d", "text": "one"}], [{"_id": "found", "text": "q"}], qrels)
    collection = read_collection(folder)
    assert (collection.queries, collection.num_unknown, collection.num_dropped) == (["q"], 2, 0)
    expected = "retrieval/c: 2 query-ids of judgments not in queries.jsonl: left out"
    assert remarks([RetrievalTask("retrieval/c", collection)]) == [expected]


def test_what_occurs_twice_counts_once(tmp_path: Path) -> None:
    corpus = [{"_id": "d1", "text": "one"}, {"_id": "d2", "text": "two"}, {"_id": "d1", "title": "", "text": "one "}]
    queries = [{"_id": "q", "text": "which?"}] * 2
    collection = read_collection(beir(tmp_path / "c", corpus, queries, [("q", "d1", 1), ("q", "d2", 2)] * 2))
    assert (collection.documents, collection.queries) == (["one", "two"], ["which?"])
    assert [graded.tolist() for graded in collection.grades] == [[1, 2]]


def test_an_id_may_be_a_whole_number(tmp_path: Path) -> None:
    corpus = [{"_id": 17, "text": "one"}, {"_id": 2**70, "text": "two"}]
    collection = read_collection(beir(tmp_path / "c", corpus, [{"_id": 0, "text": "q"}], [("0", str(2**70), 1)]))
    assert collection.names == ["17", str(2**70)] and [r.tolist() for r in collection.relevant] == [[1]]


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("corpus.jsonl", '{"_id": "d1", "text": "one"}\n{"_id": \n', r"corpus\.jsonl:2: not JSON"),
        ("corpus.jsonl", "[1]\n", r"corpus\.jsonl:1: expected a JSON object"),
        ("corpus.jsonl", '{"_id": "d1"}\n', r"corpus\.jsonl:1: field text must"),
        (
            "corpus.jsonl",
            '{"_id": "d1", "text": "a"}\n{"_id": "d1", "text": "b"}\n',
            r"corpus\.jsonl:2: _id 'd1' occurs twice",
        ),
        ("qrels/test.tsv", "q\td1\t1\n", r"test\.tsv:1: .*header.* query-id"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\n", r"test\.tsv:2: expected 3 .* found 2"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td9\t1\n", r"test\.tsv: there is no corpus-id 'd9'"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nx\td1\t1\n", r"test\.tsv: there is no query-id 'x'"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\thigh\n", r"test\.tsv:2: score must be an integer"),
        ("qrels/test.tsv", f"query-id\tcorpus-id\tscore\nq\td1\t{10**30}\n", r"test\.tsv:2: score must be below"),
        ("corpus.jsonl", '{"_id": "d1", "text": "\\ud800"}\n', r"corpus\.jsonl:1: field text holds '\\ud800'"),
        ("corpus.jsonl", '{"_id":' + "[" * 100_000, r"corpus\.jsonl:1: not JSON \(maximum recursion"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\t1\nq\td1\t2\n", r":3: .* score 2 here, and 1 above"),
        ("qrels/test.tsv", "query-id\tcorpus-id\tscore\nq\td1\t0\n", r"test\.tsv: grades no"),
    ],
)
def test_a_malformed_file_is_named_with_its_line(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = beir(tmp_path / "c", [{"_id": "d1", "text": "one"}], [{"_id": "q", "text": "q"}], [("q", "d1", 1)])
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read_collection(folder)
    assert "\n" not in str(error.value)


@pytest.mark.published("retrieval")
def test_cranfields_queries_go_by_their_place(shared_data: Path) -> None:
    """The second query is numbered 2 and the third 4; the judgments number the third 3."""
    collection = read_cranfield(shared_data / "retrieval" / "cranfield")
    assert (len(collection.documents), len(collection.queries), collection.num_dropped) == (1400, 225, 0)
    rows = np.loadtxt(shared_data / "retrieval/cranfield/cranqrel", np.int64)
    of_third = {document - 1: 5 - code for query, document, code in rows.tolist() if query == 3 and code > 0}
    assert dict(zip(collection.relevant[2].tolist(), collection.grades[2].tolist(), strict=True)) == of_third
    assert collection.queries[2].startswith("what problems of heat conduction in composite slabs")
    assert sum(map(len, collection.relevant)) == 128 + 387 + 734 + 363


@pytest.mark.published("retrieval")
def test_cranfields_title_stands_once_and_empty_documents_stay(shared_data: Path) -> None:
    documents = read_cranfield(shared_data / "retrieval" / "cranfield").documents
    assert documents[0].count("experimental investigation of the aerodynamics of a wing in a slipstream .") == 1
    assert [number for number, text in enumerate(documents, start=1) if not text] == [471, 995]


@pytest.mark.published("retrieval")
@pytest.mark.slow
def test_each_caption_has_the_others_of_its_photograph(shared_data: Path) -> None:
    collection = read_flickr8k(shared_data / "retrieval" / "flickr8k")
    assert len(collection.queries) == len(collection.documents) == 40460
    assert collection.own_document is not None
    assert collection.queries[1] == "A girl going into a wooden building ."
    assert collection.relevant[1].tolist() == [0, 2, 3, 4]
    assert all(len(rows) == 4 for rows in collection.relevant)
    assert not any(own in rows for own, rows in zip(collection.own_document, collection.relevant, strict=True))


@pytest.mark.published("retrieval")
def test_trecqa_keeps_questions_with_a_right_and_a_wrong_answer(shared_data: Path) -> None:
    """The clean test set has 68 questions, as papers report."""
    collection = read_trecqa(shared_data / "retrieval" / "trecqa_wang")
    assert (len(collection.queries), len(collection.documents), collection.num_dropped) == (68, 1442, 27)
    assert collection.candidates is not None
    for ranked, relevant in zip(collection.candidates, collection.relevant, strict=True):
        assert 0 < len(relevant) < len(ranked)
        assert set(relevant) <= set(ranked)
    assert np.concatenate(collection.candidates).tolist() == list(range(1442))


CRANFIELD = {
    "cran.all.1400": ".I 1\n.T\nwings\n.W\nwings in flow\n",
    "cran.qry": ".I 7\n.W\nwings ?\n",
    "cranqrel": "1 1 2\n",
}


@pytest.mark.parametrize(
    ("read", "file", "content", "message"),
    [
        (read_cranfield, "cranqrel", "1 1\n", r"cranqrel:1: expected query, document and a code"),
        (read_cranfield, "cranqrel", "1 1 2\n1 9 2\n", r"cranqrel:2: there is no document '9'"),
        (read_cranfield, "cranqrel", "1 1 -1\n", r"cranqrel: grades no document above 0"),
        (read_cranfield, "cran.qry", "wings ?\n", r"cran\.qry:1: expected \.I and a number"),
        (read_cranfield, "cran.all.1400", "", r"cran\.all\.1400: holds no record"),
        (read_flickr8k, "Flickr8k.token.txt", "a.jpg\tA dog .\n", r"token\.txt:1: expected photograph#number"),
        (read_flickr8k, "Flickr8k.token.txt", "a.jpg#0\tA dog .\n", r"token\.txt: 'a\.jpg' has only one caption"),
        (read_flickr8k, "Flickr8k.token.txt", "\n", r"token\.txt: holds no caption"),
        (read_trecqa, "test.csv", "qtext,label,atext\nWho ?,1\n", r"test\.csv:2: expected 3 fields"),
        (read_trecqa, "test.csv", "qtext,label,atext\nWho ?,yes,He .\n", r"test\.csv:2: label must be 0 or 1"),
        (read_trecqa, "test.csv", "qtext,label,atext\nWho ?,1,He .\n", r"test\.csv: no question has both"),
        (read_trecqa, "test.csv", 'qtext,label,atext\n"Who ?,1,He .\n', r"test\.csv:\d+: not a csv row"),
    ],
)
def test_a_malformed_published_file_is_named_with_its_line(
    tmp_path: Path, read: Callable[[Path], RetrievalSet], file: str, content: str, message: str
) -> None:
    for name, whole in CRANFIELD.items():
        (tmp_path / name).write_text(whole)
    (tmp_path / file).write_text(content)
    with pytest.raises(DataError, match=message) as error:
        read(tmp_path)
    assert "\n" not in str(error.value)
