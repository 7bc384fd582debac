"""Search finds what scoring every text finds: by numpy, with documents in chunks, conditions, several collections."""

import itertools
import json
import math
import operator
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import bm25s
import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.numpy import load_file, save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer

import clearspan
from clearspan.common.errors import PipelineError
from clearspan.common.terminal import UsageError
from clearspan.eval.models.lexical import Lexical
from clearspan.pipelines.__main__ import main
from clearspan.plugins import faiss_index
from clearspan.plugins.faiss_index import MIN_LISTS, SAMPLED
from clearspan.retrieval import exact, texts
from clearspan.retrieval.bm25 import BM25
from clearspan.retrieval.collection import SearchSettings, open_collection, write_collection
from clearspan.retrieval.hits import Hit
from clearspan.retrieval.products import products
from clearspan.retrieval.scoring import DEFAULT, K1, B, Scoring
from clearspan.retrieval.stemming import KOREAN, PLAIN, STEMMERS, Words
from clearspan.retrieval.where import Condition, ConditionError, quoted_name
from clearspan.serve.compare import SearchRequest, SideBySide
from clearspan.serve.serve_command import Serve
from clearspan.shards import Dataset, vectors
from clearspan.shards.reader import ShardError
from tests.conftest import ROOT, exit_code
from tests.pipelines.conftest import without_beam
from tests.serve.served import served

QUERIES = ["An owl hunts at night.", "the north of the country", "A political party won in 1980", "zzzz"]
TOP = 7
Make = Callable[..., Path]


