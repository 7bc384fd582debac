"""Encoders without a masked-LM head, such as decoders and T5: which train packed, and how all are distilled."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from transformers import (
    AutoModel,
    Gemma3TextConfig,
    GPT2Config,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    Qwen2Config,
    T5Config,
)

from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.library import load_with_library
from clearspan.common.encoder.packing import pack_ids
from clearspan.shards import Dataset
from clearspan.train import distill
from clearspan.train.config.options import ModelConfig, Recipe, RecipeError
from clearspan.train.model.embedding import encode_texts
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.recipe import load_recipe
from clearspan.train.start.build_encoder import build_encoder
from clearspan.train.start.build_learner import build_learner
from tests.train.conftest import TINY_MODEL, VOCABULARY
from tests.train.ranks import train_alone
from tests.train.test_encoder import LENGTHS, padded_hidden, sequences

SIZE = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128}
ROPE = {"rope_type": "default", "rope_theta": 1234.0}
CONFIGS = {
    "qwen2": Qwen2Config(**SIZE, num_key_value_heads=2, rope_parameters=ROPE, attention_dropout=0.0),
    "llama": LlamaConfig(**SIZE),
    "mistral": MistralConfig(**SIZE, num_key_value_heads=2, sliding_window=16),
    "gemma3": Gemma3TextConfig(**SIZE, num_key_value_heads=2, head_dim=16, sliding_window=16),
    "gpt2": GPT2Config(n_embd=64, n_layer=2, n_head=4, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
}
T5 = T5Config(d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)
TEXTS = ["An owl hunts.", "Zwei Hunde bellen laut.", "words and more words " * 5 + "end", "x"]


def sized(config: PretrainedConfig) -> PretrainedConfig:
    """The configuration for the tests' tokenizer."""
    config = copy.deepcopy(config)
    config.vocab_size, config.pad_token_id, config.bos_token_id, config.eos_token_id = VOCABULARY, 1, 0, 2
    return config


def written(folder: Path, tokenizer_folder: Path, config: PretrainedConfig, head: str = "") -> Path:
    """A folder of a tiny random model, of a class with this head."""
    torch.manual_seed(0)
    config = sized(config)
    if config.model_type == "t5":
        model = transformers.T5EncoderModel(config)
    else:
        model = getattr(transformers, f"AutoModel{head}").from_config(config)
    model.save_pretrained(folder)
    load_tokenizer(tokenizer_folder).save_pretrained(folder)
    return folder


@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.guarantee("packed-equals-padded")
@pytest.mark.parametrize("name", CONFIGS)
def test_a_decoder_runs_packed_as_padded(name: str) -> None:
    """States and gradients: tokens see earlier ones only, within the window, by heads that share keys and values."""
    torch.manual_seed(0)
    model = AutoModel.from_config(sized(CONFIGS[name]), attn_implementation=PACKED_ATTENTION)
    padded_model = AutoModel.from_config(sized(CONFIGS[name]), attn_implementation="eager")
    padded_model.load_state_dict(model.state_dict())
    encoder, ids = TrainableEncoder(model, "lasttoken").eval(), sequences()
    packed, padded = encoder(pack_ids(ids)), padded_hidden(padded_model.eval(), ids)
    torch.testing.assert_close(packed, padded, atol=2e-5, rtol=1e-4)
    last = torch.stack([part[-1] for part in padded.split(LENGTHS)])
    torch.testing.assert_close(encoder.pool(packed, pack_ids(ids)), last, atol=2e-5, rtol=1e-4)
    weights = torch.randn(packed.shape, generator=torch.Generator().manual_seed(2)) / len(packed)
    (packed * weights).sum().backward()
    (padded * weights).sum().backward()
    for (key, ours), (_, theirs) in zip(model.named_parameters(), padded_model.named_parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, atol=2e-5, rtol=1e-3, msg=lambda m, k=key: f"{k}: {m}")


