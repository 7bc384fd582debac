"""Models run packed: the embeddings of sentence-transformers' `encode`, whatever the architecture and the pooling."""

import functools
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import (
    Dense,
    LayerNorm,
    Normalize,
    Pooling,
    Transformer,
    WordWeights,
)
from torch import nn
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertTokenizerFast, T5EncoderModel

from clearspan.common.encoder import library, packed, packed_batches
from clearspan.common.encoder.library import Model, load_with_library
from clearspan.common.encoder.packed import PackedModel
from clearspan.common.model_folder import EncoderError

WIDTH = 32
SIZE = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "vocab_size": 30522,
    "max_position_embeddings": 66,
    "pad_token_id": 0,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": SIZE,
    "roberta": {**SIZE, "pad_token_id": 1, "type_vocab_size": 1},
    "xlm-roberta": {**SIZE, "pad_token_id": 1, "type_vocab_size": 1},
    "mpnet": {**SIZE, "pad_token_id": 1},
    "distilbert": {
        "dim": WIDTH,
        "n_layers": 3,
        "n_heads": 4,
        "hidden_dim": 48,
        "vocab_size": 30522,
        "max_position_embeddings": 66,
        "pad_token_id": 0,
    },
    "modernbert": {
        **SIZE,
        "local_attention": 12,
        "global_attn_every_n_layers": 2,
        "cls_token_id": 101,
        "sep_token_id": 102,
        "bos_token_id": 101,
        "eos_token_id": 102,
    },
    "qwen2": {**SIZE, "num_key_value_heads": 2, "bos_token_id": 101, "eos_token_id": 102},
    "t5": {
        "d_model": WIDTH,
        "num_layers": 3,
        "num_heads": 4,
        "d_kv": 8,
        "d_ff": 48,
        "vocab_size": 30522,
        "pad_token_id": 0,
        "eos_token_id": 102,
        "decoder_start_token_id": 0,
    },
    "electra": {**SIZE, "embedding_size": 16},
}
TEXTS = [
    "An owl of the northern woods hunts by ear, at night and in snow.",
    "",
    "owl",
    "The owls that live in barns are pale; those of the woods are brown, and those of the far north white.",
    "owl " * 300,
    "Snow fell.",
    "Eulen jagen nachts.",
    "A short one.",
]
"""In no order of length; empty, of one word, and truncated."""
LIMIT = 60


def write_transformer(folder: Path, name: str, tokenizer: Path) -> Path:
    """A folder of a random transformer of an architecture, its weights large enough to tell positions apart."""
    config = AutoConfig.for_model(name, **CONFIGS[name])
    torch.manual_seed(7)
    model = T5EncoderModel(config) if name == "t5" else AutoModel.from_config(config)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1 and not isinstance(weight, nn.Embedding):
                weight.normal_(std=0.2)
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(tokenizer).save_pretrained(folder)
    return folder


def write_model(folder: Path, transformer: Path, *after: nn.Module, **settings: Any) -> Path:
    """A sentence-transformers folder of a transformer and the modules after it."""
    first = Transformer(str(transformer))
    first.max_seq_length = LIMIT
    model = SentenceTransformer(modules=[first, *after], device="cpu", **settings)
    model.save_pretrained(str(folder))
    return folder