@pytest.fixture(scope="module")
def model(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A static model with random vectors."""
    torch.manual_seed(0)
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json"))
    path = tmp_path_factory.mktemp("model") / "model"
    modules = [StaticEmbedding(tokenizer, embedding_dim=16)]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(path))
    return path


@pytest.fixture(scope="module")
def records(wiki: Path, openwebtext: Path) -> dict[str, list[dict[str, Any]]]:
    """Lines of Wikipedia, a tenth of them twice, and long articles; with fields that some lack."""
    lines = wiki.read_text(encoding="utf-8").split("\n")[:220]
    lines += lines[:20]
    made = {"lines": [{"text": line} for line in lines]}
    with openwebtext.open(encoding="utf-8") as articles:
        made["articles"] = [{"text": json.loads(next(articles))["text"]} for _ in range(24)]
        made["articles"] += made["articles"][:3]
    for rows in made.values():
        for number, row in enumerate(rows):
            row |= {"year": 2000 + number % 30 if number % 7 else None, "lang": ("de", "fr", "en")[number % 3]}
    return made


@pytest.fixture(scope="module")
def embedded(
    model: Path, records: dict[str, list[dict[str, Any]]], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Make]:
    """Embed a part of the records, in files of ten, with further options; once for all tests."""
    known: dict[tuple[str, ...], Path] = {}

    def make(name: str, part: slice = slice(None), *options: str) -> Path:
        key = (name, str(part), *options)
        if key not in known:
            folder = tmp_path_factory.mktemp("search")
            lines = [json.dumps(row) + "\n" for row in records[name][part]]
            for number, start in enumerate(range(0, len(lines), 10)):
                (folder / f"in-{number:02}.jsonl").write_text("".join(lines[start : start + 10]), encoding="utf-8")
            given = ["--input", str(folder / "in-*.jsonl"), "--output", str(folder / "out"), "--model", str(model)]
            given += ["--keep-text", "--keep-fields", "year,lang", "--unit-bytes", "9000", "--quiet", *options]
            assert exit_code(main, "embed", *given) == 0
            known[key] = folder / "out"
        return known[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clearspan.pipelines.run._run_beam", without_beam)
        yield make


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Many blocks and several parts of the queries."""
    monkeypatch.setattr(texts, "FIRST_ROWS", 8)
    monkeypatch.setattr(texts, "MAX_ROWS", 32)
    monkeypatch.setattr(exact, "TOGETHER", 3)
    monkeypatch.setenv("CLEARSPAN_CACHE", str(tmp_path / "cache"))


class Row(NamedTuple):
    score: float
    id: int
    place: int
    document: tuple[Any, ...]


def z(scores: np.ndarray) -> np.ndarray:
    """Scores with mean 0 and deviation 1; equal ones become 0."""
    return (scores - scores.mean()) / scores.std() if scores.std() > 1e-9 else 0 * scores


def table_of(folders: list[Path]) -> list[dict[str, Any]]:
    """All rows with their vectors, and the number of their folder."""
    rows = []
    for number, folder in enumerate(folders):
        for batch in Dataset(folder):
            wide = vectors.decoded(batch).astype(np.float64)
            names = [name for name in batch.schema.names if name != "vector"]
            plain = pa.RecordBatch.from_arrays([batch.column(name) for name in names], names).to_pylist()
            rows += [row | {"vector": vector, "number": number} for row, vector in zip(plain, wide, strict=True)]
    return rows


def everything(
    folders: list[Path],
    model: Path,
    weight: float,
    keeps: Callable[[dict[str, Any]], bool] = lambda _: True,
    of: Callable[[str], list[str]] = Words("english"),  # noqa: B008  # the texts are English
    k1: float = K1,
    b: float = B,
) -> list[list[Row]]:
    """The hits of each query: all texts are scored, the best chunk stays for a document, and all are sorted."""
    rows = table_of(folders)
    library = SentenceTransformer(str(model), device="cpu")
    all_vectors = np.array([row["vector"] for row in rows])
    all_vectors /= np.linalg.norm(all_vectors, axis=1, keepdims=True)
    index = bm25s.BM25(k1=k1, b=b)
    index.index([of(row["text"]) for row in rows], show_progress=False)
    hits = []
    for query in QUERIES:
        vector = library.encode_query(query).astype(np.float64)
        dense = all_vectors @ (vector / np.linalg.norm(vector))
        known = [word for word in of(query) if word in index.vocab_dict]
        lexical = index.get_scores(known).astype(np.float64) if known else np.zeros(len(rows))
        scores = weight * z(dense) + (1 - weight) * z(lexical)
        scores = {1.0: dense, 0.0: lexical}.get(weight, scores)
        best: dict[Any, Row] = {}
        for place, (row, score) in enumerate(zip(rows, scores.round(6).tolist(), strict=True)):
            document = (row["number"], row["source"], row["record"])
            identity = row.get("document", row["id"])
            if not keeps(row) or (weight == 0 and score <= 0):
                continue
            if document not in best or score > best[document].score:
                best[document] = Row(score, identity, place, document)
        hits.append(sorted(best.values(), key=lambda row: (-row.score, -row.id, row.place))[:TOP])
    return hits


def check(found: list[list[Any]], expected: list[list[Row]], folders: list[Path]) -> None:
    """The same documents in the same order, but those whose scores are equal to 4 decimals may change places."""
    rows = table_of(folders)
    for hits, best in zip(found, expected, strict=True):
        np.testing.assert_allclose([hit.score for hit in hits], [row.score for row in best], atol=2e-4)
        assert [hit.id for hit in hits] == [row.id for row in best]
        for hit, row in zip(hits, best, strict=True):
            full = rows[row.place]
            assert (hit.text, hit.record, hit.chunk) == (full["text"], full["record"], full.get("chunk"))
            assert hit.fields == {"year": full["field_year"], "lang": full["field_lang"]}
            assert hit.collection == str(folders[full["number"]])


WEIGHTS = [1.0, 0.4, 0.0]


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("dtype", ["float32", "float16", "int8"])
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.slow
def test_the_hits_are_those_of_scoring_every_text(embedded: Make, model: Path, dtype: str, weight: float) -> None:
    """Of all types of stored vectors; a second search of a collection that stays open gives the same."""
    made = embedded("lines", slice(None), "--vector-dtype", dtype)
    collection = clearspan.open_collection(made, model)
    found = collection.search(QUERIES, TOP, weight=weight)
    check(found, everything([made], model, weight), [made])
    assert collection.search(QUERIES, TOP, weight=weight) == found
    assert open_collection(made, model, keep=False).search(QUERIES, TOP, weight=weight) == found


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.slow
def test_a_hit_of_chunks_is_the_document_with_its_best_chunk(embedded: Make, model: Path, weight: float) -> None:
    made = embedded("articles", slice(None), "--chunk-tokens", "48", "--chunk-overlap", "12")
    assert Dataset(made).num_examples > 100
    found = clearspan.open_collection(made, model).search(QUERIES, TOP, weight=weight)
    check(found, everything([made], model, weight), [made])
    assert all(len({(hit.source, hit.record) for hit in hits}) == len(hits) for hits in found)


CONDITIONS: list[tuple[str, Callable[[dict[str, Any]], bool]]] = [
    ("year > 2020 and lang = 'de'", lambda row: (row["field_year"] or 0) > 2020 and row["field_lang"] == "de"),
    ("not year > 2020", lambda row: row["field_year"] is not None and not row["field_year"] > 2020),
    ("year is null or lang in ('fr')", lambda row: row["field_year"] is None or row["field_lang"] == "fr"),
    ("2003 <= year < 2005", lambda row: row["field_year"] in (2003, 2004)),
    ("year = 1066", lambda row: False),
]


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize(("where", "keeps"), CONDITIONS)
@pytest.mark.parametrize("kind", ["lines", "articles"])
@pytest.mark.slow
def test_a_condition_takes_hits_out_and_changes_no_score(
    embedded: Make, model: Path, where: str, keeps: Callable[[dict[str, Any]], bool], kind: str
) -> None:
    made = embedded(kind, slice(None), *(["--chunk-tokens", "48", "--chunk-overlap", "12"] * (kind == "articles")))
    collection = clearspan.open_collection(made, model)
    for weight in WEIGHTS:
        found = collection.search(QUERIES, TOP, weight=weight, where=where)
        check(found, everything([made], model, weight, keeps), [made])


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.slow
def test_several_collections_are_searched_as_one(embedded: Make, model: Path, weight: float) -> None:
    """One of texts, one of chunks; and two halves give what the whole gives."""
    parts = [embedded("lines", slice(0, 100)), embedded("lines", slice(100, None))]
    found = clearspan.open_collection(parts[0], model, also=parts[1:]).search(QUERIES, TOP, weight=weight)
    check(found, everything(parts, model, weight), parts)
    whole = clearspan.open_collection(embedded("lines"), model).search(QUERIES, TOP, weight=weight)
    for one, other in zip(found, whole, strict=True):
        assert [(hit.id, hit.text) for hit in one] == [(hit.id, hit.text) for hit in other]
        np.testing.assert_allclose([hit.score for hit in one], [hit.score for hit in other], atol=1e-5)
    mixed = [parts[0], embedded("articles", slice(None), "--chunk-tokens", "48", "--chunk-overlap", "12")]
    found = clearspan.open_collection(mixed[0], model, also=mixed[1:]).search(QUERIES, TOP, weight=weight)
    check(found, everything(mixed, model, weight), mixed)


@pytest.fixture(params=["faiss", "example"])
def index(request: pytest.FixtureRequest, own_module: Callable[[str], str]) -> str:
    """Indexes that are exact: the example's, and that of faiss for few vectors."""
    if request.param == "faiss":
        pytest.importorskip("faiss")
        return "faiss"
    return own_module((ROOT / "examples" / "extend" / "flat_index.py").read_text(encoding="utf-8")) + ":Flat"


CHUNKS = ("--chunk-tokens", "48", "--chunk-overlap", "12")


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("kind", "options"), [("lines", ()), ("lines", ("--vector-dtype", "int8")), ("articles", CHUNKS)]
)
@pytest.mark.slow
def test_an_index_that_is_exact_finds_the_hits_of_scoring_every_text(
    embedded: Make, model: Path, index: str, kind: str, options: tuple[str, ...], keep: bool
) -> None:
    """Of texts and of chunks, with each condition; a search with BM25 scores every text as without an index."""
    made = embedded(kind, slice(13, 24) if options == CHUNKS else slice(None), *options)
    assert 100 < Dataset(made).num_examples < MIN_LISTS * SAMPLED, "faiss makes lists of more"
    collection = open_collection(made, model, index=index, keep=keep)
    check(collection.search(QUERIES, TOP), everything([made], model, 1.0), [made])
    for where, keeps in CONDITIONS:
        check(collection.search(QUERIES, TOP, where=where), everything([made], model, 1.0, keeps), [made])
    for weight in (0.4, 0.0):
        check(collection.search(QUERIES, TOP, weight=weight), everything([made], model, weight), [made])