@pytest.mark.guarantee("encoders-of-any-class")
def test_masked_lm_on_a_decoder_is_refused_by_the_name_of_the_objective(
    dataset_folder: Path, tokenizer_folder: Path, tmp_path: Path
) -> None:
    folder = written(tmp_path / "model", tokenizer_folder, CONFIGS["qwen2"])
    words = [f"data.text.path={dataset_folder}", "model.config=null", f"model.path={folder}", "output=unused"]
    words += ["objectives.spans.sampler.max_span=24", "objectives.spans.sampler.min_span=4"]
    with pytest.raises(RecipeError, match=r"qwen2 has no masked-LM head .*objectives.mlm"):
        build_learner(load_recipe("demo", words), {"text": Dataset(str(dataset_folder))}, 1, False)


@pytest.mark.slow
@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("pooling", ["mean", "lasttoken"])
def test_a_decoder_embeds_as_the_library_does_and_so_does_its_export(
    pooling: str, tokenizer_folder: Path, tmp_path: Path
) -> None:
    from clearspan.train.export import save_model

    folder, tokenizer = written(tmp_path / "model", tokenizer_folder, CONFIGS["qwen2"], "ForCausalLM"), None
    modules = [Transformer(str(folder)), Pooling(64, pooling)]
    theirs = SentenceTransformer(modules=modules, device="cpu")
    theirs.save_pretrained(str(tmp_path / "whole"))
    tokenizer = load_tokenizer(tmp_path / "whole")
    encoder = build_encoder(Recipe(output="unused", model=ModelConfig(path=str(tmp_path / "whole"))), tokenizer)
    assert encoder.pooling == pooling
    np.testing.assert_allclose(encode_texts(encoder, tokenizer, TEXTS), theirs.encode(TEXTS), atol=1e-5)
    save_model(encoder, tokenizer, tmp_path / "export", "")
    np.testing.assert_allclose(load_with_library(tmp_path / "export").encode(TEXTS), theirs.encode(TEXTS), atol=1e-5)


@pytest.mark.slow
@pytest.mark.guarantee("encoders-of-any-class")
@pytest.mark.parametrize("config", [CONFIGS["qwen2"], T5], ids=["qwen2", "t5"])
def test_any_encoder_is_distilled_as_the_library_embeds_each_token(
    config: PretrainedConfig, tokenizer_folder: Path, tmp_path: Path
) -> None:
    """A rotation keeps the products of the centered vectors of unit length."""
    folder = written(tmp_path / "model", tokenizer_folder, config)
    assert distill.main(["--model", str(folder), "--output", str(tmp_path / "static")]) == 0
    table = SentenceTransformer(str(tmp_path / "static"), device="cpu")[0].embedding.weight.detach()
    tokens = torch.nn.functional.normalize(table, dim=1)
    with torch.no_grad():
        ids = torch.arange(VOCABULARY)[:, None]
        rows = torch.cat([torch.zeros_like(ids), ids, torch.full_like(ids, 2)], dim=1)  # <s> ... </s>
        states = load_with_library(folder).modules({"input_ids": rows, "attention_mask": torch.ones_like(rows)})
    vectors = states["sentence_embedding"]
    expected = torch.nn.functional.normalize(vectors - vectors.mean(dim=0), dim=1)
    torch.testing.assert_close(tokens @ tokens.T, expected @ expected.T, atol=1e-3, rtol=0)


@pytest.mark.exhaustive
@pytest.mark.guarantee("encoders-of-any-class")
def test_a_decoder_is_trained_and_exported(tiny: list[str], tokenizer_folder: Path, tmp_path: Path) -> None:
    folder = written(tmp_path / "model", tokenizer_folder, CONFIGS["qwen2"])
    words = [option for option in tiny if option not in TINY_MODEL]
    words += ["model.config=null", f"model.path={folder}", "model.pooling=lasttoken", "objectives.mlm=null"]
    train_alone(*words, "optimizer.learning_rate=0.003", f"output={tmp_path / 'run'}")
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert np.isfinite([line["loss"] for line in lines]).all()
    model = SentenceTransformer(str(tmp_path / "run" / "model"), device="cpu")
    assert model[1].pooling_mode == "lasttoken" and type(model[0].model).__name__ == "Qwen2Model"
    np.testing.assert_allclose(
        load_with_library(tmp_path / "run" / "model").encode(TEXTS), model.encode(TEXTS), atol=1e-6
    )
    assert not np.allclose(model.encode(TEXTS), load_with_library(folder).encode(TEXTS), atol=1e-3)
