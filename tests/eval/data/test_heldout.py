"""Held-out collections: crops that do not overlap, the same every time, and one line for what cannot be ranked."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from clearspan.common.records import DataError, MissingDataError
from clearspan.eval.data import heldout_data
from clearspan.eval.data.crops import MAX_WORDS, MIN_WORDS, crops
from clearspan.eval.data.heldout_data import read, read_all, read_dataset
from clearspan.eval.data.heldout_folders import find
from clearspan.pipelines.api import make_dataset
from clearspan.retrieval.retrieval_set import is_of_dev_half
from clearspan.shards import KINDS, Dataset, Manifest
from tests.train.conftest import publish


@given(st.integers(0, 400), st.integers(-(2**63), 2**63 - 1))
def test_crops_are_of_whole_words_bounded_and_do_not_overlap(num_words: int, number: int) -> None:
    text = "  ".join(f"w{i}." for i in range(num_words))
    pair = crops(text, number)
    if num_words < 2 * MIN_WORDS:
        assert pair is None
        return
    assert pair is not None and pair == crops(text, number)
    runs = sorted([int(word[1:-1]) for word in crop.split()] for crop in pair)
    most = min(MAX_WORDS, num_words // 2)
    for run in runs:
        assert run == list(range(run[0], run[-1] + 1))
        assert max(MIN_WORDS, most // 2) <= len(run) <= most
    assert runs[0][-1] < runs[1][0]


def test_crops_lie_anywhere_and_either_may_be_the_query() -> None:
    text = " ".join(map(str, range(100)))
    drawn = [crops(text, number) for number in range(300)]
    starts = np.array([[int(crop.split()[0]) for crop in pair] for pair in drawn if pair])
    assert 100 < (starts[:, 0] < starts[:, 1]).sum() < 200
    assert starts.min() == 0 and max(int(crop.split()[-1]) for pair in drawn if pair for crop in pair) == 99


@pytest.mark.exhaustive
def test_the_held_out_part_of_a_dataset_becomes_a_collection(wikitext_shards: Path) -> None:
    (name, part), *others = find(wikitext_shards).items()
    assert (name, part, others) == ("heldout", wikitext_shards / "validation", [])
    assert find(part) == {"heldout": part}
    held, again, dev = read_dataset(part), read_dataset(part), read_dataset(part, dev=True)
    assert (held.collection.queries, held.collection.documents) == (
        again.collection.queries,
        again.collection.documents,
    )
    dataset = Dataset(part)
    tokenizer = Tokenizer.from_file(str(dataset.local_tokenizer() / "tokenizer.json"))
    texts = {row["id"]: tokenizer.decode(row["tokens"]) for batch in dataset for row in batch.to_pylist()}
    assert len(held.collection.queries) + len(dev.collection.queries) == len(texts) == dataset.num_examples > 35
    assert len(held.collection.queries) >= 15 and not {*held.collection.queries} & {*dev.collection.queries}
    for query, relevant in zip(held.collection.queries, held.collection.relevant, strict=True):
        document = held.collection.documents[relevant.item()]
        ((number, text),) = ((number, text) for number, text in texts.items() if query in text and document in text)
        assert (query, document) == crops(text, number)
    assert held.files == (part / "manifest.json",) and held.counts == {"texts held out": len(texts)}


@pytest.mark.slow
def test_of_many_texts_those_with_the_lowest_hashes_are_taken_whatever_the_shards(
    wikitext_shards: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, few = (read_dataset(wikitext_shards / "validation", limit) for limit in (10_000, 12))
    assert few.collection.queries == whole.collection.queries[:12]
    num_held_out = Dataset(wikitext_shards / "validation").num_examples
    assert few.counts == {"texts held out": num_held_out}
    assert f"Of {num_held_out} held-out texts, 12 were chosen" in few.text


def test_triplets_and_files_with_titles_are_pairs(tmp_path: Path) -> None:
    rows = [{"title": f"Title {i}", "text": f"the body of text {i}"} for i in range(20)]
    rows += [rows[0], {"title": "", "text": "without a title"}, {"title": "Title 1", "text": "its second body"}]
    folder = tmp_path / "heldout"
    folder.mkdir()
    (folder / "docs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "docs2.csv").write_text("title,year,text\n" + "".join(f"{r['title']},1,{r['text']}\n" for r in rows))
    found = find(tmp_path)
    assert list(found) == ["heldout/docs", "heldout/docs2"]
    held, table = (read(path) for path in found.values())
    assert held.collection.queries == table.collection.queries
    assert sorted(held.collection.queries) == sorted(f"Title {i}" for i in range(20))
    second = held.collection.queries.index("Title 1")
    answers = {held.collection.documents[place] for place in held.collection.relevant[second]}
    assert answers == {"the body of text 1", "its second body"}
    assert held.counts == {"left out (empty)": 1}
    assert len(held.collection.documents) == 22, "a text without a title is ranked too"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ('{"text": "a b c d e f g h"}\n{"body": "x"}\n', ":2: field text must be a string, found None"),
        ('{"text": 5}\n', ":1: field text must be a string, found 5"),
        (
            '{"title": "a", "text": "b"}\n{"text": "c"}\n',
            ":2: expected the fields of the first record",
        ),
        ("no json\n", ":1: not JSON"),
        ('{"text": "half of a character \\ud800"}\n', ":1: field text holds '\\ud800', half of a character"),
        ("", ": 0 different texts of at least 8 words are too few to rank, 10 are needed: give more"),
        ('{"text": "seven words are too few for crops"}\n' * 20, ": 0 different texts of at least 8 words are too few"),
    ],
)
def test_a_malformed_file_is_one_line(content: str, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "texts.jsonl"
    path.write_text(content)
    with pytest.raises(DataError) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}{complaint}") and "\n" not in str(caught.value)


@pytest.mark.guarantee("copies-are-one-text")
def test_copies_are_one_candidate_and_one_query(tmp_path: Path) -> None:
    rows = [{"title": f"Title {i}", "text": f"the body of text {i}"} for i in range(20)]
    copies = [{"title": f" TITLE {i}", "text": f"The  body of text {i}\n"} for i in range(20)]
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows, *copies]))
    held = read(path)
    assert len(held.collection.queries) == len(held.collection.documents) == 20
    assert held.counts == {"left out (copies)": 20}
    assert all(len(relevant) == 1 for relevant in held.collection.relevant)


@pytest.mark.guarantee("copies-are-one-text")
def test_copies_of_queries_and_of_documents_are_found_wherever_they_are() -> None:
    """In a half, and among the other texts that are ranked; texts of one beginning are several."""
    of = heldout_data._Finding
    long = "Owls hunt by ear. " * 500
    half = [of("How do owls hunt?", ["By ear."]), of("Why?", [f"{long}So be it."])]
    others = [of("HOW do\u00a0owls  hunt?", ["At night."]), of("When?", ["by EAR.\n", f"{long}So it is."])]
    halves = heldout_data._collections([half, [of("how do owls hunt?", ["Well."])]], others)
    documents = ["By ear.", f"{long}So be it.", "Well.", "At night.", f"{long}So it is."]
    assert [each.documents for each in halves] == [documents] * 2
    assert [each.queries for each in halves] == [["How do owls hunt?", "Why?"], ["how do owls hunt?"]]
    assert [[rows.tolist() for rows in each.relevant] for each in halves] == [[[0, 3], [1]], [[2, 3]]]


@pytest.mark.guarantee("copies-are-one-text")
@pytest.mark.slow
def test_copies_in_a_dataset_are_in_one_half(shared_data: Path, tmp_path: Path) -> None:
    texts = (shared_data / "sentences/wiki1m_head_11914.txt").read_text("utf-8").splitlines()[:80]
    copies = [copy for text in texts for copy in (text, text.upper(), f"{text}\u3000")]
    path, tokenizer = tmp_path / "texts.jsonl", shared_data / "tokenizers/roberta-base"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in copies))
    options = {"tokenizer": tokenizer, "min_tokens": 16, "holdout_fraction": 0.8, "quiet": True}
    make_dataset("documents", path, tmp_path / "shards", **options)
    part = tmp_path / "shards" / "validation"
    rows = heldout_data._texts_of_dataset(part, None).held
    assert len(rows) == Dataset(part).num_examples > 100
    halves: tuple[set[str], set[str]] = (set(), set())
    for _, (each,) in rows:
        halves[is_of_dev_half(each)].add(" ".join(each.casefold().split()))
    assert not halves[0] & halves[1] and min(map(len, halves)) > 10
    held = read(part)
    assert held.dev is not None and held.dev.documents is held.collection.documents
    assert len(held.collection.queries) <= len(halves[0]) and len(held.dev.queries) <= len(halves[1])


def test_two_files_of_one_name_are_refused_and_hidden_ones_are_left_out(tmp_path: Path) -> None:
    folder = tmp_path / "heldout"
    folder.mkdir()
    for name in ("mine.csv", "._mine.csv", "notes.md"):
        (folder / name).touch()
    assert find(tmp_path) == {"heldout/mine": folder / "mine.csv"}
    (folder / "mine.jsonl").touch()
    with pytest.raises(
        DataError, match=r"mine\.jsonl: has the name heldout/mine as a task, like .*mine\.csv: rename one"
    ):
        find(tmp_path)


def test_what_holds_no_held_out_text_is_one_line(
    sentence_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingDataError, match="is not a dataset of shards"):
        find(tmp_path)
    with pytest.raises(DataError, match=r"a dataset without a held-out part .* `holdout_fraction` 0\.05"):
        find(sentence_shards)
    few = tmp_path / "heldout" / "few"
    shutil.copytree(sentence_shards, few)
    assert find(tmp_path) == {"heldout/few": few}
    tokenizer = Tokenizer.from_file(str(few / "tokenizer" / "tokenizer.json"))
    texts = [tokenizer.decode(row["tokens"]) for batch in Dataset(few) for row in batch.to_pylist()]
    num_long = sum(len(text.split()) >= 2 * MIN_WORDS for text in texts)
    queries = [read_dataset(few, dev=dev).collection.queries for dev in (False, True)]
    assert sum(map(len, queries)) == num_long < len(texts) == 40
    monkeypatch.setattr(heldout_data, "MIN_TEXTS", 41)
    with pytest.raises(DataError, match=r"of at least 8 words are too few to rank, 41 are needed: hold out more"):
        read(few)
    next(few.glob("*.tar")).write_bytes(b"damaged")
    with pytest.raises(DataError, match="the shard is damaged"):
        read(few)
    (few / "manifest.json").write_text("{}")
    with pytest.raises(DataError, match=re.escape(str(few))):
        read(few)


def test_images_are_refused(tmp_path: Path) -> None:
    counts = {"read": 0, "kept": 0, "filtered": {}, "bad": 0}
    Manifest("images", {"options": {}, "split": "validation"}, [], counts).save(str(tmp_path))
    with pytest.raises(DataError, match=rf"{tmp_path}: holds images, not text: give documents, sentences or triplets"):
        read(tmp_path)


@pytest.mark.parametrize(("num_words", "names"), [(40, ["", "/passages"]), (5, [""])])
def test_pairs_are_read_as_crops_of_their_documents_too(
    shared_data: Path, tmp_path: Path, num_words: int, names: list[str]
) -> None:
    """If the documents are long enough; a crop is of a document, never of the first text."""
    tokenizer = shared_data / "tokenizers/bert-base-uncased"
    bert = Tokenizer.from_file(str(tokenizer / "tokenizer.json"))
    columns = KINDS["triplets"].schema(pa.uint16())
    texts = ([f"title {n}" for n in range(60)], [" ".join([f"body {n} is long"] * (num_words // 4)) for n in range(60)])
    lists = [
        pa.array([bert.encode(text, add_special_tokens=False).ids for text in side], columns.field("tokens").type)
        for side in texts
    ]
    batch = pa.RecordBatch.from_arrays([pa.array(range(60)), *lists], schema=columns)
    found = read_all(publish(tmp_path / "validation", "triplets", [batch], tokenizer, 100_000))
    assert list(found) == names
    assert all(query.startswith("title ") for query in found[""].collection.queries)
    if len(names) == 2:
        passages = found["/passages"].collection
        assert not any("title" in text for text in (*passages.queries, *passages.documents))