@pytest.mark.slow
def test_the_lists_of_faiss_give_as_many_hits_as_there_are(
    embedded: Make, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index may miss a hit, but leaves no place empty: it is searched deeper, and reads more lists."""
    pytest.importorskip("faiss")
    made = embedded("articles", slice(None), *CHUNKS)
    assert Dataset(made).num_examples > 2 * MIN_LISTS * SAMPLED
    monkeypatch.setattr(faiss_index, "MIN_LISTS", 1)  # one list of about twenty
    collection = clearspan.open_collection(made, model, index="faiss")
    for where, keeps in [(None, lambda row: True), *CONDITIONS]:
        found = collection.search(QUERIES, TOP, where=where)
        for hits, every in zip(found, everything([made], model, 1.0, keeps), strict=True):
            assert len(hits) == len(every) == len({(hit.source, hit.record) for hit in hits})
            assert all(keeps({f"field_{name}": value for name, value in hit.fields.items()}) for hit in hits)
            assert [(-hit.score, -hit.id) for hit in hits] == sorted((-hit.score, -hit.id) for hit in hits)
    assert len(clearspan.open_collection(made, model, index="faiss").search("owls", 100)) == 27


@pytest.mark.guarantee("exact-search")
@pytest.mark.slow
def test_an_index_is_one_over_several_collections(embedded: Make, model: Path, index: str) -> None:
    mixed = [embedded("lines", slice(0, 100)), embedded("articles", slice(16, 24), *CHUNKS)]
    found = clearspan.open_collection(mixed[0], model, also=mixed[1:], index=index).search(QUERIES, TOP)
    check(found, everything(mixed, model, 1.0), mixed)


@pytest.mark.slow
def test_every_door_takes_an_index(
    embedded: Make, model: Path, index: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same hits and the same ranks of relevant documents, from the command line, from Python and on the page."""
    made = embedded("lines")
    exact_hits = clearspan.open_collection(made, model).search(QUERIES, TOP, where="year > 2010")
    expected = [[(pytest.approx(hit.score, abs=1e-5), hit.id, hit.text) for hit in hits] for hits in exact_hits]

    def told(all_hits: list[list[Hit]]) -> list[list[tuple[float, int, str | None]]]:
        return [[(hit.score, hit.id, hit.text) for hit in hits] for hits in all_hits]

    assert told(clearspan.search(made, QUERIES, model, top=TOP, where="year > 2010", index=index)) == expected
    queries = [{"query": query, "text": hits[3].text} for query, hits in zip(QUERIES, exact_hits, strict=True)]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries), encoding="utf-8")
    results = []
    for more in (["--index", index], []):
        words = ["--model", str(model), "--queries", str(tmp_path / "queries.jsonl"), "--where", "year > 2010", *more]
        assert exit_code(main, "search", str(made), *words, "--top", str(TOP), "--json", "--quiet") == 0
        results.append(json.loads(capsys.readouterr().out))
    found = [[(hit["score"], hit["id"], hit["text"]) for hit in each["hits"]] for each in results[0]["results"]]
    assert found == expected and results[0]["answers"] == results[1]["answers"]
    assert [each["rank"] for each in results[0]["results"]] == [each["rank"] for each in results[1]["results"]]
    opened = Serve(folder=str(made), model=str(model), index=index).opened(keep=True)
    request = SearchRequest.model_validate({"q": QUERIES[0], "top": str(TOP), "where": "year > 2010"})
    page, without = (SideBySide(each, None).search(request) for each in (opened, open_collection(made, model)))
    by_page = {each["key"]: [(hit["id"], hit["record"]) for hit in each["hits"]] for each in page["systems"]}
    assert by_page == {each["key"]: [(hit["id"], hit["record"]) for hit in each["hits"]] for each in without["systems"]}
    assert [identity for identity, _ in by_page["model"]] == [identity for _, identity, _ in expected[0]]
    assert opened._index.texts is opened.texts, "the page has asked the index"


def test_an_index_needs_a_model_and_a_name_that_there_is(embedded: Make, model: Path) -> None:
    made = embedded("lines")
    for options, complaint in (
        ({"index": "faiss"}, "`index` searches by a model, and .* names none: pass `model` DIR"),
        ({"index": "fais", "model": model}, "`index` fais: choose faiss, or module:Class; did you mean 'faiss'"),
    ):
        with pytest.raises(UsageError, match=complaint):
            clearspan.open_collection(made, **options)


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("options", [(), ("--chunk-tokens", "48")], ids=["texts", "chunks"])
@pytest.mark.slow
def test_a_collection_that_was_updated_is_searched_as_it_is_now(
    embedded: Make, model: Path, records: dict[str, list[dict[str, Any]]], options: tuple[str, ...], tmp_path: Path
) -> None:
    """What is gone is found no more, what is new is found; an index of the texts before is not used."""
    rows, made, source = records["lines"], tmp_path / "out", tmp_path / "in.jsonl"
    given = ["embed", "--input", str(source), "--output", str(made), "--model", str(model), "--unit-bytes", "9000"]
    given += ["--keep-text", "--keep-fields", "year,lang", "--quiet", *options]

    def embed(some: list[dict[str, Any]], *more: str) -> None:
        source.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
        assert exit_code(main, *given, *more) == 0

    embed(rows[:150])
    before = [clearspan.open_collection(made, model).search(QUERIES, TOP, weight=weight) for weight in WEIGHTS]
    embed(rows[70:], "--update")
    for weight, old in zip(WEIGHTS, before, strict=True):
        found = clearspan.open_collection(made, model).search(QUERIES, TOP, weight=weight)
        check(found, everything([made], model, weight), [made])
        assert found != old


