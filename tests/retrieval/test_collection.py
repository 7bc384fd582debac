"""A collection: what search.json says, and searches of a folder that is opened once."""

import dataclasses
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import clearspan
from clearspan.cli.main import main as command
from clearspan.common.checksummed import dump_checksummed
from clearspan.common.errors import PipelineError
from clearspan.retrieval.collection import (
    NAME,
    SearchSettings,
    check_queries,
    open_collection,
    read_settings,
    write_collection,
)
from clearspan.retrieval.hits import Hit
from clearspan.shards.manifest import Manifest
from tests.pipelines.conftest import Command

TEXTS = ["Owls hunt at night.", "A party of the north won.", "It rains in the north."]


@pytest.fixture
def made(direct: Command, encoder: Path, tmp_path: Path) -> Path:
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    words = ["--input", tmp_path / "lines.txt", "--text-per", "line", "--model", encoder, "--keep-text"]
    assert direct("embed", *words).code == 0
    return tmp_path / "out"


def test_a_folder_names_its_vectors_model_and_weight(made: Path, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "adapted").mkdir()
    write_collection(tmp_path / "adapted", SearchSettings(str(made), str(encoder), 0.5))
    collection = open_collection(tmp_path / "adapted")
    assert collection.weight == 0.5 and collection.has_texts and collection.num_texts == 3
    (hits,) = collection.search([TEXTS[0]], 2)
    assert hits[0].text == TEXTS[0] and hits[0].collection == str(tmp_path / "adapted") and len(hits) == 2
    assert open_collection(made, encoder).search([TEXTS[0]], 2, weight=0.5)[0][0].score == hits[0].score


def test_a_query_gives_its_hits_and_a_list_of_queries_a_list_of_them(made: Path, encoder: Path) -> None:
    collection = open_collection(made, encoder)
    for search in (collection.search, lambda queries, top: clearspan.search(made, queries, encoder, top=top)):
        hits = search(TEXTS[0], 2)
        assert [type(hit) for hit in hits] == [Hit, Hit] and hits[0].text == TEXTS[0]
        assert search([TEXTS[0]], 2) == [hits] and search(tuple(TEXTS), 2)[0] == hits


@pytest.mark.parametrize(
    ("pooling", "record"), [("cls", "cls-before-head"), ("pooler", "pooler"), ("first-last", "first-last")]
)
def test_vectors_keep_the_record_of_their_pooling_and_are_searched_by_it(
    pooling: str, record: str, direct: Command, encoder: Path, tmp_path: Path
) -> None:
    """The names in the record are those of 0.1, whose vectors are searched and brought up to date."""
    bert = encoder.parent / "bert"
    (tmp_path / "lines.txt").write_text("\n".join(TEXTS))
    words = ["--input", tmp_path / "lines.txt", "--text-per", "line", "--model", bert, "--keep-text"]
    assert direct("embed", *words, "--pooling", pooling).code == 0
    assert Manifest.load(str(tmp_path / "out")).fingerprint["options"]["pooling"] == record
    (hits,) = open_collection(tmp_path / "out", bert).search([TEXTS[0]], 3)
    assert hits[0].text == TEXTS[0] and hits[0].score == pytest.approx(1, abs=1e-5)


