"""A tokenizer, shards and a tiny encoder made from the documentation of Python's own language: on every machine."""

import hashlib
import json
import re
import shutil
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pyarrow as pa
import pytest
from tokenizers import AddedToken, Tokenizer

from clearspan.common.files import sha256
from clearspan.common.ragged import Ragged
from clearspan.pipelines.augment.steps import Augmentation, Augmenter
from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
from clearspan.shards import Manifest, ShardWriter, keyed
from clearspan.shards.schema import schema

VOCABULARY = 1500
SIZES = "model_type=roberta num_hidden_layers=2 num_attention_heads=4 hidden_size=32 intermediate_size=64 "
SIZES += "max_position_embeddings=66 type_vocab_size=1 hidden_dropout_prob=0.0 attention_probs_dropout_prob=0.0"
TINY_MODEL = ["model.config=null", *(f"model.config.{size}" for size in SIZES.split())]


@pytest.fixture(scope="session")
def texts() -> list[str]:
    """Some 90 chapters of the language reference."""
    return sorted(set(topics.values()))


@pytest.fixture(scope="session")
def tokenizer_folder(texts: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    learn_tokenizer(texts, VOCABULARY, folder)
    return folder


def text_id(tokens: list[int]) -> int:
    """An example's id: the hash of its tokens."""
    return int.from_bytes(hashlib.blake2b(str(tokens).encode(), digest_size=8).digest()) >> 1


def write_dataset(folder: Path, documents: list[list[int]], tokenizer: Path, max_bytes: int = 20_000) -> Path:
    """A published dataset of documents, as token lists."""
    columns = schema("documents", pa.uint16())
    batches = []
    for start in range(0, len(documents), 4):
        part = documents[start : start + 4]
        arrays = [pa.array([text_id(row) for row in part]), pa.array(part, columns.field("tokens").type)]
        batches.append(pa.RecordBatch.from_arrays([*arrays, pa.array(["topics"] * len(part))], schema=columns))
    return publish(folder, "documents", batches, tokenizer, max_bytes)


def write_sentences(
    folder: Path, sentences: list[list[int]], tokenizer: Path, augmenter: Augmenter | None = None, views: int = 0
) -> Path:
    """A published dataset of sentences as token lists, with so many views of each."""
    columns = schema("sentences", pa.uint16(), views)
    batches = []
    for start in range(0, len(sentences), 64):
        part = sentences[start : start + 64]
        ids = np.array([text_id(row) for row in part])
        block = Ragged.of([np.array(row) for row in part], np.uint16)
        lists = [block]
        if augmenter is not None:
            lists += [augmenter(block, keyed.mix(5, ids, view)) for view in range(views)]
        arrays = [one.to_arrow(columns.field("tokens").type) for one in lists]
        batches.append(pa.RecordBatch.from_arrays([pa.array(ids), *arrays], schema=columns))
    options = {"augmentation": augmenter.augmentation.options()} if augmenter else {}
    return publish(folder, "sentences", batches, tokenizer, 20_000, options)


def publish(
    folder: Path, kind: str, batches: list[pa.RecordBatch], tokenizer: Path, max_bytes: int, options: dict | None = None
) -> Path:
    """Writes batches as the shards of one unit, with a manifest."""
    folder.mkdir(parents=True)
    writer = ShardWriter(folder, kind, 0, max_bytes)
    for batch in batches:
        writer.write(batch)
    (folder / "tokenizer").symlink_to(tokenizer)
    vocabulary = Tokenizer.from_file(str(tokenizer / "tokenizer.json")).get_vocab_size()
    sums = {path.name: sha256(path) for path in tokenizer.iterdir()}
    known = {"sha256": sums["tokenizer.json"], "vocab_size": vocabulary, "files": sums}
    fingerprint = {"tokenizer": known, "options": options or {}}
    count = sum(batch.num_rows for batch in batches)
    counts = {"read": count, "kept": count, "filtered": {}, "bad": 0}
    Manifest(kind, fingerprint, writer.close(), counts).save(str(folder))
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
def del_tokenizer_folder(tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same tokenizer with [DEL] after all other ids."""
    folder = tmp_path_factory.mktemp("tokenizer") / "with-del"
    shutil.copytree(tokenizer_folder, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken("[DEL]", special=True)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def sentences(texts: list[str], tokenizer_folder: Path) -> list[list[int]]:
    """600 sentences of the chapters, as ids without special tokens; a few are longer than the tiny encoder takes."""
    parts = [re.sub(r"\s+", " ", part).strip() for text in texts for part in re.split(r"(?<=[.:])\s+|\n\n", text)]
    chosen = sorted({part for part in parts if part.count(" ") >= 3 and part[0].isalpha()})
    tokenizer = Tokenizer.from_file(str(tokenizer_folder / "tokenizer.json"))
    return [
        encoding.ids
        for encoding in tokenizer.encode_batch(chosen[:: len(chosen) // 600][:600], add_special_tokens=False)
    ]


@pytest.fixture(scope="session")
def synonyms_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For some of the words that the language reference is made of."""
    groups = [["object", "thing", "item"], ["method", "function"], ["value", "amount"], ["name", "title"]]
    groups += [["is", "be"], ["may", "can"], ["returns", "gives"], ["list", "sequence"], ["used", "taken"]]
    path = tmp_path_factory.mktemp("synonyms") / "synonyms.json"
    path.write_text(
        json.dumps({word: [other for other in group if other != word] for group in groups for word in group})
    )
    return path


@pytest.fixture(scope="session")
def sentences_folder(
    sentences: list[list[int]], del_tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Sentences with three views each, of del-span."""
    tokenizer = Tokenizer.from_file(str(del_tokenizer_folder / "tokenizer.json"))
    augmenter = Augmenter(Augmentation.parse("del-span"), tokenizer)
    folder = tmp_path_factory.mktemp("data") / "sentences"
    return write_sentences(folder, sentences, del_tokenizer_folder, augmenter, 3)


def prepare(*words: str | Path) -> None:
    """`python -m pipelines` in this process, without Beam."""
    from clearspan.pipelines.__main__ import (
        main,  # here: a machine that only trains has not all that the pipelines want
    )
    from tests.pipelines.conftest import without_beam

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("clearspan.pipelines.run._run_beam", without_beam)
        assert main([*map(str, words), "--quiet"]) == 0


@pytest.fixture(scope="session")
def images_folder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """96 pictures of 64 x 64, 12 of each of 8 of ImageNet's classes, in several shards."""
    folder = tmp_path_factory.mktemp("data") / "images"
    tars = sorted((shared_data / "images" / "tinyimagenet60").glob("*.tar"))[:8]
    prepare("images", "--input", *tars, "--output", folder, "--per-class", "12", "--unit-bytes", "60000")
    return folder


@pytest.fixture(scope="session")
def audio_folder(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 clips of 118 frames (1.2 s), 10 of each of 8 speakers, in several shards."""
    folder = tmp_path_factory.mktemp("data") / "audio"
    speakers = sorted((shared_data / "audio" / "librispeech_50spk_x10_wav").iterdir())[:8]
    prepare("audio", "--input", *speakers, "--output", folder, "--unit-bytes", "1000000")
    return folder


@pytest.fixture(scope="session")
def tiny(dataset_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Overrides that make the recipe `demo` train in seconds."""
    return [
        *TINY_MODEL,
        f"data.text.path={dataset_folder}",
        "data.text.short_documents=error",
        "objectives.spans.sampler.max_span=24",
        "objectives.spans.sampler.min_span=4",
        "objectives.spans.sampler.placement=uniform",
        "objectives.spans.sampler.min_distance=16",
        "data.text.batch_size=8",
        "training.max_steps=6",
        "training.logging_steps=1",
        "training.save_steps=100",
        "training.bf16=false",
    ]


@pytest.fixture(scope="session")
def tiny_clear(sentences_folder: Path, synonyms_file: Path) -> list[str]:
    """Overrides that make a CLEAR recipe train in seconds, with new views in every epoch."""
    return [
        *TINY_MODEL,
        f"data.text.path={sentences_folder}",
        "objectives.clear.views=fly",
        f"objectives.clear.synonyms={synonyms_file}",
        "optimizer.warmup_steps=2",
        "data.text.batch_size=16",
        "training.gradient_accumulation_steps=2",
        "training.max_steps=6",
        "training.logging_steps=1",
        "training.bf16=false",
    ]


@pytest.fixture(scope="session")
def tiny_patches(sentences_folder: Path) -> list[str]:
    """Overrides that make of `demo` SimCSE over text beside the objective `patches`, of whose dataset `others` they
    leave open the path.
    """
    return [
        *TINY_MODEL,
        "model.pooling=cls",
        "objectives.spans=null",
        "objectives.mlm=null",
        "objectives.simcse.data=text",
        "objectives.patches.data=others",
        f"data.text.path={sentences_folder}",
        "data.text.batch_size=8",
        "data.others.batch_size=8",
        "training.max_steps=6",
        "training.bf16=false",
    ]


@pytest.fixture(scope="session")
def tiny_images(tiny_patches: list[str], images_folder: Path) -> list[str]:
    """Overrides of a run over pictures of 64 x 64 pixels."""
    return [*tiny_patches, f"data.others.path={images_folder}", "data.others.modality.image_size=64"]


@pytest.fixture(scope="session")
def family_pairs(documents: list[list[int]], tokenizer_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs of texts of 3 to 60 tokens, of a chapter each."""
    from tests.train.test_simcse import write_triplets

    rows = [part for k, ids in enumerate(documents) for part in (ids[: 3 + k % 9], ids[20 : 26 + 7 * k % 54])]
    return write_triplets(tmp_path_factory.mktemp("data") / "pairs", rows, tokenizer_folder, 2)


@pytest.fixture
def family_folder(name: str, tokenizer_folder: Path, tmp_path: Path) -> Path:
    """The sentence-transformers folder of a family of `tests.train.families`, with the mean of all tokens."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    from clearspan.train.model.tokenizer import load_tokenizer
    from tests.train.families import CONFIGS, random_model

    random_model(CONFIGS[name]).base_model.save_pretrained(tmp_path / "plain")
    load_tokenizer(tokenizer_folder).save_pretrained(tmp_path / "plain")
    transformer = Transformer(str(tmp_path / "plain"), processor_kwargs={"model_max_length": 100})
    SentenceTransformer(modules=[transformer, Pooling(32, "mean")], device="cpu").save_pretrained(str(tmp_path / "st"))
    return tmp_path / "st"