@pytest.mark.slow
def test_a_collection_that_was_opened_before_an_update_says_so(
    model: Path, records: dict[str, list[dict[str, Any]]], tmp_path: Path
) -> None:
    """Held in memory it is searched as it was; otherwise one line says what to do. What is damaged is named so."""
    made, source = tmp_path / "out", tmp_path / "in.jsonl"
    given = ["embed", "--input", str(source), "--output", str(made), "--model", str(model), "--keep-text", "--quiet"]

    def embed(some: list[dict[str, Any]], *more: str) -> None:
        source.write_text("".join(json.dumps(row) + "\n" for row in some), encoding="utf-8")
        assert exit_code(main, *given, *more) == 0

    embed(records["lines"][:60])
    held, read = (clearspan.open_collection(made, model, keep=keep) for keep in (True, False))
    before = held.search(QUERIES, TOP)
    ranked = read.ranked(QUERIES, TOP)
    for first in (20, 40):  # the second update uses the first one's names of shards again
        embed(records["lines"][first:80], "--update")
        assert held.search(QUERIES, TOP) == before
        for search in (lambda: read.search(QUERIES, TOP), lambda: read.texts.hits(ranked)):
            with pytest.raises(
                PipelineError, match=r"out: was updated .* after it was opened: open the collection again, or restart"
            ):
                search()
    opened = clearspan.open_collection(made, model, keep=False)
    next(made.glob("*.tar")).write_bytes(b"")
    with pytest.raises(ShardError):
        opened.search(QUERIES, TOP)


@pytest.mark.slow
def test_a_title_that_is_embedded_counts_for_bm25(model: Path, tmp_path: Path) -> None:
    rows = [{"title": "Owls", "text": "They hunt at night."}, {"title": None, "text": "They sleep at night."}]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    given = ["embed", "--input", str(tmp_path / "in.jsonl"), "--model", str(model), "--keep-text", "--quiet"]
    assert exit_code(main, *given, "--output", str(tmp_path / "with"), "--title-field", "title") == 0
    assert exit_code(main, *given, "--output", str(tmp_path / "without"), "--keep-fields", "title") == 0
    (hit,) = clearspan.open_collection(tmp_path / "with").search("owls", weight=0)
    assert (hit.record, hit.text) == (1, "They hunt at night.")
    assert clearspan.open_collection(tmp_path / "without").search("owls", weight=0) == []


@pytest.mark.parametrize("measure", ["dot", "euclidean", "manhattan"])
@pytest.mark.slow
def test_the_model_chooses_the_similarity(embedded: Make, model: Path, measure: str) -> None:
    """Of distances, mean and deviation come from a pass over all vectors."""
    made = embedded("lines")
    collection = open_collection(made, model)
    encoder = collection._encoder
    encoder.similarity_name = measure
    rows = np.array([row["vector"] for row in table_of([made])])
    queries = encoder.encode_query(QUERIES).astype(np.float64)
    all_scores = {
        "dot": queries @ rows.T,
        "euclidean": -np.sqrt(((queries[:, None] - rows) ** 2).sum(axis=2)),
        "manhattan": -np.abs(queries[:, None] - rows).sum(axis=2),
    }[measure]
    for weight in (1.0, 0.999999):
        found = collection.search(QUERIES, TOP, weight=weight)
        for hits, row in zip(found, all_scores, strict=True):
            scores = row if weight == 1 else z(row)
            np.testing.assert_allclose([hit.score for hit in hits], np.sort(scores)[::-1][:TOP], rtol=1e-4, atol=1e-3)


def test_a_vector_whose_squares_exceed_float32_has_its_length() -> None:
    rows = np.array([[3e20, 4e20], [3, 4], [0, 0], [3e38, -3e38]], np.float32)
    np.testing.assert_allclose(texts.lengths_of(rows), [5e20, 5, 0, np.finfo(np.float32).max], rtol=1e-6)


@pytest.mark.guarantee("exact-search")
@pytest.mark.parametrize("weight", [1.0, 0.6])
@pytest.mark.slow
def test_the_cosine_of_very_long_vectors_is_that_of_their_directions(
    embedded: Make, model: Path, weight: float, tmp_path: Path
) -> None:
    made = embedded("lines")
    long = shutil.copytree(model, tmp_path / "long")
    table = load_file(weights := long / "model.safetensors")
    save_file({name: values * np.float32(1e20) for name, values in table.items()}, weights)
    given = ["--input", str(made.parent / "in-*.jsonl"), "--output", str(tmp_path / "out"), "--model", str(long)]
    assert exit_code(main, "embed", *given, "--keep-text", "--quiet") == 0
    expected = open_collection(made, model).search(QUERIES[:3], TOP, weight=weight)
    for hits, usual in zip(
        open_collection(tmp_path / "out", long).search(QUERIES[:3], TOP, weight=weight), expected, strict=True
    ):
        assert [hit.id for hit in hits] == [hit.id for hit in usual]
        np.testing.assert_allclose([hit.score for hit in hits], [hit.score for hit in usual], atol=1e-5)


