"""The nearest vectors: those that sorting all of them finds, from the dataset's own model alone."""

import json
import random
import shutil
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pyarrow as pa
import pytest
from bm25s import BM25
from rich.cells import cell_len
from sentence_transformers import SentenceTransformer

import clearspan
from clearspan.pipelines.__main__ import main
from clearspan.retrieval import exact
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.hybrid import HYBRID_WEIGHT
from clearspan.retrieval.scoring import K1, B
from clearspan.retrieval.search_command import Search, SearchResults
from clearspan.retrieval.stemming import Words
from clearspan.retrieval.topk import TopK
from clearspan.retrieval.where import Condition
from clearspan.shards import Dataset, vectors
from tests.conftest import exit_code
from tests.pipelines.conftest import Command

QUERIES = ["An owl hunts at night.", "A political party of the north", "1980s"]


@pytest.fixture
def made(direct: Command, wiki: Path, encoder: Path, tmp_path: Path) -> Path:
    """A thousand lines of Wikipedia in several shards."""
    lines = wiki.read_text(encoding="utf-8").split("\n")[:1000]
    (tmp_path / "lines.txt").write_text("\n".join(lines), encoding="utf-8")
    words = ["--input", tmp_path / "lines.txt", "--text-per", "line", "--model", encoder, "--keep-text"]
    assert direct("embed", *words, "--unit-bytes", "30000").code == 0
    return tmp_path / "out"


def scores(encoder: Path, made: Path) -> np.ndarray:
    """The cosines of the queries with every vector, (queries, vectors)."""
    library = SentenceTransformer(str(encoder), device="cpu")
    rows = np.concatenate([vectors.decoded(batch) for batch in Dataset(made)])
    return library.similarity(library.encode_query(QUERIES), rows).numpy()


