"""Damaged, incomplete and inconsistent model folders are refused in one line, by evaluator and trainer."""

import copy
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models
from transformers import AutoModel, AutoModelForMaskedLM, BertConfig, MPNetConfig, PretrainedConfig

from clearspan.common.encoder.library import load_with_library
from clearspan.common.model_folder import EncoderError, check_tokenizer
from clearspan.common.pretrained import load_model
from tests.train.test_encoder import CONFIGS, SIZE

Weights = dict[str, torch.Tensor]
SETTINGS = "sentence_bert_config.json"
PROMPTS = "config_sentence_transformers.json"


def saved(config: PretrainedConfig, folder: Path, with_head: bool = True) -> Path:
    """Save a small model of an architecture with transformers, tied weights once."""
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(copy.deepcopy(config))
    (model if with_head else model.base_model).save_pretrained(folder)
    return folder


def change(folder: Path, edit: Callable[[Weights], Any]) -> Path:
    """Edit a folder's weights in place."""
    weights = load_file(folder / "model.safetensors")
    edit(weights)
    (folder / "model.safetensors").unlink()
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture
def folder(minilm: Path, tmp_path: Path) -> Path:
    """A copy of a real sentence-transformers folder, with a link to its weights."""
    folder = tmp_path / "model"
    shutil.copytree(minilm, folder, ignore=shutil.ignore_patterns("model.safetensors"))
    (folder / "model.safetensors").symlink_to(minilm / "model.safetensors")
    return folder


@pytest.mark.parametrize("with_head", [True, False])
@pytest.mark.parametrize("name", CONFIGS)
def test_a_whole_folder_is_loaded_and_only_a_head_that_it_has_not_is_new(
    name: str, with_head: bool, tmp_path: Path
) -> None:
    folder = saved(CONFIGS[name], tmp_path, with_head)
    for auto_class in (AutoModel, AutoModelForMaskedLM):
        model, new = load_model(folder, auto_class)
        assert set(new) == (set() if with_head or auto_class is AutoModel else new_names(name))
        assert not any(model.get_parameter(key).any() for key in new if key.endswith("bias"))
        states = model.base_model.state_dict()
        expected = AutoModel.from_pretrained(folder).state_dict()
        whole = [key for key in states if not key.startswith("pooler.")]
        assert all(torch.equal(states[key], expected[key]) for key in whole)


def new_names(name: str) -> set[str]:
    """Return the names of a head's weights, without those tied to the embeddings."""
    model = AutoModelForMaskedLM.from_config(copy.deepcopy(CONFIGS[name]))
    embeddings = model.get_input_embeddings().weight
    states = model.state_dict(keep_vars=True)
    return {key for key in states if key not in inside(model) and states[key] is not embeddings}


def inside(model: torch.nn.Module) -> set[str]:
    return {f"{model.base_model_prefix}.{key}" for key in model.base_model.state_dict()}


@pytest.mark.slow
@pytest.mark.parametrize("auto_class", [AutoModel, AutoModelForMaskedLM])
@pytest.mark.parametrize("name", CONFIGS)
def test_weights_that_are_missing_left_over_or_of_other_shapes_are_named(
    name: str, auto_class: Any, tmp_path: Path
) -> None:
    whole = saved(CONFIGS[name], tmp_path / "whole")
    keys = load_file(whole / "model.safetensors")
    (embedding,) = [key for key in keys if keys[key].shape[0] == 500 and keys[key].dim() == 2]
    layer = sorted(key for key in keys if ".2." in key)

    def refused(edit: Callable[[Weights], Any], message: str) -> None:
        folder = change(shutil.copytree(whole, tmp_path / "edited"), edit)
        with pytest.raises(EncoderError, match=message) as error:
            load_model(folder, auto_class)
        assert "\n" not in str(error.value)
        shutil.rmtree(folder)

    bare = layer[0].split(".", 1)[1]
    refused(lambda w: [w.pop(key) for key in layer], rf"lacks {len(layer)} of its weights: .*{bare}, .* and .* more")
    refused(lambda w: w.pop(embedding), "lacks 1 of its weights: .*embeddings")
    refused(lambda w: w.update({layer[0].replace(".2.", ".3."): w[layer[0]].clone()}), "no place for 1 of its weights")
    refused(lambda w: w.update({layer[0]: torch.zeros(3)}), r"has shape \[3\] where its config.json asks for \[\d")
    refused(lambda w: w[layer[0]].view(-1)[-1:].fill_(torch.nan), f"{bare} holds a NaN or an infinity")


def test_positions_that_older_versions_saved_are_no_weights(tmp_path: Path) -> None:
    folder = saved(CONFIGS["modernbert"], tmp_path, with_head=False)
    change(folder, lambda w: w.update({"embeddings.position_ids": torch.arange(512)[None]}))
    assert load_model(folder, AutoModel)[1] == []


def test_an_adapter_beside_a_model_is_refused(folder: Path) -> None:
    (folder / "adapter_config.json").write_text("{}")
    with pytest.raises(EncoderError, match="adapter"):
        load_with_library(folder)


