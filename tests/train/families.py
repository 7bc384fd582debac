"""Small random models of families of encoders: packed (MPNet, T5, Qwen 3) and padded (DeBERTa v2, Gemma 2)."""

from pathlib import Path

import torch
import transformers
from transformers import DebertaV2Config, Gemma2Config, MPNetConfig, PretrainedConfig, Qwen3Config, T5Config

from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.pretrained import model_class
from tests.train.conftest import VOCABULARY

SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
HEADS = {"num_key_value_heads": 2, "head_dim": 8}
FIVE = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "dropout_rate": 0.0}
CONFIGS: dict[str, PretrainedConfig] = {
    "mpnet": MPNetConfig(**SIZE, **NO_DROPOUT, max_position_embeddings=130),
    "t5": T5Config(**FIVE, vocab_size=VOCABULARY, pad_token_id=1, eos_token_id=2),
    "qwen3": Qwen3Config(**SIZE, **HEADS),
    "deberta-v2": DebertaV2Config(**SIZE, **NO_DROPOUT, pos_att_type=["p2c", "c2p"], relative_attention=True),
    "gemma2": Gemma2Config(**SIZE, **HEADS, sliding_window=16, attn_logit_softcapping=1.0),
}
PADDED = {"deberta-v2": "the states of a packed sequence differ", "gemma2": "a cap on the scores"}
TEXTS = ["An owl hunts.", "Zwei Hunde bellen laut.", "words and more words " * 5 + "end", "x"]


def random_model(config: PretrainedConfig) -> transformers.PreTrainedModel:
    """A model with weights that are large enough to tell positions apart."""
    torch.manual_seed(0)
    model = model_class(config).from_config(config, attn_implementation=PACKED_ATTENTION)
    with torch.no_grad():
        for weight in model.base_model.parameters():
            if weight.dim() > 1:
                weight.normal_(std=0.2)
    return model


def overrides(folder: Path, pairs: Path, *more: str) -> list[str]:
    sizes = ["data.text.batch_size=12", "training.max_steps=4", "training.logging_steps=1", "training.bf16=false"]
    return [f"model.path={folder}", f"data.text.path={pairs}", *sizes, *more]
