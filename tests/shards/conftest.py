"""Record batches of real documents, a dataset made of them, and an object store in memory."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from clearspan.shards import Manifest, ShardWriter, storage, vectors
from clearspan.shards.layouts import array_column
from clearspan.shards.schema import KINDS, MEL_BINS, schema


@pytest.fixture(scope="session")
def batches(shared_data: Path, roberta_tokenizer: Path) -> list[pa.RecordBatch]:
    """Sixty OpenWebText documents as ten record batches of six."""
    tokenizer = Tokenizer.from_file(str(roberta_tokenizer / "tokenizer.json"))
    with (shared_data / "text" / "openwebtext_sample.jsonl").open(encoding="utf-8") as lines:
        texts = [json.loads(next(lines))["text"] for _ in range(60)]
    ids = [encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    fields = schema("documents", pa.uint16())
    rows = [{"id": number, "tokens": tokens, "source": f"owt.jsonl:{number}"} for number, tokens in enumerate(ids)]
    return [pa.RecordBatch.from_pylist(rows[start : start + 6], schema=fields) for start in range(0, 60, 6)]


def publish_tokenizer(source: Path, folder: Path) -> dict[str, object]:
    """Copies RoBERTa's tokenizer into a dataset; returns what the fingerprint says of it."""
    files = {}
    for name in ("tokenizer.json", "tokenizer_config.json"):
        data = (source / name).read_bytes()
        storage.publish_bytes(data, f"{folder}/tokenizer/{name}")
        files[name] = hashlib.sha256(data).hexdigest()
    return {"sha256": files["tokenizer.json"], "vocab_size": 50265, "files": files}


@pytest.fixture(scope="session")
def make_dataset(batches: list[pa.RecordBatch], roberta_tokenizer: Path) -> Callable[[Path], Manifest]:
    """Writes the batches as a dataset of two units of several shards each, with its tokenizer."""

    def make(folder: Path) -> Manifest:
        folder.mkdir(parents=True, exist_ok=True)
        shards = []
        for unit, part in enumerate((batches[:5], batches[5:])):
            writer = ShardWriter(folder, "documents", unit, max_bytes=60_000)
            for batch in part:
                writer.write(batch)
            shards += writer.close()
        counts = {"read": 70, "kept": 60, "filtered": {"short_bytes": 4, "short_tokens": 5}, "bad": 1}
        known = publish_tokenizer(roberta_tokenizer, folder)
        manifest = Manifest("documents", {"tokenizer": known, "options": {"min_tokens": 1}}, shards, counts)
        manifest.save(str(folder))
        return manifest

    return make


@pytest.fixture
def dataset(make_dataset: Callable[[Path], Manifest], tmp_path: Path) -> Path:
    """A dataset folder that the test may damage."""
    make_dataset(tmp_path / "dataset")
    return tmp_path / "dataset"


@pytest.fixture
def with_views(shared_data: Path, roberta_tokenizer: Path, tmp_path: Path) -> Path:
    """Twenty sentences of Wikipedia as a dataset with two views of each: every second token, and all in reverse."""
    with (shared_data / "sentences" / "wiki1m_head_11914.txt").open(encoding="utf-8") as lines:
        texts = [next(lines).strip() for _ in range(20)]
    main = (roberta_tokenizer / "tokenizer.json").read_bytes()
    encodings = Tokenizer.from_str(main.decode()).encode_batch(texts, add_special_tokens=False)
    rows = [
        {"id": number, "tokens": encoding.ids, "view_0": encoding.ids[::2], "view_1": encoding.ids[::-1]}
        for number, encoding in enumerate(encodings)
    ]
    folder = tmp_path / "with_views"
    folder.mkdir()
    writer = ShardWriter(folder, "sentences", 0)
    writer.write(pa.RecordBatch.from_pylist(rows, schema=schema("sentences", pa.uint16(), views=2)))
    known = publish_tokenizer(roberta_tokenizer, folder)
    counts = {"read": 20, "kept": 20, "filtered": {}, "bad": 0}
    Manifest("sentences", {"tokenizer": known, "options": {}}, writer.close(), counts).save(str(folder))
    return folder


def publish_labelled(
    folder: Path, batch: pa.RecordBatch, kind: str, names: Sequence[str], options: Mapping[str, object]
) -> Path:
    """Writes one batch as a dataset of classes with these names."""
    table = json.dumps(names).encode()
    storage.publish_bytes(table, f"{folder}/_files/classes.json")
    writer = ShardWriter(folder, kind, 0)
    writer.write(batch)
    files = {"classes.json": hashlib.sha256(table).hexdigest()}
    counts = {"read": batch.num_rows, "kept": batch.num_rows, "filtered": {}, "bad": 0}
    Manifest(kind, {"options": {**options, "files": files}}, writer.close(), counts).save(str(folder))
    return folder


@pytest.fixture
def embedded(tmp_path: Path) -> Path:
    """Thirty random vectors as int8, in shards of ten."""
    folder = tmp_path / "embedded"
    folder.mkdir()
    writer = ShardWriter(folder, "vectors", 0, max_bytes=1)
    rows = np.random.default_rng(0).normal(size=(30, 8)).astype(np.float32)
    for start in range(0, 30, 10):
        columns = vectors.columns(rows[start : start + 10], "int8")
        ids, sources = pa.array(range(start, start + 10)), pa.array([f"a:{number}" for number in range(10)])
        columns = {"id": ids, "source": sources, **columns}
        fields = KINDS["vectors"].schema(optional=["scale"], vector=columns["vector"].type)
        writer.write(pa.record_batch([columns[field.name] for field in fields], schema=fields))
    counts = {"read": 30, "kept": 30, "filtered": {}, "bad": 0}
    Manifest("vectors", {"options": {}}, writer.close(), counts).save(str(folder))
    return folder


@pytest.fixture
def images(shared_data: Path, tmp_path: Path) -> Path:
    """Nine of Caltech's photographs of three classes."""
    names = ["ant", "barrel", "bass"]
    caltech, rows = shared_data / "images" / "caltech60", []
    for label, (name, number) in enumerate(zip(names, (4, 3, 2), strict=True)):
        for path in sorted((caltech / name).iterdir())[:number]:
            rows.append({"id": len(rows), "image": path.read_bytes(), "label": label})
    taken = {"files": 9, "of_files": 1200, "classes": 3, "of_classes": 60}
    batch = pa.RecordBatch.from_pylist(rows, schema=schema("images"))
    return publish_labelled(tmp_path / "images", batch, "images", names, {"size": 256, "taken": taken})


@pytest.fixture
def audio(tmp_path: Path) -> Path:
    """Three clips of two classes: noise that falls with the bin, louder in each fourth frame of the second."""
    draws = np.random.default_rng(3)
    clips = [(draws.normal(0, 1, (size, 128)) - np.arange(128) / 16).astype(np.float16) for size in (100, 60, 30)]
    clips[1][::4] += 3
    columns = [pa.array([7, 8, 9]), array_column(clips, MEL_BINS), pa.array([0, 1, 1])]
    batch = pa.record_batch(columns, schema=schema("audio"))
    options = {"frames": 100, "long": "cut"}
    return publish_labelled(tmp_path / "audio", batch, "audio", ["george", "jackson"], options)
