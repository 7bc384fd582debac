"""Chunks of long texts: nothing is left out, nothing is longer than the model reads, sentences stay whole."""

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import SentenceTransformer
from tokenizers import Tokenizer

from clearspan.common.encoder import folder, library
from clearspan.pipelines.text.chunks import Chunker
from clearspan.shards import Dataset
from tests.pipelines.conftest import Command, rows

LIMIT = 48
SPECIAL = 2


@pytest.fixture(scope="module")
def count(shared_data: Path) -> Callable[[Sequence[str]], list[int]]:
    tokenizer = Tokenizer.from_file(str(shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json"))
    tokenizer.no_truncation()
    return lambda texts: [len(found.ids) for found in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


@pytest.fixture(scope="module")
def articles(shared_data: Path) -> list[dict[str, str]]:
    """Twelve articles of Wikipedia, beginnings of 4,000 letters, and a short text."""
    with (shared_data / "text" / "wikitext2_articles.jsonl").open(encoding="utf-8") as lines:
        found = [json.loads(line)["text"][:4000] for _, line in zip(range(12), lines, strict=False)]
    named = [{"title": text.split("\n")[0].strip("= ")[:60] or "Untitled", "text": text} for text in found]
    return [*named, {"title": "Owls", "text": "An owl hunts at night."}]


@pytest.fixture
def embed(direct: Command, encoder: Path, articles: list[dict[str, str]], tmp_path: Path) -> Command:
    path = tmp_path / "articles.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in articles), encoding="utf-8")
    return lambda *words: direct("embed", "--input", path, "--model", encoder, "--keep-text", *words)


def letters(text: str) -> str:
    return "".join(text.split())


def test_no_letter_is_left_out_and_no_chunk_is_too_long(count, articles: list[dict[str, str]]) -> None:
    texts = [row["text"] for row in articles]
    chunker = Chunker(count, 40, 0, LIMIT - SPECIAL)
    made = chunker.chunks(texts, [""] * len(texts))
    for text, spans in zip(texts, made, strict=True):
        assert letters("".join(text[start:end] for start, end in spans)) == letters(text)
        assert [*spans] == sorted(spans)
        assert max(count([text[start:end] for start, end in spans])) <= 40
    sizes = [
        size for text, spans in zip(texts, made, strict=True) for size in count([text[s:e] for s, e in spans[:-1]])
    ]
    assert np.mean(sizes) > 20
    assert made[-1] == [(0, len(texts[-1]))]


def test_chunks_end_where_sentences_do(count) -> None:
    text = "The owl hunts at night.\nIt sees well, e.g. in the dark. Mice hide from it.\n\nHerons stand in the water."
    chunks = [text[start:end] for start, end in Chunker(count, 16, 0, None).chunks([text], [""])[0]]
    assert chunks == [
        "The owl hunts at night.",
        "It sees well, e.g. in the dark.",
        "Mice hide from it.\n\nHerons stand in the water.",
    ]


def test_an_overlap_is_the_last_sentences_that_fit_in_it(count) -> None:
    text = "Owls hunt. Mice hide. Herons stand in the water all day long. Frogs swim. The night is dark."
    chunks = [text[start:end] for start, end in Chunker(count, 17, 4, None).chunks([text], [""])[0]]
    assert chunks == [
        "Owls hunt. Mice hide. Herons stand in the water all day long.",
        "Frogs swim. The night is dark.",
    ]
    chunks = [text[start:end] for start, end in Chunker(count, 13, 4, None).chunks([text], [""])[0]]
    assert chunks[:2] == ["Owls hunt. Mice hide.", "Mice hide. Herons stand in the water all day long."]


def test_a_sentence_longer_than_a_chunk_is_cut_at_words(count, articles: list[dict[str, str]]) -> None:
    words = re.findall(r"[a-z]+", articles[0]["text"])[:200]
    text = " ".join(words)
    chunks = [text[start:end] for start, end in Chunker(count, 12, 0, None).chunks([text], [""])[0]]
    assert [word for chunk in chunks for word in chunk.split()] == words
    assert max(count(chunks)) <= 12 and len(chunks) < sum(count([text])) / 8


def test_a_word_longer_than_a_chunk_is_cut(count) -> None:
    text = "0123456789abcdef" * 40
    chunks = [text[start:end] for start, end in Chunker(count, 16, 4, None).chunks([text], [""])[0]]
    assert letters("".join(chunks)) == text and max(count(chunks)) <= 16


@pytest.mark.slow
@given(st.text(max_size=400), st.integers(8, 30), st.integers(0, 8))
@settings(max_examples=150)
def test_any_text_is_covered(count, text: str, size: int, overlap: int) -> None:
    (spans,) = Chunker(count, size, overlap, 40).chunks([text], [""])
    covered = np.zeros(len(text), bool)
    for start, end in spans:
        covered[start:end] = True
    assert all(is_in or character.isspace() for is_in, character in zip(covered, text, strict=True))
    assert all(tokens <= size or end - start == 1 for tokens, (start, end) in _sized(count, text, spans))


def _sized(count, text: str, spans):
    return zip(count([text[start:end] for start, end in spans]), spans, strict=True)


@pytest.mark.slow
def test_each_chunk_is_embedded_whole_with_its_title_and_prompt(
    embed: Command, encoder: Path, articles: list[dict[str, str]], tmp_path: Path
) -> None:
    words = ["--chunk-tokens", "40", "--chunk-overlap", "10", "--title-field", "--prompt-name", "passage"]
    ended = embed(*words, "--json")
    assert ended.code == 0, ended.err
    summary, found = json.loads(ended.out), rows(tmp_path / "out")
    assert summary["sums"] == {"documents": len(articles), "chunks": len(found), "truncated": 0}
    assert summary["read"] == summary["kept"] == len(found) > 5 * len(articles)
    model = SentenceTransformer(str(encoder), device="cpu")
    joined = [f"{row['field_title']} {row['text']}" for row in found]
    lengths = [len(ids) for ids in model.tokenizer([f"passage: {text}" for text in joined])["input_ids"]]
    assert max(lengths) <= LIMIT
    np.testing.assert_allclose([row["vector"] for row in found], model.encode(joined, prompt="passage: "), atol=1e-5)
    for number, article in enumerate(articles, 1):
        chunks = [row for row in found if row["record"] == number]
        assert [row["chunk"] for row in chunks] == list(range(len(chunks)))
        assert len({row["document"] for row in chunks}) == 1
        assert all(row["text"] in article["text"] for row in chunks)
    assert found[-1]["document"] == found[-1]["id"]
    assert len({row["document"] for row in found}) == len(articles)
    assert "13 texts in" in embed(*words).out


@pytest.mark.slow
def test_dedup_compares_whole_texts(embed: Command, articles: list[dict[str, str]], tmp_path: Path) -> None:
    again = tmp_path / "again.jsonl"
    shouted = {"text": articles[3]["text"].upper()}
    half = {"text": articles[4]["text"][:2000]}
    again.write_text("".join(json.dumps(row) + "\n" for row in [articles[2], shouted, half, articles[2]]))
    words = ["--input", again, "--chunk-tokens", "40", "--unit-bytes", "5000", "--dedup"]
    assert embed(*words[:-1], "--output", tmp_path / "all").code == 0
    every = {}
    for row in rows(tmp_path / "all"):
        every.setdefault((row["source"], row["record"]), []).append(row["text"])
    assert embed(*words).code == 0
    found = rows(tmp_path / "out")
    of_again = {(row["source"], row["record"]) for row in found if row["source"] == "again.jsonl"}
    whole = sorted({row["record"] for row in found if row["source"] == "articles.jsonl"})
    assert of_again | {("articles.jsonl", number) for number in whole} == {
        (row["source"], row["record"]) for row in found
    }
    assert len(whole) + len(of_again) == len(articles) + 1
    for place in {(row["source"], row["record"]) for row in found}:
        assert [row["text"] for row in found if (row["source"], row["record"]) == place] == every[place]
    counts = Dataset(tmp_path / "out").manifest.counts
    assert counts["filtered"]["duplicate"] == sum(map(len, every.values())) - len(found) > 100


def test_models_count_tokens_without_a_limit(encoder: Path, still: Path, count) -> None:
    texts = ["An owl hunts at night. " * 40, "", "Mice"]
    for model in (library.load_with_library(encoder), folder.load_folder(still), library.load_with_library(still)):
        assert model.count_tokens(texts) == count(texts)
    assert (
        library.load_with_library(encoder).most_tokens == LIMIT - SPECIAL
        and folder.load_folder(still).most_tokens is None
    )