@pytest.mark.guarantee("exact-search")
@pytest.mark.exhaustive
def test_the_hits_are_those_of_sorting_all_scores(
    pipeline: Command, made: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(exact, "TOGETHER", 2)
    (tmp_path / "queries.txt").write_text("\n".join(QUERIES[1:]))
    words = ["search", made, "--model", encoder, "--query", QUERIES[0], "--queries", tmp_path / "queries.txt"]
    ended = pipeline(*words, "--top", "7", "--json")
    assert ended.code == 0, ended.err
    results = json.loads(ended.out)["results"]
    table = pa.Table.from_batches(list(Dataset(made)))
    assert [result["query"] for result in results] == QUERIES
    for result, row in zip(results, scores(encoder, made), strict=True):
        best = np.argsort(-row, kind="stable")[:7]
        assert [hit["id"] for hit in result["hits"]] == [table["id"][place].as_py() for place in best]
        assert [hit["text"] for hit in result["hits"]] == [table["text"][place].as_py() for place in best]
        assert [hit["source"] for hit in result["hits"]] == [table["source"][place].as_py() for place in best]
        np.testing.assert_allclose([hit["score"] for hit in result["hits"]], row[best], atol=1e-6)
    shown = pipeline(*words, "--top", "2").out
    assert QUERIES[0] in shown and results[0]["hits"][1]["source"] in shown and "-0." not in shown


@pytest.mark.guarantee("ties-by-id")
@pytest.mark.parametrize("size", [1, 3, 7])
def test_of_equal_scores_the_higher_id_is_first_whatever_the_order(size: int) -> None:
    """Also of those that differ in the last digits of float32 alone."""
    ids, scores = np.array([3, 9, 1, 7, 5, 8]), np.array([0.5, 0.1, 0.5000001, 0.5, 0.9, 0.5], np.float32)
    best = TopK(3, np.zeros(1))
    for start in range(0, 6, size):
        rows = np.arange(start, min(start + size, 6))
        best.add(scores[None, rows], rows, ids[rows], None)
    ((rows, found),) = best.found
    assert list(zip(ids[rows], found, strict=True)) == [(5, 0.9), (8, 0.5), (7, 0.5)]


@pytest.mark.guarantee("ties-by-id")
@pytest.mark.slow
@pytest.mark.parametrize("beside", [False, 1.0])
def test_texts_with_one_vector_are_found_by_id(
    made: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, beside: float | bool
) -> None:
    monkeypatch.setattr(vectors, "decoded", lambda batch: np.ones((batch.num_rows, 32), np.float32))
    hits = clearspan.search(made, QUERIES[0], encoder, top=20, hybrid=beside)
    ids = pa.Table.from_batches(list(Dataset(made)))["id"].to_pylist()
    assert [hit.id for hit in hits] == sorted(ids, reverse=True)[:20] != ids[:20]


@pytest.mark.slow
def test_fewer_vectors_than_asked_for_are_all_hits(made: Path, encoder: Path) -> None:
    hits = clearspan.search(made, QUERIES[0], encoder, top=5000)
    assert len(hits) == Dataset(made).num_examples
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


@pytest.mark.slow
def test_an_index_of_faiss_finds_nearly_the_same(
    made: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    exact = clearspan.search(made, QUERIES, encoder, top=10)
    approximate = clearspan.search(made, QUERIES, encoder, top=10, index="faiss")
    (index,) = (tmp_path / "cache").glob("*.faiss")
    for some, every in zip(approximate, exact, strict=True):
        assert len({hit.id for hit in some} & {hit.id for hit in every}) >= 5
        known = {hit.id: hit for hit in every}
        for hit in some:
            if hit.id in known:
                assert hit.score == pytest.approx(known[hit.id].score, abs=1e-5) and hit.text == known[hit.id].text
    time = index.stat().st_mtime_ns
    assert clearspan.search(made, QUERIES, encoder, top=10, index="faiss") == approximate
    assert index.stat().st_mtime_ns == time


def z(scores: np.ndarray) -> np.ndarray:
    return (scores - scores.mean()) / scores.std()


@pytest.mark.guarantee("exact-search")
@pytest.mark.exhaustive
def test_a_hybrid_search_is_that_of_scoring_every_text(
    made: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(exact, "TOGETHER", 2)
    found = clearspan.search(made, QUERIES, encoder, top=7, hybrid=0.3)
    table = pa.Table.from_batches(list(Dataset(made)))
    index = BM25(k1=K1, b=B)
    index.index([Words("english")(text) for text in table["text"].to_pylist()], show_progress=False)
    for query, hits, dense in zip(QUERIES, found, scores(encoder, made), strict=True):
        both = 0.3 * z(dense) + 0.7 * z(index.get_scores(Words("english")(query)))
        best = np.argsort(-both, kind="stable")[:7]
        assert [hit.id for hit in hits] == [table["id"][place].as_py() for place in best]
        assert [hit.text for hit in hits] == [table["text"][place].as_py() for place in best]
        np.testing.assert_allclose([hit.score for hit in hits], both[best], atol=1e-4)
    assert len(list((tmp_path / "cache").glob("*.bm25"))) == 1
    default = clearspan.search(made, QUERIES, encoder, top=7, hybrid=True)
    assert default == clearspan.search(made, QUERIES, encoder, top=7, hybrid=HYBRID_WEIGHT) != found


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), [("bm25", {"hybrid": 0.3}), ("faiss", {"index": "faiss"})])
def test_a_damaged_index_is_named_and_built_again(
    kind: str,
    options: dict[str, Any],
    made: Path,
    encoder: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if kind == "faiss":
        pytest.importorskip("faiss")
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))

    def found() -> list[list[Hit]]:
        return clearspan.search(made, QUERIES, encoder, top=7, **options)

    expected = found()
    (path,) = (tmp_path / "cache").glob(f"*.{kind}")
    whole, draws = path.read_bytes(), random.Random(kind)
    places = [draws.randrange(len(whole) - 4096) for _ in range(3)]
    for damaged in (*(whole[:at] + bytes(4096) + whole[at + 4096 :] for at in places), whole[: len(whole) // 2]):
        path.write_bytes(damaged)
        capsys.readouterr()
        assert found() == expected
        assert capsys.readouterr().err == f"{path}: damaged in the cache: made again\n"
        assert path.read_bytes() == whole


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.slow
@pytest.mark.parametrize("change", ["words", "k1"])
def test_another_version_of_what_builds_an_index_builds_another(
    change: str, made: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    clearspan.search(made, QUERIES, encoder, hybrid=True)
    if change == "words":
        monkeypatch.setattr("clearspan.common.words.VERSION", "other")
        clearspan.search(made, QUERIES, encoder, hybrid=True)
    else:
        clearspan.open_collection(made, encoder, k1=0.9).search(QUERIES, weight=0.5)
    assert len(list((tmp_path / "cache").glob("*.bm25"))) == 2


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--k1=0.9", "--b=0.4", "--stemmer=none"])
@pytest.mark.parametrize("weight", [[], ["--hybrid=1"]])
def test_an_option_of_bm25_is_refused_if_the_model_alone_ranks(
    pipeline: Command, made: Path, encoder: Path, option: str, weight: list[str]
) -> None:
    done = pipeline("search", made, "owl", "--model", encoder, option, *weight)
    assert done.code == 2 and f"{option.partition('=')[0]} has no effect, since the model alone ranks" in done.err


@pytest.mark.slow
def test_other_words_of_bm25_are_one_function_and_its_version(
    pipeline: Command, made: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Here each four characters in a row: part of a word finds the whole word."""
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))
    command = ("search", made, "includ", "--model", encoder, "--hybrid", "0", "--top", "3", "--json")
    command += ("--stemmer", "none")

    def found() -> list[str]:
        return [hit["text"].lower() for hit in json.loads(pipeline(*command).out)["results"][0]["hits"]]

    assert found() == []
    monkeypatch.setattr("clearspan.common.words.words", lambda text: [text[i : i + 4] for i in range(len(text) - 3)])
    monkeypatch.setattr("clearspan.common.words.VERSION", "other")
    assert len(hits := found()) == 3 and all("includ" in text for text in hits)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "query", "stemmer"),
    [("Die Häuser am See", "häuser", None), ("학점인정 안내", "학점인정", None), ("Tiếng Việt", "việt", None),
     ("İstanbul'da kar", "istanbul", None), ("ISI POMPASI", "ısı", "turkish"), ("A tutorial of C++", "c", None)],
)  # fmt: skip
def test_bm25_finds_a_word_in_every_form_of_unicode(
    direct: Command, encoder: Path, tmp_path: Path, text: str, query: str, stemmer: str | None
) -> None:
    """Files of macOS and texts of PDFs have marks of their own beside the letters."""
    forms = [text, normalize("NFD", text), normalize("NFKC", text).upper().replace("I\u0307", "İ")]
    (tmp_path / "lines.txt").write_text("\n".join([*forms, "An owl."]), encoding="utf-8")
    words = ["--input", tmp_path / "lines.txt", "--text-per", "line", "--model", encoder, "--keep-text", "--no-dedup"]
    assert direct("embed", *words).code == 0
    collection = clearspan.open_collection(tmp_path / "out", stemmer=stemmer)
    found = collection.search([query, normalize("NFD", query)], 5, weight=0)
    assert [{hit.record for hit in hits} for hits in found] == [{1, 2, 3}] * 2


@pytest.mark.parametrize("columns", [60, 100])
def test_hits_are_as_wide_as_the_terminal_and_no_word_is_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = "At night they hunt mice, and their wings make no sound. " * 20
    fields = {"doc": "Q-17", "title": "Owls of the northern forests", "year": 2021, "note": None, "source": "a book"}
    hits = [
        Hit(0.91, 7, "birds/owls.csv", text, 3, fields, collection="birds", id_field="doc"),
        Hit(-10.5, 5812048120481204812, "birds/bats.csv", "Bats hunt\nat night, too."),
        Hit(0.1, 9, "城市.txt", "东京塔" * 200),
    ]
    shown = str(SearchResults(["data"], ["How do owls hunt?"], [hits]))
    lines = shown.splitlines()
    assert lines[0] == "How do owls hunt?" and max(map(cell_len, lines)) <= columns < max(map(cell_len, lines)) + 10
    assert [line.split()[0] for line in lines if "." in line[:10]] == ["0.9100", "-10.5000", "0.1000"]
    words = " ".join(shown.split())
    assert "birds/owls.csv:3, doc Q-17 title: Owls of the northern forests; year: 2021; source: a book At" in words
    assert f"birds/bats.csv, id {hits[1].id} Bats hunt at night, too. 0.1000 城市.txt, id 9 东京塔" in words
    assert words.count("...") == 2 and "mice, and their wings make no sound. At night" in words
    assert set(words.partition(" At ")[2].split()[:40]) <= set(text.split())
    both = str(SearchResults(["birds", "cities"], ["owls"], [hits[:1]]))
    assert "doc Q-17 in birds" in both


def test_a_hybrid_search_needs_texts(direct: Command, pipeline: Command, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("An owl.\nA bat.\n")
    words = ["--input", tmp_path / "lines.txt", "--text-per", "line", "--model", encoder]
    assert direct("embed", *words).code == 0
    ended = pipeline("search", tmp_path / "out", "--model", encoder, "--query", "owl", "--hybrid")
    assert ended.code == 1 and "stores no texts, which BM25 needs: run embed again with --keep-text" in ended.err


def test_another_model_is_refused(pipeline: Command, made: Path, encoder: Path, tmp_path: Path) -> None:
    other = shutil.copytree(encoder, tmp_path / "other")
    (other / "config_sentence_transformers.json").write_text("{}")
    ended = pipeline("search", made, "--model", other, "--query", "owl")
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert f"--model {other}: not the model that made these vectors" in ended.err


@pytest.mark.parametrize(
    ("words", "code", "complaint"),
    [
        ([], 2, "no query: write one after the folder, or pass --queries FILE"),
        (["--query", " "], 2, "a query must be a text, and not empty"),
        (["--query", "owl", "--hybrid", "1.5"], 2, "--hybrid must be at most 1"),
        (["--query", "owl", "--hybrid", "--index", "faiss"], 2, "--hybrid scores every text: leave out --index"),
        (
            ["--query", "owl", "--index", "fais"],
            2,
            "--index fais: choose faiss, or module:Class; did you mean 'faiss'?",
        ),
        (["--query", "owl", "--where", "year"], 1, "nowhere: no manifest.json"),
        (["--query", "owl", "--where", "f()"], 2, "--where: holds a call, which does not compare a field"),
        (["--query", "a\udcff"], 2, "a query must be valid UTF-8"),
        (["--query", "owl", "--model", ""], 2, "--model: an empty text names no file or folder"),
        (["--queries", "nowhere.txt"], 2, "--queries: no file nowhere.txt"),
        (["--queries", "/"], 2, "--queries: /: is a folder: name a file in it"),
        (
            ["--query", "owl", "--prompt-name", "title"],
            2,
            "--prompt-name title: the model has document, pass",
        ),
        (["--query", "owl"], 1, "nowhere: no manifest.json"),
    ],
)
def test_bad_usage_is_one_line(
    encoder: Path, capsys: pytest.CaptureFixture[str], words: list[str], code: int, complaint: str
) -> None:
    ended = exit_code(main, "search", "nowhere", "--model", str(encoder), *words)
    shown = capsys.readouterr().err
    assert ended == code and complaint in shown and shown.count("\n") == 1


def test_a_condition_is_parsed_once(made: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse, parsed = Condition.parse, []
    monkeypatch.setattr(Condition, "parse", lambda text: parsed.append(text) or parse(text))
    with pytest.raises(ValueError, match="no field 'year'"):
        Search(folder=str(made), words=("owl",), model=str(encoder), where="year > 2020").run()
    assert parsed == ["year > 2020"]


def test_a_dataset_of_another_kind_is_refused(direct: Command, head: Path, encoder: Path, tmp_path: Path) -> None:
    assert direct("--input", head).code == 0
    ended = direct("search", tmp_path / "out", "--model", encoder, "--query", "owl")
    assert ended.code == 1 and "holds documents, not vectors that `clearspan embed` made" in ended.err