@pytest.mark.guarantee("ties-by-id")
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.slow
def test_equal_texts_of_two_collections_stay_in_the_order_of_the_collections(
    embedded: Make, model: Path, weight: float
) -> None:
    parts = [embedded("lines", slice(0, 100)), embedded("lines", slice(200, 240))]
    found = clearspan.open_collection(parts[0], model, also=parts[1:]).search(QUERIES[:3], 60, weight=weight)
    for hits in found:
        assert [(-hit.score, -hit.id) for hit in hits] == sorted((-hit.score, -hit.id) for hit in hits)
        twice = [hit for hit in hits if sum(hit.id == other.id for other in hits) > 1]
        assert [hit.collection for hit in twice[::2]] == [str(parts[0])] * (len(twice) // 2) or not twice


@pytest.mark.guarantee("kept-things-checked")
@pytest.mark.slow
def test_damaged_moments_are_named_and_computed_again(
    embedded: Make, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = embedded("lines")
    expected = clearspan.open_collection(made, model).search(QUERIES, TOP, weight=0.4)
    (path,) = (tmp_path / "cache").glob("*.moments")
    whole = path.read_bytes()
    for damaged in (whole[:-400] + bytes(400), whole[: len(whole) // 2], b""):
        path.write_bytes(damaged)
        capsys.readouterr()
        assert clearspan.open_collection(made, model).search(QUERIES, TOP, weight=0.4) == expected
        assert capsys.readouterr().err == f"{path}: damaged in the cache: made again\n"
        assert path.read_bytes() == whole


@pytest.mark.slow
def test_a_stemmer_finds_other_forms_of_a_word(embedded: Make, model: Path, tmp_path: Path) -> None:
    made = embedded("lines")
    found = clearspan.open_collection(made, stemmer="english").search(QUERIES, TOP, weight=0)
    assert clearspan.open_collection(made).search(QUERIES, TOP, weight=0) == found
    plain = clearspan.open_collection(made, stemmer="none").search(QUERIES, TOP, weight=0)
    check(plain, everything([made], model, 0.0, of=PLAIN), [made])
    assert plain != found and len(list((tmp_path / "cache").glob("*.bm25"))) == 2
    assert Words("german")("Die Häuser, das Haus")[1::2] == ["haus", "haus"]


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.slow
def test_search_page_and_eval_score_with_the_k1_and_b_of_a_folder(embedded: Make, model: Path, tmp_path: Path) -> None:
    made, folder = embedded("lines"), tmp_path / "adapted"
    folder.mkdir()
    write_collection(folder, SearchSettings(str(made), str(model), 0.0, "english", k1=0.6, b=0.9))
    collection = clearspan.open_collection(folder)
    found = collection.search(QUERIES, TOP)
    scores = [[hit.score for hit in hits] for hits in found]
    given = clearspan.open_collection(made, stemmer="english", k1=0.6, b=0.9).search(QUERIES, TOP, weight=0)
    check(given, everything([made], model, 0.0, k1=0.6, b=0.9), [made])
    assert [[hit.score for hit in hits] for hits in given] == scores
    plain = clearspan.open_collection(made).search(QUERIES, TOP, weight=0)
    assert [[hit.score for hit in hits] for hits in plain] != scores
    with served(collection) as site:
        systems = {each["key"]: each for each in site.search(QUERIES[0], top=TOP).json["systems"]}
    assert [hit["score"] for hit in systems["bm25"]["hits"]] == pytest.approx(scores[0], abs=1e-6)
    stored = [row["text"] for row in table_of([made])]
    of_eval = products(*Lexical("bm25:english", Scoring(k1=0.6, b=0.9)).ranking(QUERIES, stored))
    assert [sorted(row, reverse=True)[: len(each)] for row, each in zip(of_eval, scores, strict=True)] == [
        pytest.approx(each, abs=1e-5) for each in scores
    ]


class Trigrams:
    """Another tokenizer for BM25: the letters of a text in threes, whatever its words."""

    @property
    def key(self) -> dict[str, str | int]:
        return {"words": "trigrams", "version": 1}

    def __call__(self, text: str) -> list[str]:
        letters = " ".join(text.lower().split())
        return [letters[start : start + 3] for start in range(len(letters) - 2)]


@pytest.mark.slow
def test_another_tokenizer_for_bm25_is_a_function_of_a_text_with_a_key(embedded: Make, tmp_path: Path) -> None:
    texts = clearspan.open_collection(embedded("lines")).texts
    stored = [text for _, _, batch in texts.batches("") for text in batch.column("text").to_pylist()]
    scores = BM25.of_collection(texts, Scoring(Trigrams())).scores(["encyclop"]).array()
    expected = BM25.of(stored, Scoring(Trigrams())).scores(["encyclop"]).array()
    assert scores[0] == pytest.approx(expected[0], rel=1e-5)
    assert all(score > 0 for score, text in zip(scores[0], stored, strict=True) if "encyclop" in text.lower())
    BM25.of_collection(texts, DEFAULT)
    assert len(list((tmp_path / "cache").glob("*.bm25"))) == 2  # another key, another index


def test_pystemmer_has_every_language_that_can_be_chosen() -> None:
    import Stemmer

    assert {*STEMMERS} - {KOREAN} <= set(Stemmer.algorithms())
    with pytest.raises(ValueError, match="`stemmer` klingon: choose arabic"):
        Words("klingon")


@pytest.mark.slow
def test_bm25_alone_needs_no_model_and_finds_only_texts_with_a_word_of_the_query(embedded: Make) -> None:
    collection = clearspan.open_collection(embedded("lines"))
    (hits, none) = collection.search(["Wikipedia encyclopedia philosophy", "zzzz"], 500, weight=0)
    assert none == [] and all(set(PLAIN(str(hit.text))) & set(PLAIN(hits[0].text)) for hit in hits)
    with pytest.raises(PipelineError, match="names no model: pass `model` DIR"):
        collection.search("owls", weight=0.5)


@pytest.mark.slow
def test_vectors_of_two_models_are_not_compared(embedded: Make, model: Path, records: Any, tmp_path: Path) -> None:
    first, other = embedded("lines"), embedded("lines", slice(0, 50), "--vector-dtype", "float16")
    manifest = Dataset(other).manifest
    manifest.fingerprint["options"]["model"] = "0" * 64
    collection = clearspan.open_collection(first, model, also=[other])
    collection.texts.datasets[1].manifest.fingerprint["options"]["model"] = "0" * 64
    with pytest.raises(PipelineError, match=re.escape("were made by different models")):
        collection.search("owls")
    assert collection.search("the", weight=0)[0]
    for again in (first, f"{first}/", first.parent / "other" / ".." / first.name):
        with pytest.raises(UsageError, match="is given twice"):
            clearspan.open_collection(first, model, also=[again])


BATCH = pa.record_batch({"field_year": pa.array([1, None]), "field_lang": pa.array(["a", None])})
HOSTILE = [
    "__import__('os').system('touch hacked')",
    "open('hacked', 'w')",
    "(lambda: open('hacked', 'w'))() = 1",
    "[open('hacked', 'w') for year in lang]",
    "year.__class__.__bases__ = 1",
    'f\'{open("hacked", "w")}\' = lang',
    "lang = (open)('hacked', 'w')",
    "year := open('hacked', 'w')",
    "`year` = 1; open('hacked', 'w')",
    "year = 1 # and lang = 'a'",
    "9 ** 9 ** 9 ** 9 > year",
    "year > 'a' * 999999999",
    "year > " + "9" * 400,
    "(" * 5000,
    "not " * 2000 + "year = 1",
    "year = 1 or " * 5000 + "year = 1",
    "-" * 4000 + "1 = year",
    "year = 1e999999",
    "lang = '\x00",
    "year",
    "year = lang",
    "lang = b'a'",
    "",
    "year in ()",
    "year = null",
    "lang = 'de' 'fr'",
    "lang in ('de' \"fr\")",
    "lang = '\udcff'",
    "lang = 'a' \\\n and year = 1",
    "year = ٣",
    "year = 1 and lang = 'a' and f()",
    f"'{'a' * 5000}' = 1",
]


@pytest.mark.guarantee("conditions-run-nothing")
@pytest.mark.parametrize("where", HOSTILE, ids=lambda where: where[:30])
def test_a_hostile_condition_runs_nothing_and_is_one_line(
    where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings(), pytest.raises(ConditionError) as raised:
        warnings.simplefilter("error")
        condition = Condition.parse(where)
        condition.check_fields(["year", "lang"])
        condition(BATCH)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 200
    assert not (tmp_path / "hacked").exists()


@pytest.mark.guarantee("conditions-run-nothing")
@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("year = 1" + " " * 9_993, "has 10,001 characters"),
        ("not " * 101 + "year = 1", "is nested more than 100 deep"),
        (
            "(" * 101 + "year = 1" + " and year = 1)" * 101,
            "is nested more than 100 deep",
        ),
        ("year = = 1", "'year = = 1' is not a condition"),
        ("year > " + "-" * 9_000 + "1", f"'year > {'-' * 53}' is not a condition"),
        ("y" * 70 + " =", f"'{'y' * 60}' is not a condition"),
        (
            "year = 1 ; lang",
            "holds ';': ",
        ),
        ("lang = 'a\ud800'", "is not valid UTF-8"),
        ("lang = 'a\udfff'", "is not valid UTF-8"),
        ("lang = 'a' 'b'", "holds no comma before 'b'"),
        ("year is 1", "is and is not compare"),
        ("year is not lang", "is and is not compare"),
        ("1 is null", "is and is not compare"),
        ("1 in (1, 2)", "in asks a field"),
        ("year in lang", "in asks a field"),
        ("year not in (1, null)", "nothing equals null"),
        ("year in (1, lang)", "holds a name, which is neither"),
        (f"year in ({'1, ' * 300}lang)", "holds a name, which is neither"),
        ("year = 1 and " * 90 + "lang = (1, 2)", "holds a tuple, which is neither"),
        ("1 < " + "year < " * 90 + "[2]", "holds a list, which is neither"),
        ("1 = 2", "compares 1 with 2, "),
        ("1 < 2 < year", "compares 1 with 2, "),
        ("1 < year < null", "nothing equals null"),
        ("null = year", "nothing equals null"),
        ("lang = -'a'", "holds a unaryop, which is neither"),
        ("lang = (not 1)", "holds a unaryop, which is neither"),
        ("year = [1]", "holds a list, which is neither"),
        (f"year = {2**1024}", "holds a number above 1.8e308"),
        (f"year > -{2**1024}", "holds a number above 1.8e308"),
        ("year = 1 and 5", "holds 5, which does not compare"),
        ("5 or year = 1", "holds 5, which does not compare"),
        ("not 'a'", "holds 'a', which does not compare"),
        ("-year", "holds a unaryop, which does not compare"),
    ],
    ids=lambda text: text[:40],
)
def test_a_condition_that_cannot_be_is_told_why(where: str, message: str) -> None:
    with pytest.raises(ConditionError) as raised:
        Condition.parse(where)
    assert str(raised.value).startswith(message)


@pytest.mark.guarantee("conditions-run-nothing")
def test_a_condition_may_be_as_long_and_as_deep_as_the_limits() -> None:
    nested = "year = 1"
    for number in range(100):
        nested = f"(year = 1 {'and' if number % 2 else 'or'} {nested})"
    for where in ("year = 1" + " " * 9_992, "not " * 100 + "year = 1", f"year < {sys.float_info.max!r}", nested):
        assert Condition.parse(where).fields == {"year"}


@pytest.mark.guarantee("conditions-run-nothing")
@pytest.mark.usefixtures("command_line")
@pytest.mark.parametrize(
    ("known", "message"),
    [
        ([], "no field 'Year': the vectors were stored without fields: run embed again with `keep_fields` Year"),
        (["lang", "year"], "no field 'Year': did you mean 'year'? The stored fields are lang, year"),
        (["tear", "YEAR"], "no field 'Year': did you mean 'YEAR'? The stored fields are tear, YEAR"),
        (["lang"], "no field 'Year': did you mean 'lang'? The stored fields are lang"),
    ],
)
def test_a_field_that_is_not_stored_is_named_with_the_nearest_one(known: list[str], message: str) -> None:
    condition = Condition.parse("not Year > 2020 and Year is not null")
    with pytest.raises(ConditionError, match=f"^{re.escape(message)}$"):
        condition.check_fields(known)
    assert Condition.parse("lang = 'de'").check_fields(["lang", "year"]) is None


@pytest.mark.guarantee("conditions-run-nothing")
def test_of_several_fields_that_are_not_stored_the_first_by_name_is_told() -> None:
    names = [f"field{number:02}" for number in range(40)]
    condition = Condition.parse(" and ".join(f"{name} = 1" for name in reversed(names)))
    with pytest.raises(ConditionError, match=r"^no field 'field01': did you mean 'field00'"):
        condition.check_fields(["field00"])


@pytest.mark.guarantee("conditions-run-nothing")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("lang = 'it''s'", "it's"),
        ('lang = "a ""b"""', 'a "b"'),
        ("lang = 'and or not = <> null'", "and or not = <> null"),
        ("lang = 'C:\\new'", "C:\\new"),
        ("`lang` == 'x'", "x"),
        ("NOT lang <> 'x' AND lang IS NOT NULL", "x"),
        ("lang in ('y', 'x')", "x"),
        ("'x' = lang", "x"),
        ("lang\n=\t'x'", "x"),
    ],
)
def test_texts_and_words_are_those_of_sql(where: str, expected: str) -> None:
    batch = pa.record_batch({"field_lang": pa.array([expected, "other", None])})
    assert Condition.parse(where)(batch).tolist() == [True, False, False]


@pytest.mark.guarantee("conditions-run-nothing")
@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("year > 2020", [False, True, False]),
        ("year > 2020.5", [False, True, False]),
        ("year != 2020.0", [False, True, False]),
        ("year = 2.02e3", [True, False, False]),
        ("year > -1", [True, True, False]),
        ("not year = 2020", [False, True, False]),
        ("year is null", [False, False, True]),
        ("year not in (2020, 5)", [False, True, False]),
        ("meta.ok", [True, False, False]),
        ("meta.ok = false", [False, True, False]),
        ("year = 2020 or meta.ok is null", [True, False, True]),
        ("gone > 2020", [False, False, False]),
        ("not gone > 2020", [False, False, False]),
        ("gone is null", [True, True, True]),
    ],
)
def test_a_missing_value_is_neither_true_nor_false(where: str, expected: list[bool]) -> None:
    columns = {"field_year": pa.array([2020, 2021, None]), "field_meta.ok": pa.array([True, False, None])}
    assert Condition.parse(where)(pa.record_batch(columns)).tolist() == expected