@pytest.mark.guarantee("prompts-of-a-side")
def test_the_prompt_that_a_folder_names_is_before_each_query(
    made: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_collection(tmp_path, SearchSettings(str(made), str(encoder), prompt_name="passage"))
    collection = open_collection(tmp_path)
    scores = [collection.search("owl", 1, prompt_name=name)[0].score for name in (None, "passage", "query")]
    assert scores[0] == scores[1] != scores[2]
    assert command(["search", str(tmp_path), "owl", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["prompt"] == "passage: " and found["results"][0]["hits"][0]["score"] == scores[0]
    with pytest.raises(ValueError, match="prompt_name must be a text, not 5"):
        write_collection(tmp_path, SearchSettings(str(made), prompt_name=5))  # type: ignore[arg-type]


@pytest.mark.guarantee("prompts-of-a-side")
def test_the_model_gets_each_query_as_it_was_asked(made: Path, encoder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that tells case, accents or spaces apart embeds a document in the same way."""
    collection = open_collection(made, encoder)
    asked: list[tuple[list[str], str | None]] = []
    encode = type(collection._encoder).encode_query

    def encode_query(self: Any, queries: list[str], prompt_name: str | None = None) -> Any:
        asked.append((queries, prompt_name))
        return encode(self, queries, prompt_name=prompt_name)

    monkeypatch.setattr(type(collection._encoder), "encode_query", encode_query)
    queries = ["STRASSE: What is a Café?", "straße  what is a cafe\u0301", "owl", "owl"]
    assert len(collection.search(queries, 1, prompt_name="query")) == 4
    assert asked == [(queries, "query")]


@pytest.mark.parametrize("damage", ['{"vectors": "out"}', "{", '{"vectors": "out", "sha256": "0"}'])
def test_a_damaged_search_json_is_refused_in_one_line(made: Path, tmp_path: Path, damage: str) -> None:
    (tmp_path / NAME).write_text(damage)
    with pytest.raises(PipelineError, match=r"search\.json: damaged .*: make the collection again") as raised:
        open_collection(tmp_path)
    assert "\n" not in str(raised.value)


def test_a_dataset_without_a_named_model_says_so(made: Path) -> None:
    with pytest.raises(PipelineError, match="names no model: pass `model` DIR"):
        open_collection(made).search(["owl"])


def test_a_model_that_is_gone_is_named(made: Path, encoder: Path, tmp_path: Path) -> None:
    (tmp_path / "adapted").mkdir()
    write_collection(tmp_path / "adapted", SearchSettings(str(made), str(tmp_path / "gone"), 0.5))
    with pytest.raises(PipelineError, match=r"`model` .*gone: no such folder"):
        open_collection(tmp_path / "adapted").search("owl")
    with pytest.raises(ValueError, match="weight must be at most 1"):
        write_collection(tmp_path / "adapted", SearchSettings(str(made), str(encoder), 1.5))


@pytest.mark.parametrize(
    ("fields", "id_field", "names"),
    [
        ("id,doc_id", None, ["a1", "a2", "a3"]),
        ("doc_id,year", None, ["d1", "d2", "d3"]),
        ("year", None, []),
        ("year,doc_id", "year", ["1981", "1982", "1983"]),
    ],
)
def test_the_id_that_hits_show_is_the_one_that_queries_name(
    fields: str,
    id_field: str | None,
    names: list[str],
    direct: Command,
    encoder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """That of the field that search.json names, or of one with a usual name, or else the number of the text."""
    rows = [{"id": f"a{n}", "doc_id": f"d{n}", "year": 1980 + n, "text": text} for n, text in enumerate(TEXTS, start=1)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--input", tmp_path / "rows.jsonl", "--model", encoder, "--keep-text", "--keep-fields", fields]
    assert direct("embed", *words).code == 0
    write_collection(tmp_path, SearchSettings(str(tmp_path / "out"), str(encoder), 0.5, id_field=id_field))
    hits = [hits[0] for hits in open_collection(tmp_path).search(TEXTS, 1)]
    assert [hit.name for hit in hits] == (names or [str(hit.id) for hit in hits])
    asked = [{"query": text, "id": hit.name} for text, hit in zip(TEXTS, hits, strict=True)]
    (tmp_path / "queries.jsonl").write_text("".join(json.dumps(line) + "\n" for line in asked))
    capsys.readouterr()
    assert command(["search", str(tmp_path), "--queries", str(tmp_path / "queries.jsonl"), "--top", "1"]) == 0
    printed = capsys.readouterr().out
    assert "MRR 100.0 over 3 queries" in printed and all(hit.name in printed for hit in hits)


@pytest.mark.guarantee("prompts-of-a-side")
def test_a_query_is_read_without_white_space_at_its_ends_as_texts_are_embedded() -> None:
    assert check_queries("  owls at night\n") == ["owls at night"]
    assert check_queries(["owls ", "\tnight"]) == ["owls", "night"]


@pytest.mark.guarantee("adapted-folder-searches")
def test_a_folder_may_be_moved_with_what_lies_in_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """search.json holds paths relative to its folder, wherever it was written from."""
    settings = SearchSettings("owls/vectors", "owls/model", 0.5, "german", "query", "isbn")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "owls").mkdir()
    assert write_collection("owls", settings) == Path("owls/search.json")
    assert '"vectors": "vectors"' in (tmp_path / "owls/search.json").read_text(), "which a person may read"
    written = (tmp_path / "owls/search.json").read_text()
    assert written.count("\n") > 5 and '\n "model": "model"' in written
    assert read_settings("owls") == settings
    (tmp_path / "owls").rename(tmp_path / "herons")
    monkeypatch.chdir(tmp_path.parent)
    folder = str(tmp_path / "herons")
    expected = SearchSettings(f"{folder}/vectors", f"{folder}/model", 0.5, "german", "query", "isbn")
    assert read_settings(folder) == expected
    write_collection(folder, SearchSettings(str(tmp_path / "elsewhere"), None))
    assert read_settings(folder) == SearchSettings(str(tmp_path / "elsewhere"), None)


@pytest.mark.guarantee("adapted-folder-searches")
def test_a_folder_without_settings_is_a_dataset_of_vectors(tmp_path: Path) -> None:
    assert read_settings(str(tmp_path)) == SearchSettings(str(tmp_path), stemmer="auto", k1=1.2, b=0.75)


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.parametrize("damage", ["", "{", "[]", '{"vectors": "out"}', '{"vectors": "out", "sha256": "0"}'])
def test_damaged_settings_are_one_line(damage: str, tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(damage)
    with pytest.raises(PipelineError, match=r"search\.json: damaged \([^\n]*\): make the collection again$"):
        read_settings(str(tmp_path))


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.parametrize(
    "change",
    [{"weight": 1.5}, {"prompt_name": 5}, {"vectors_": "out"}, {"stemmer": "latin"}, {"k1": 0.0}, {"b": 1.5}],
)
def test_settings_that_cannot_be_are_not_written_nor_read(change: dict[str, Any], tmp_path: Path) -> None:
    write_collection(tmp_path, SearchSettings("vectors", "model", 0.5))
    before = (tmp_path / NAME).read_bytes()
    if "weight" in change or "prompt_name" in change:
        with pytest.raises(ValueError, match=next(iter(change))):
            write_collection(tmp_path, SearchSettings("vectors", "model", **change))
        assert (tmp_path / NAME).read_bytes() == before
    (tmp_path / NAME).write_bytes(dump_checksummed({"vectors": "vectors", **change}))
    with pytest.raises(PipelineError, match=r"search\.json: damaged"):
        read_settings(str(tmp_path))


@pytest.mark.guarantee("adapted-folder-searches")
def test_settings_of_an_earlier_version_keep_their_k1_and_b(tmp_path: Path) -> None:
    (tmp_path / NAME).write_bytes(dump_checksummed({"vectors": "vectors", "weight": 0.5, "stemmer": "english"}))
    settings = read_settings(str(tmp_path))
    assert (settings.k1, settings.b) == (1.5, 0.75)
    write_collection(tmp_path, dataclasses.replace(settings, k1=0.6, b=0.9))
    assert read_settings(str(tmp_path)) == dataclasses.replace(settings, k1=0.6, b=0.9)


@pytest.mark.guarantee("adapted-folder-searches")
def test_each_path_of_the_settings_is_changed_and_nothing_else() -> None:
    settings = SearchSettings("vectors", "model", 0.5, "german", "query", "isbn")
    assert settings.with_paths(str.upper) == SearchSettings("VECTORS", "MODEL", 0.5, "german", "query", "isbn")
    assert SearchSettings("vectors").with_paths(str.upper) == SearchSettings("VECTORS")


def test_the_last_line_says_what_bm25_compares(
    made: Path, encoder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Several collections have the settings of the first one."""
    first = SearchSettings(str(made), str(encoder), 0.5, "english", k1=0.6, b=0.9)
    write_collection(tmp_path, first)
    shutil.copytree(made, tmp_path / "others")
    for more, said in (
        (["--also", str(tmp_path / "others")], "BM25's (k1 0.6, b 0.9, English stems), in deviations from their means"),
        (["--k1", "1.5", "--stemmer", "none", "--hybrid", "0"], "scores: BM25 alone (k1 1.5, b 0.9, whole words)"),
    ):
        assert command(["search", str(tmp_path), "--query", TEXTS[0], "--quiet", *more]) == 0
        assert said in " ".join(capsys.readouterr().out.split())