@pytest.fixture(scope="module")
def transformer(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("transformers")
    return functools.cache(lambda name: write_transformer(folder / name, name, minilm))


def both(model: Model, texts: list[str] = TEXTS, prompt: str = "") -> tuple[np.ndarray, np.ndarray]:
    """The embeddings that a model gives, and those of its library."""
    return model.encode_after(prompt, texts), np.asarray(model.modules.encode(texts, prompt=prompt or None))


def cosines(ours: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    return (ours * theirs).sum(1) / np.linalg.norm(ours, axis=1) / np.linalg.norm(theirs, axis=1)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.guarantee("embeds-as-the-library")
def test_every_architecture_embeds_as_its_library_does(
    name: str, transformer: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = write_model(tmp_path, transformer(name), Pooling(WIDTH, ("mean", "cls", "lasttoken")))
    model = load_with_library(folder)
    assert model.packed is not None
    ours, theirs = both(model)
    np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=1e-5)
    assert np.abs(theirs[0] - theirs[3]).max() > 0.05  # texts differ, so that their order counts
    np.testing.assert_allclose(model.encode(TEXTS[::-1]), ours[::-1], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.guarantee("embeds-as-the-library")
def test_every_architecture_embeds_in_bf16_as_its_library_does(
    name: str, transformer: Callable[[str], Path], tmp_path: Path
) -> None:
    model = load_with_library(write_model(tmp_path, transformer(name), Pooling(WIDTH, "mean")), precision="bf16")
    assert model.packed is not None
    ours, theirs = both(model)
    assert ours.dtype == np.float32 and cosines(ours, theirs).min() > 0.9999


POOLINGS = [*Pooling.POOLING_MODES, ("cls", "max", "mean"), ("lasttoken", "mean_sqrt_len_tokens", "weightedmean")]


@pytest.mark.slow
@pytest.mark.parametrize("mode", POOLINGS, ids=str)
@pytest.mark.parametrize("include_prompt", [True, False])
@pytest.mark.guarantee("embeds-as-the-library")
def test_every_pooling_is_its_librarys_with_a_prompt_and_without(
    mode: Any, include_prompt: bool, transformer: Callable[[str], Path], tmp_path: Path
) -> None:
    pooling = Pooling(WIDTH, mode, include_prompt)
    model = load_with_library(write_model(tmp_path, transformer("bert"), pooling, prompts={"query": "Find a text: "}))
    assert model.packed is not None
    for prompt in ("", "Find a text: "):
        np.testing.assert_allclose(*both(model, prompt=prompt), atol=1e-5, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.guarantee("embeds-as-the-library")
def test_modules_before_and_after_the_pooling_are_the_librarys(
    transformer: Callable[[str], Path], tmp_path: Path
) -> None:
    vocabulary = [str(row) for row in range(30522)]
    weights = {word: 0.1 + row % 17 for row, word in enumerate(vocabulary)}
    after = [
        WordWeights(vocabulary, weights),
        Pooling(WIDTH, ("mean", "max", "weightedmean")),
        Dense(3 * WIDTH, 24),
        LayerNorm(24),
        Dense(24, 24, use_residual=True),
        Normalize(),
    ]
    model = load_with_library(write_model(tmp_path, transformer("distilbert"), *after, truncate_dim=16))
    assert model.packed is not None
    ours, theirs = both(model)
    assert ours.shape == (len(TEXTS), 16)
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.guarantee("embeds-as-the-library")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "mpnet", "qwen2"])
def test_the_order_and_the_size_of_batches_change_nothing(
    name: str, transformer: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = PackedModel(SentenceTransformer(str(write_model(tmp_path, transformer(name), Pooling(WIDTH)))))
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 40, 60)
    ids = torch.from_numpy(generator.integers(1000, 9000, int(lengths.sum())))
    alone = torch.cat([model.encode_ids(row, np.array([len(row)])) for row in ids.split(lengths.tolist())])
    for tokens in (1, 100, 10_000):
        monkeypatch.setattr(packed_batches, "CPU_TOKENS", tokens)
        torch.testing.assert_close(model.encode_ids(ids, lengths), alone, atol=1e-5, rtol=1e-5)
    assert model.encode_ids(ids[:0], lengths[:0]).shape == (0, WIDTH)


@pytest.mark.slow
@pytest.mark.parametrize(("positions", "vocabulary"), [(8, 30522), (512, 8), (8, 8), (40, 30522)])
def test_a_model_of_few_positions_or_few_tokens_runs_packed_as_its_library_does(
    minilm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, positions: int, vocabulary: int
) -> None:
    sizes = {"max_position_embeddings": positions, "vocab_size": vocabulary}
    monkeypatch.setitem(CONFIGS, "bert", {**SIZE, **sizes})
    folder = write_transformer(tmp_path / "model", "bert", minilm)
    if vocabulary == 8:
        (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nowl\nsnow\na\n")
        BertTokenizerFast(str(tmp_path / "vocab.txt")).save_pretrained(folder)
    model = load_with_library(folder)
    assert model.packed is not None
    for texts in (["owl"], ["a snow owl"], TEXTS, ["owl " * number for number in range(1, 60)]):
        np.testing.assert_allclose(*both(model, texts), atol=1e-5)


@pytest.mark.guarantee("embeds-as-the-library")
def test_texts_without_tokens_are_zeros(transformer: Callable[[str], Path], tmp_path: Path) -> None:
    model = PackedModel(SentenceTransformer(str(write_model(tmp_path, transformer("bert"), Pooling(WIDTH)))))
    ids, lengths = torch.tensor([101, 2000, 102]), np.array([0, 3, 0])
    found = model.encode_ids(ids, lengths)
    assert torch.equal(found.any(1), torch.tensor([False, True, False]))
    assert not model.encode_ids(ids[:0], lengths[[0, 2]]).any()


@pytest.mark.guarantee("embeds-as-the-library")
def test_weights_are_shared_and_the_librarys_model_stays_as_it_was(
    transformer: Callable[[str], Path], tmp_path: Path
) -> None:
    theirs = SentenceTransformer(str(write_model(tmp_path, transformer("bert"), Pooling(WIDTH))))
    before = theirs.encode(TEXTS)
    model = PackedModel(theirs)
    shared = {id(weight) for weight in theirs[0].model.parameters()}
    assert {id(weight) for weight in model._forward.model.parameters()} == shared
    np.testing.assert_array_equal(theirs.encode(TEXTS), before)
    with torch.no_grad():
        theirs[0].model.embeddings.word_embeddings.weight.zero_()
    zeroed, ids = theirs.encode(["owl"]), theirs.tokenize(["owl"])["input_ids"][0]
    np.testing.assert_allclose(model.encode_ids(ids, np.array([len(ids)])), zeroed, atol=1e-5)
    assert np.abs(zeroed - before[2]).max() > 0.01


@pytest.mark.slow
@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([Dense(WIDTH, WIDTH, module_input_name="token_embeddings"), Pooling(WIDTH)], "Transformer, Dense, Pooling"),
        ([Pooling(WIDTH), Normalize("sentence_embedding", "normalized")], "its module Normalize"),
    ],
)
def test_what_cannot_run_packed_runs_by_the_library_and_says_so(
    after: list[nn.Module], why: str, transformer: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    folder = write_model(tmp_path / "owl-model", transformer("bert"), *after)
    capsys.readouterr()
    model = load_with_library(folder)
    assert model.packed is None
    told = capsys.readouterr().err
    assert told.startswith("owl-model: sentence-transformers embeds the texts, with padding: ") and why in told
    assert told.count("\n") == 1
    np.testing.assert_allclose(*both(model), atol=1e-5)


@pytest.mark.slow
def test_threads_may_share_a_model_that_runs_by_the_library(
    transformer: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its tokenizer refuses a second thread ("Already borrowed"), so that one waits until the other is done."""
    dense = Dense(WIDTH, WIDTH, module_input_name="token_embeddings")
    model = load_with_library(write_model(tmp_path, transformer("bert"), dense, Pooling(WIDTH)))
    assert model.packed is None and model.reader is not None
    encode, lock, is_free = model.modules.encode, model.reader.lock, []

    def encoded(texts: list[str], **options: Any) -> Any:
        with ThreadPoolExecutor(1) as other:
            is_free.append(other.submit(lock.acquire, blocking=False).result())
        return encode(texts, **options)

    monkeypatch.setattr(model.modules, "encode", encoded)
    alone = model.encode(TEXTS)
    assert is_free and not any(is_free)
    with ThreadPoolExecutor(4) as threads:
        for together in threads.map(model.encode, [TEXTS] * 8):
            np.testing.assert_array_equal(together, alone)


@pytest.mark.slow
def test_an_architecture_whose_packed_states_differ_runs_by_the_library(
    transformer: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    """As one would whose attention ignored the limits of sequences."""
    folder = write_model(tmp_path, transformer("bert"), Pooling(WIDTH))
    monkeypatch.setattr(packed, "PACKED_ATTENTION", "sdpa")
    model = load_with_library(folder)
    assert model.packed is None and "cannot run packed" in capsys.readouterr().err
    np.testing.assert_allclose(*both(model), atol=1e-6)


@pytest.mark.slow
def test_numbers_that_change_in_more_than_their_last_digits_have_a_cache_of_their_own(
    transformer: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed and padded sums differ in the third digit in bf16, and in the seventh in fp32."""
    folder = write_model(tmp_path, transformer("bert"), Pooling(WIDTH))
    packed_keys = {
        precision: load_with_library(folder, precision=precision).fingerprint for precision in ("fp32", "bf16")
    }

    def refused(model: SentenceTransformer) -> PackedModel:
        raise EncoderError("refused")

    monkeypatch.setattr(library, "PackedModel", refused)
    padded_keys = {
        precision: load_with_library(folder, precision=precision).fingerprint for precision in ("fp32", "bf16")
    }
    assert packed_keys["fp32"] == padded_keys["fp32"] and packed_keys["bf16"] != padded_keys["bf16"]


@pytest.mark.slow
@pytest.mark.guarantee("embeds-as-the-library")
def test_a_real_model_in_bf16_and_settings_of_its_folder(minilm: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    theirs = SentenceTransformer(str(minilm), device="cpu")
    theirs.save_pretrained(str(folder))
    settings = {"prompts": {"query": "Find: "}, "default_prompt_name": "query", "truncate_dim": 64}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    model = load_with_library(folder, precision="bf16")
    ours, same = both(model, prompt="Find: ")
    assert model.packed is not None and ours.shape == (len(TEXTS), 64) and cosines(ours, same).min() > 0.9999