@pytest.mark.guarantee("conditions-run-nothing")
@pytest.mark.parametrize(
    "name",
    [
        "and",
        "NOT",
        "null",
        "〇0",
        "〇",
        "Ⅷ1",
        "ⅷ",
        "ﬁeld0",
        "ªf0",
        "f0",
        "ｆ０",
        "_0",
        "Straße",
        "год",
        "²",
        "e\u0301t",
    ],
)
def test_a_name_in_any_script_means_its_own_field_alone(name: str) -> None:
    columns = {"field_year": pa.array([1, 2, 3]), f"field_{name}": pa.array([3, 2, 1])}
    condition = Condition.parse(f"year > 0 and {quoted_name(name)} = 1")
    assert condition.fields == {"year", name}
    assert condition(pa.record_batch(columns)).tolist() == [False, False, True]


ALIKE = [
    "Owl", "owl", " owl", "owl ", "\u00a0owl", "owl\u3000", "o wl", "o  wl", "o\twl", "o\nwl", "ow%", "ow_", "ow.",
    "owl\0", "café", "cafe\u0301", "ﬁn", "fin", "FIN", "Straße", "STRASSE", "null", "true", "and", "1", "1.0", "'",
    "''", "'''", '"', '""', "\\", "\\n", "{}", "🦉", "🦉\ufe0f", "meta", "meta.id", "owl.meta",
]  # fmt: skip
"""Texts of which several are easily taken for another."""


