"""Documents: which are kept, and that what is kept is exactly the text's ids."""

import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import zstandard
from tokenizers import Tokenizer

from pipelines.__main__ import main
from pipelines.kinds import documents
from pipelines.kinds.documents import Documents, DocumentWorker
from pipelines.kinds.text import text_id
from pipelines.records import Record
from pipelines.stopwatch import Stopwatch
from pipelines.tally import Tally
from pipelines.text.tokenization import Tokenization
from shards import Dataset, verify


@pytest.fixture(scope="module")
def made(openwebtext: Path, roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The OpenWebText sample in ten units."""
    folder = str(tmp_path_factory.mktemp("made") / "out")
    words = ["--input", str(openwebtext), "--output", folder, "--tokenizer", str(roberta_tokenizer)]
    assert main(["documents", *words, "--unit-bytes", "800000"]) == 0
    return Dataset(folder)


def test_exactly_the_long_documents_are_kept(made: Dataset) -> None:
    counts = made.manifest.counts
    assert (counts["read"], counts["kept"], counts["bad"]) == (1426, 163, 0)
    assert counts["filtered"] == {"short_bytes": 423, "short_tokens": 840}
    assert verify(made.folder) == []


def test_every_example_is_its_document(made: Dataset, openwebtext: Path, roberta_tokenizer: Path) -> None:
    reference = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))
    found = 0
    with openwebtext.open("rb") as file:
        for batch in made:
            for row in batch.to_pylist():
                name, _, offset = row["source"].rpartition(":")
                assert name == "openwebtext_sample.jsonl"
                file.seek(int(offset))
                text = json.loads(file.readline())["text"]
                assert row["tokens"] == reference.encode(text, add_special_tokens=False).ids
                assert len(row["tokens"]) >= 2048
                assert row["id"] == int.from_bytes(hashlib.blake2b(text.encode()).digest()[:8], "big") >> 1
                found += 1
    assert found == 163


def test_examples_keep_the_order_of_the_input(made: Dataset) -> None:
    offsets = [int(source.rpartition(":")[2]) for batch in made for source in batch.column("source").to_pylist()]
    assert offsets == sorted(offsets)


def test_the_dataset_carries_its_tokenizer(made: Dataset, roberta_tokenizer: Path) -> None:
    local = made.local_tokenizer()
    names = ["tokenizer.json", "tokenizer_config.json"]
    assert sorted(path.name for path in local.iterdir()) == names
    assert all((local / name).read_bytes() == (roberta_tokenizer / name).read_bytes() for name in names)
    sums = {name: hashlib.sha256((roberta_tokenizer / name).read_bytes()).hexdigest() for name in names}
    known = {"sha256": sums["tokenizer.json"], "vocab_size": 50265, "files": sums}
    assert made.manifest.fingerprint["tokenizer"] == known


def test_no_path_of_this_machine_is_in_the_output(made: Dataset, openwebtext: Path) -> None:
    folder = Path(made.folder)
    for path in [folder / "manifest.json", folder / "plan.json", *folder.glob("_done/*.json")]:
        text = path.read_text()
        assert str(openwebtext.parent) not in text
        assert str(folder) not in text


@pytest.mark.parametrize("packing", ["plain", "gz", "zst"])
def test_a_document_is_the_same_example_however_it_is_packed(
    pipeline, head: Path, tmp_path: Path, packing: str
) -> None:
    data = head.read_bytes()
    packed = {"plain": data, "gz": gzip.compress(data), "zst": zstandard.compress(data)}[packing]
    path = tmp_path / f"head.jsonl.{packing}"
    path.write_bytes(packed)
    assert pipeline("--input", path).code == 0
    offset, expected = 0, {}
    for line in data.splitlines(keepends=True):
        expected[f"{path.name}:{offset}"] = text_id(json.loads(line)["text"].encode())
        offset += len(line)
    rows = [row for batch in Dataset(tmp_path / "out") for row in batch.to_pylist()]
    assert len(rows) == 5
    assert all(expected[row["source"]] == row["id"] for row in rows)


def test_text_files_are_one_document_each(pipeline, texts: list[str], tmp_path: Path) -> None:
    for number, text in enumerate(texts[:40]):
        path = tmp_path / "books" / f"shelf{number % 2}" / f"{number:02d}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    (tmp_path / "books" / "shelf1" / "empty.txt").touch()
    outcome = pipeline("--input", tmp_path / "books" / "**" / "*.txt", "--unit-bytes", "50000", "--json")
    summary = json.loads(outcome.out)
    assert (summary["read"], summary["kept"]) == (41, 5)
    for batch in Dataset(tmp_path / "out"):
        for row in batch.to_pylist():
            text = (tmp_path / "books" / row["source"]).read_bytes()
            assert row["id"] == text_id(text)


def examples(kind: Documents, texts: list[str], tokenization: Tokenization, tally: Tally) -> list[pa.RecordBatch]:
    records = [Record("a.jsonl", number, {"text": text}, b"") for number, text in enumerate(texts)]
    return list(DocumentWorker(kind, tokenization).examples(records, tally, Stopwatch()))


@pytest.fixture(scope="module")
def tokenization(roberta_tokenizer: Path) -> Tokenization:
    return Tokenization((roberta_tokenizer / "tokenizer.json").read_bytes(), 50265)


def test_the_limit_is_inclusive(tokenization: Tokenization, texts: list[str]) -> None:
    length = len(tokenization.tokenize([texts[0]], ["a"])[0])
    for min_tokens, kept in ((length, 1), (length + 1, 0)):
        tally = Tally(Documents().reasons, 0.0)
        examples(Documents(min_tokens=min_tokens), [texts[0]], tokenization, tally)
        assert tally.counts.kept == kept


def test_a_document_of_too_few_bytes_is_not_tokenized(
    tokenization: Tokenization, monkeypatch: pytest.MonkeyPatch
) -> None:
    tally = Tally(Documents().reasons, 0.0)
    monkeypatch.setattr(tokenization, "tokenize", lambda *_: pytest.fail("tokenized"))
    assert examples(Documents(min_tokens=10), ["", "123456789", "é" * 4], tokenization, tally) == []
    assert tally.counts.filtered == {"short_bytes": 3, "short_tokens": 0}


def test_bytes_tell_nothing_of_a_wordpiece_tokenizer(shared_data: Path) -> None:
    data = (shared_data / "tokenizers" / "bert-base-uncased" / "tokenizer.json").read_bytes()
    tally = Tally(Documents().reasons, 0.0)
    examples(Documents(min_tokens=10), ["", "short"], Tokenization(data), tally)
    assert tally.counts.filtered == {"short_bytes": 0, "short_tokens": 2}


def test_batches_are_cut_at_their_size_whatever_is_tokenized_together(
    tokenization: Tokenization, texts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "BATCH_BYTES", 20_000)
    monkeypatch.setattr(documents, "BATCH_EXAMPLES", 30)
    found = []
    for tokenize_bytes in (1, 100_000, 10**9):
        monkeypatch.setattr(documents, "TOKENIZE_BYTES", tokenize_bytes)
        tally = Tally(Documents().reasons, 0.0)
        found.append(examples(Documents(min_tokens=1), texts[:200], tokenization, tally))
    assert found[0] == found[1] == found[2]
    for batch in found[0][:-1]:
        sizes = np.diff(batch.column("tokens").offsets.to_numpy()) * 2
        assert sum(sizes) >= 20_000 or len(sizes) == 30
        assert sum(sizes[:-1]) < 20_000
        assert len(sizes) <= 30
