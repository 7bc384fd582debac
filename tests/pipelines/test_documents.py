"""Documents: which ones are kept, with exactly the token ids of their texts."""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from clearspan.common.same_text import text_id
from clearspan.pipelines.__main__ import main
from clearspan.pipelines.builders.documents import Documents, DocumentWorker
from clearspan.pipelines.counter import RecordCounter
from clearspan.pipelines.records import Record
from clearspan.pipelines.text.segmentation import normalize
from clearspan.pipelines.text.tokenization import Tokenization
from clearspan.shards import Dataset, verify
from tests.pipelines.conftest import rows


@pytest.fixture(scope="module")
def made(openwebtext: Path, roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A dataset of the OpenWebText sample, in ten units."""
    folder = str(tmp_path_factory.mktemp("made") / "out")
    words = ["--input", str(openwebtext), "--output", folder, "--tokenizer", str(roberta_tokenizer)]
    assert main(["documents", *words, "--unit-bytes", "800000"]) == 0
    return Dataset(folder)


@pytest.mark.slow
def test_exactly_the_long_documents_are_kept(made: Dataset, texts: list[str]) -> None:
    counts = made.manifest.counts
    assert (counts["read"], counts["kept"], counts["bad"]) == (1426, 163, 0)
    num_short = sum(len(text.encode()) < 2048 for text in texts)
    assert counts["filtered"] == {"empty": 0, "short_bytes": num_short, "short_tokens": 1426 - 163 - num_short}
    assert verify(made.folder) == []


PUBLISHED = ("--whitespace", "collapse", "--lowercase", "--prefix-space", "--min-words", "2049")
"""DeCLUTR's preparation of OpenWebText."""


@pytest.mark.exhaustive
@pytest.mark.parametrize("backend", ["auto", "tokenizers"])
def test_the_published_preparation_gives_its_documents(
    direct, openwebtext: Path, texts: list[str], roberta_tokenizer: Path, tmp_path: Path, backend: str
) -> None:
    """Single spaces, lower case, more than 2,048 words, then token ids with a space before the text."""
    words = ("--input", openwebtext, *PUBLISHED, "--tokenization", backend, "--json")
    summary = json.loads(direct(*words).out)
    sanitised = [" ".join(text.strip().split()).lower() for text in texts]
    expected = [text for text in sanitised if len(text.split()) > 2048]
    reference = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))
    found = rows(tmp_path / "out")
    ids = [reference.encode(f" {text}", add_special_tokens=False).ids for text in expected]
    assert [row["tokens"] for row in found] == ids
    assert [row["id"] for row in found] == [text_id(text.encode()) for text in expected]
    assert (summary["read"], summary["kept"]) == (1426, len(expected)) and 50 < len(expected) < 163
    assert summary["filtered"] == {"empty": 0, "short_bytes": 0, "short_tokens": 0, "few_words": 1426 - len(expected)}
    assert verify(tmp_path / "out") == []
    tokenizer = Tokenizer.from_file(str(Dataset(tmp_path / "out").local_tokenizer() / "tokenizer.json"))
    assert tokenizer.encode(expected[0], add_special_tokens=False).ids == ids[0]


@pytest.mark.slow
def test_ids_are_those_of_prepared_texts(direct, texts: list[str], tmp_path: Path) -> None:
    some = texts[:5]
    copies = [*some, some[0].replace(" ", "\n "), some[1].upper(), f" {some[2]}"]
    (tmp_path / "copies.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in copies))
    words = ("--input", tmp_path / "copies.jsonl", "--min-tokens", "1", "--dedup")
    assert direct(*words, "--lowercase", "--whitespace", "collapse", "--holdout-fraction", "0.5").code == 0
    ids = {text_id(normalize(text).lower().encode()) for text in some}
    assert {row["id"] for part in (".", "validation") for row in rows(tmp_path / "out" / part)} == ids


def test_excluded_texts_are_looked_for_where_lines_still_are(direct, texts: list[str], tmp_path: Path) -> None:
    """A short text matches only as a whole line, so that line breaks must still be there."""
    (tmp_path / "text.txt").write_text(f"{texts[0]}\nA man plays the guitar\n{texts[1]}")
    (tmp_path / "excluded.txt").write_text("a man plays the GUITAR\n")
    words = ("--input", tmp_path / "text.txt", "--min-tokens", "10", "--exclude", tmp_path / "excluded.txt")
    outcome = direct(*words, "--whitespace", "collapse", "--lowercase")
    assert "none of 1 documents is kept: 1 excluded" in outcome.err


def examples(
    kind: Documents, texts: list[str], tokenization: Tokenization, counter: RecordCounter
) -> list[pa.RecordBatch]:
    records = [Record("a.jsonl", number, {"text": text}, b"") for number, text in enumerate(texts)]
    return list(DocumentWorker(kind, tokenization).examples(records, counter))


@pytest.fixture(scope="module")
def tokenization(roberta_tokenizer: Path) -> Tokenization:
    return Tokenization((roberta_tokenizer / "tokenizer.json").read_bytes(), 50265)


@pytest.mark.slow
def test_a_document_of_too_few_bytes_is_not_tokenized(
    tokenization: Tokenization, monkeypatch: pytest.MonkeyPatch
) -> None:
    counter = RecordCounter(Documents().reasons, 0.0)
    monkeypatch.setattr(tokenization, "tokenize", lambda *_: pytest.fail("tokenized"))
    assert examples(Documents(min_tokens=10), ["", "123456789", "é" * 4], tokenization, counter) == []
    assert counter.counts.filtered == {"empty": 1, "short_bytes": 2, "short_tokens": 0}


def test_bytes_tell_nothing_of_a_wordpiece_tokenizer(shared_data: Path) -> None:
    data = (shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json").read_bytes()
    counter = RecordCounter(Documents().reasons, 0.0)
    examples(Documents(min_tokens=10), ["", "short"], Tokenization(data), counter)
    assert counter.counts.filtered == {"empty": 1, "short_bytes": 0, "short_tokens": 1}


@pytest.mark.slow
def test_batches_are_cut_at_their_size_whatever_is_tokenized_together(
    tokenization: Tokenization, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearspan.pipelines.builders.text.BATCH_BYTES", 20_000)
    monkeypatch.setattr(DocumentWorker, "batch_examples", 30)
    found = []
    for tokenize_bytes in (1, 100_000, 10**9):
        monkeypatch.setattr(DocumentWorker, "together", (10**9, tokenize_bytes))
        counter = RecordCounter(Documents().reasons, 0.0)
        found.append(examples(Documents(min_tokens=1), texts[:200], tokenization, counter))
    assert found[0] == found[1] == found[2]
    for batch in found[0][:-1]:
        sizes = np.diff(batch.column("tokens").offsets.to_numpy()) * 2
        assert sum(sizes) >= 20_000 or len(sizes) == 30
        assert sum(sizes[:-1]) < 20_000
        assert len(sizes) <= 30