@pytest.mark.guarantee("conditions-run-nothing")
def test_a_condition_means_texts_and_names_of_exactly_its_characters() -> None:
    """Also among conditions that differ by a space, a case or a sign, which are all parsed before one is asked."""
    texts = [*ALIKE, ""]
    quoted = ["'" + text.replace("'", "''") + "'" for text in texts]
    double = ['"' + text.replace('"', '""') + '"' for text in texts]
    conditions = [Condition.parse(f"lang = {text}") for text in quoted]
    in_lists = [Condition.parse(f"lang in ('gone', {text}) and not lang in ('gone')") for text in double]
    named = [Condition.parse(f"year >= 0 and `{name}` = 1") for name in ALIKE]
    is_known = Condition.parse(f"lang in ({', '.join(quoted)})")
    for order in (range(len(texts)), range(len(texts))[::-1]):
        batch = pa.record_batch({"field_lang": pa.array([texts[row] for row in order])})
        for number, (equal, is_in) in enumerate(zip(conditions, in_lists, strict=True)):
            expected = [row == number for row in order]
            assert equal(batch).tolist() == is_in(batch).tolist() == expected, repr(texts[number])
        assert is_known(batch).all()
    years = Condition.parse(f"year in ({', '.join(map(str, range(1500, 2100)))})")
    batch = pa.record_batch({"field_year": pa.array([1499, 1500, 1999, 2099, 2100])})
    assert years(batch).tolist() == [False, True, True, True, False]
    rows = range(len(ALIKE))
    columns = {f"field_{name}": pa.array([int(row == place) for row in rows]) for place, name in enumerate(ALIKE)}
    batch = pa.record_batch({"field_year": pa.array([2020] * len(ALIKE)), **columns})
    for place, (name, condition) in enumerate(zip(ALIKE, named, strict=True)):
        condition.check_fields(["year", name])
        assert condition(batch).tolist() == [row == place for row in rows], repr(name)
        with pytest.raises(ConditionError, match=r"^no field "):
            condition.check_fields(["year", *(other for other in ALIKE if other != name)])


