"""A tokenizer, shards and a tiny encoder made from the documentation of Python's own language: on every machine."""

import hashlib
from pathlib import Path
from pydoc_data.topics import topics

import pyarrow as pa
import pytest
from tokenizers import Tokenizer

from benchmarks.vocabulary import learn_tokenizer
from shards import Manifest, ShardWriter
from shards.schema import schema

VOCABULARY = 1500


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Some 90 chapters of the language reference."""
    return sorted(set(topics.values()))


@pytest.fixture(scope="session")
def tokenizer_folder(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    learn_tokenizer(texts, VOCABULARY, folder)
    return folder


def write_dataset(folder: Path, documents: list[list[int]], tokenizer: Path, max_bytes: int = 20_000) -> Path:
    """A published dataset of token lists; an id is the hash of its tokens."""
    folder.mkdir(parents=True)
    columns = schema("documents", pa.uint16())
    writer = ShardWriter(folder, "documents", 0, max_bytes)
    for start in range(0, len(documents), 4):
        part = documents[start : start + 4]
        ids = [int.from_bytes(hashlib.blake2b(str(row).encode(), digest_size=8).digest()) >> 1 for row in part]
        arrays = [pa.array(ids), pa.array(part, columns.field("tokens").type), pa.array(["topics"] * len(part))]
        writer.write(pa.RecordBatch.from_arrays(arrays, schema=columns))
    (folder / "tokenizer").symlink_to(tokenizer)
    vocabulary = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).get_vocab_size()
    sha256 = hashlib.sha256((tokenizer / "tokenizer.json").read_bytes()).hexdigest()
    fingerprint = {"tokenizer": {"sha256": sha256, "vocab_size": vocabulary}}
    counts = {"read": len(documents), "kept": len(documents), "filtered": {}, "bad": 0}
    Manifest("documents", fingerprint, writer.close(), counts).save(str(folder))
    return folder


@pytest.fixture(scope="session")
def documents(texts: list[str], tokenizer_folder: Path) -> list[list[int]]:
    """The chapters of at least 100 tokens, as ids without special tokens."""
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    encoded = (encoding.ids for encoding in tokenizer.encode_batch(texts, add_special_tokens=False))
    return [ids for ids in encoded if len(ids) >= 100]


@pytest.fixture(scope="session")
def dataset_folder(
    documents: list[list[int]], tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return write_dataset(tmp_path_factory.mktemp("data") / "topics", documents, tokenizer_folder)


@pytest.fixture(scope="session")
def tiny(dataset_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that make the recipe `demo` train in seconds."""
    return [
        f"data.path={dataset_folder}",
        "data.short_documents=error",
        "model.config=null",
        "model.config.model_type=roberta",
        "model.config.num_hidden_layers=2",
        "model.config.num_attention_heads=4",
        "model.config.hidden_size=32",
        "model.config.intermediate_size=64",
        "model.config.max_position_embeddings=66",
        "model.config.type_vocab_size=1",
        "model.config.hidden_dropout_prob=0.0",
        "model.config.attention_probs_dropout_prob=0.0",
        "objectives.spans.spans.max_span=24",
        "objectives.spans.spans.min_span=4",
        "objectives.spans.spans.min_distance=16",
        "training.batch_size=8",
        "training.max_steps=6",
        "training.logging_steps=1",
        "training.save_steps=100",
        "training.bf16=false",
    ]