def edit(path: Path, **fields: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **fields}))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "fields", "named"),
    [
        (SETTINGS, {"max_seq_length": "128"}, "no usable model"),
        (SETTINGS, {"max_seq_length": 2}, "takes 2 tokens, 2 of them special"),
        (
            PROMPTS,
            {"prompts": {"query": "Find: "}, "default_prompt_name": "passage"},
            "'passage' is not the name",
        ),
        (PROMPTS, {"prompts": {"query": 7}, "default_prompt_name": "query"}, "'query' is not the name"),
        (PROMPTS, {"truncate_dim": "64"}, "truncate_dim must be a positive integer"),
        ("config.json", {"model_type": ["bert"]}, "model_type"),
        ("config.json", {"hidden_size": "wide"}, "no usable model .*'hidden_size' expected int"),
        ("1_Pooling/config.json", {"pooling_mode": "median"}, "no usable model .*median"),
        (PROMPTS, {"model_type": "CrossEncoder"}, "must be SentenceTransformer"),
    ],
)
def test_a_setting_of_another_type_is_named(folder: Path, file: str, fields: dict[str, Any], named: str) -> None:
    edit(folder / file, **fields)
    with pytest.raises(EncoderError, match=named) as error:
        load_with_library(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "file", ["config.json", "modules.json", SETTINGS, PROMPTS, "tokenizer.json", "tokenizer_config.json"]
)
@pytest.mark.parametrize("content", [b"", b"[]", b"\xff\xfe\x00\x01", b'{"a":' * 100_000, b'{"a": 1'])
def test_a_file_that_holds_something_else_is_one_line(folder: Path, file: str, content: bytes) -> None:
    (folder / file).write_bytes(content)
    with pytest.raises(EncoderError, match=str(folder)) as error:
        load_with_library(folder)
    assert "\n" not in str(error.value) and len(str(error.value)) < 600


@pytest.mark.guarantee("no-foreign-code")
@pytest.mark.parametrize(
    ("modules", "named"),
    [
        ([{"name": "0", "type": 7, "path": ""}], "must be strings"),
        ([{"name": "0", "type": "sentence_transformers.models.Transformer", "path": None}], "must be strings"),
        ([{"name": "0", "type": "sentence_transformers.models.Router", "path": ""}], "Router is not supported"),
        ([{"type": "sentence_transformers.models.Transformer", "path": ""}], "name, type and path"),
        (
            [{"name": "0", "type": "own.Transformer", "path": ""}],
            "own.Transformer' is not part of sentence-transformers",
        ),
    ],
)
def test_modules_of_another_kind_are_named(folder: Path, modules: list[dict], named: str) -> None:
    (folder / "modules.json").write_text(json.dumps(modules))
    with pytest.raises(EncoderError, match=named):
        load_with_library(folder)


def test_an_id_that_has_no_embedding_is_one_line(minilm: Path, tmp_path: Path) -> None:
    folder = saved(BertConfig(**{**SIZE, "vocab_size": 29600}), tmp_path / "model")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(minilm / name, folder)
    model = load_with_library(folder)
    with pytest.raises(EncoderError, match=r"id 29,611, .* 29,600 embeddings"):
        model.encode(["a necessitated rest"])


@pytest.mark.parametrize(
    ("num_tokens", "num_embeddings"),
    [
        (50258, 50257),  # GPT-2 with a padding token without embedding
        (30522, 30528),  # BERT, padded to a multiple of 16
        (250_102, 251_000),  # mDeBERTa-v3
        (30_521, 50_000),  # IndoBERT
        (40, 1024),  # a toy, padded
    ],
)
def test_real_models_with_spare_embeddings_or_tokens_are_taken(
    num_tokens: int, num_embeddings: int, tmp_path: Path
) -> None:
    check_tokenizer(tmp_path, {str(number): number for number in range(num_tokens)}, num_embeddings)


def test_a_tokenizer_that_cannot_encode_a_text_is_one_line(tmp_path: Path) -> None:
    folder = saved(BertConfig(**SIZE), tmp_path)
    Tokenizer(models.WordPiece({"a": 0, "b": 1})).save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    with pytest.raises(EncoderError, match=r"cannot encode every text .*Missing"):
        load_with_library(folder).encode(["a text"])


@pytest.mark.parametrize("side", ["left", "right"])
def test_the_first_token_is_pooled_on_whichever_side_the_tokenizer_pads(
    side: str, minilm: Path, tmp_path: Path
) -> None:
    folder = saved(MPNetConfig(**{**SIZE, "vocab_size": 30522}), tmp_path / "mpnet", with_head=False)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(minilm / name, folder / name)
    edit(folder / "tokenizer_config.json", padding_side=side)
    model = load_with_library(folder, "cls")
    texts = ["two words", "a longer sentence of several words"]
    alone = np.concatenate([model.encode([text]) for text in texts])
    np.testing.assert_allclose(model.encode(texts), alone, atol=1e-5)