@pytest.mark.guarantee("conditions-run-nothing")
def test_two_texts_without_a_comma_are_refused_and_not_joined() -> None:
    with pytest.raises(ConditionError, match=re.escape("holds no comma before 'fr'")):
        Condition.parse("lang in ('de' 'fr')")
    assert Condition.parse("lang in ('de', 'fr')").fields == {"lang"}


WHOLE = [0, 1, -3, 2**53, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), None]
REAL = [0.5, 1.0, -3.0, 2.0**53, -(2.0**53), 2.0**63, -(2.0**63), 1e300, None, math.nan]
COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@pytest.mark.guarantee("conditions-run-nothing")
@pytest.mark.parametrize("sign", COMPARE)
def test_integers_and_floats_of_any_size_are_compared_by_their_exact_values(sign: str) -> None:
    rows = list(itertools.product(WHOLE, REAL))
    batch = pa.record_batch({"field_n": pa.array([n for n, _ in rows]), "field_x": pa.array([x for _, x in rows])})

    def expected(pairs: Iterable[tuple[float | None, float | None]]) -> list[bool]:
        return [a is not None and b is not None and COMPARE[sign](a, b) for a, b in pairs]

    assert Condition.parse(f"n {sign} x")(batch).tolist() == expected(rows)
    assert Condition.parse(f"x {sign} n")(batch).tolist() == expected((x, n) for n, x in rows)
    for value in (2**53 + 1, 10**20 + 1, -(10**30), 2**63, 1e20, -1e300, 0.1, 2.0**53, 5):
        assert Condition.parse(f"n {sign} {value}")(batch).tolist() == expected((n, value) for n, _ in rows)
        assert Condition.parse(f"x {sign} {value}")(batch).tolist() == expected((x, value) for _, x in rows)


@pytest.mark.slow
def test_an_unknown_field_names_the_nearest(embedded: Make, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = embedded("lines")
    ended = exit_code(main, "search", str(made), "--hybrid", "0", "owls", "--where", "yaer > 2020")
    shown = capsys.readouterr().err
    assert (
        ended == 2
        and shown == "search: --where: no field 'yaer': did you mean 'year'? The stored fields are year, lang\n"
    )
    for where, complaint in (
        ("year > 'new'", "a number with a text: write the number without quotes"),
        ("lang = 3", "a text with a number: write the value in quotes, or run embed with --keep-fields lang:int64"),
    ):
        ended = exit_code(main, "search", str(made), "owls", "--hybrid", "0", "--where", where)
        assert ended == 2 and capsys.readouterr().err.endswith(f"is compared with another type: {complaint}\n")


@pytest.mark.slow
def test_a_file_of_queries_with_relevant_documents_gives_their_ranks(
    embedded: Make, model: Path, records: dict[str, list[dict[str, Any]]], tmp_path: Path, capsys: Any
) -> None:
    made, rows = embedded("lines"), records["lines"]
    lines = [{"query": rows[number]["text"][:40], "text": rows[number]["text"]} for number in range(30, 60)]
    lines.append({"query": "gone", "text": "not there"})
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    capsys.readouterr()  # what the fixture's embed printed, in the first test that needs it
    given = [str(made), "--model", str(model), "--queries", str(tmp_path / "queries.jsonl"), "--top", "3"]
    assert exit_code(main, "search", *given, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    asked = [line["query"] for line in lines]
    found = clearspan.open_collection(made, model).search(asked, 500)
    ranks = []
    for hits, line in zip(found, lines, strict=True):
        ranks.append(next((rank for rank, hit in enumerate(hits, 1) if hit.text == line["text"]), None))
    assert [result["rank"] for result in shown["results"]] == ranks and ranks[-1] is None
    expected = 100 * np.mean([1 / rank for rank in ranks if rank])
    assert shown["answers"] == {"mrr": pytest.approx(expected), "judged": 30, "depth": 1000, "missing": 1}
    assert all(len(result["hits"]) == 3 for result in shown["results"])
    assert exit_code(main, "search", *given) == 0
    printed = capsys.readouterr().out
    assert f"MRR {expected:.1f} over 30 queries whose relevant document is known" in printed
    assert (
        "1 query names a relevant document that is not in the collection" in printed
        and "the relevant document ranks" in printed
    )


@pytest.mark.slow
def test_words_may_stand_before_and_after_options(embedded: Make, model: Path, capsys: Any) -> None:
    made = str(embedded("lines"))
    capsys.readouterr()  # what the fixture's embed printed, in the first test that needs it
    given = [("search", made, "owls", "--model", str(model)), ("search", made, "--model", str(model), "owls")]
    shown = []
    for words_ in (*given, ("search", made, "--query", "owls", "--model", str(model))):
        assert exit_code(main, *words_) == 0
        shown.append(capsys.readouterr().out)
    assert shown[0] == shown[1] == shown[2] and ".jsonl:" in shown[0] and "year" in shown[0]
