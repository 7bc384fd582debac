"""Tiny models with random weights of each architecture, as folders, and the texts that they embed."""

import copy
import json
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import torch
import transformers
from transformers import PretrainedConfig, PreTrainedModel

from clearspan.pipelines.text.byte_level_bpe import learn_tokenizer
from clearspan.train.model.tokenizer import load_tokenizer

VOCABULARY, DIM, LAYERS, HEADS = 600, 64, 2, 4
SIZE = {
    "vocab_size": VOCABULARY,
    "hidden_size": DIM,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 96,
    "pad_token_id": 1,
    "bos_token_id": 0,
    "eos_token_id": 2,
}
SHARED_KEYS = {"num_key_value_heads": 2, "head_dim": 16}
"""Two heads of queries share one of keys."""


def configs() -> dict[str, PretrainedConfig]:
    """Return name of an architecture -> its configuration; windows are shorter than the longest texts."""
    modern = {"cls_token_id": 0, "sep_token_id": 2, "local_attention": 16}
    distil = {"dim": DIM, "n_layers": LAYERS, "n_heads": HEADS, "hidden_dim": 96, "vocab_size": VOCABULARY}
    five = {"d_model": DIM, "d_kv": 16, "d_ff": 96, "num_layers": LAYERS, "num_heads": HEADS, "vocab_size": VOCABULARY}
    return {
        "BERT": transformers.BertConfig(**SIZE),
        "RoBERTa": transformers.RobertaConfig(**SIZE, max_position_embeddings=514, type_vocab_size=1),
        "XLM-R": transformers.XLMRobertaConfig(**SIZE, max_position_embeddings=514, type_vocab_size=1),
        "ModernBERT": transformers.ModernBertConfig(**SIZE, **modern),
        "ELECTRA": transformers.ElectraConfig(**SIZE, embedding_size=32),
        "DistilBERT": transformers.DistilBertConfig(**distil, pad_token_id=1),
        "MPNet": transformers.MPNetConfig(**SIZE, max_position_embeddings=514),
        "T5": transformers.T5Config(**five, pad_token_id=1, eos_token_id=2),
        "Nomic": transformers.NomicBertConfig(**SIZE),
        "Jina v3": transformers.JinaEmbeddingsV3Config(**SIZE),
        "EuroBERT": transformers.EuroBertConfig(**SIZE, num_key_value_heads=2),
        "Qwen 3": transformers.Qwen3Config(**SIZE, **SHARED_KEYS),
        "Llama": transformers.LlamaConfig(**SIZE, **SHARED_KEYS),
        "Gemma 3": transformers.Gemma3TextConfig(**SIZE, **SHARED_KEYS, sliding_window=16),
    }


def texts() -> list[str]:
    """Return 24 texts of 1 to 30 words of the documentation of Python's language."""
    words = " ".join(topics[name] for name in ("assert", "while", "with", "lambda")).split()
    lengths = [1 + 7 * number % 30 for number in range(24)]
    starts = [11 * number % (len(words) - 30) for number in range(24)]
    return [" ".join(words[start : start + length]) for start, length in zip(starts, lengths, strict=True)]


def write_tokenizer(folder: Path) -> Path:
    """Write a byte-level BPE tokenizer for the texts; return its folder."""
    folder.mkdir(parents=True)
    learn_tokenizer([topics[name] for name in ("assert", "while", "with", "lambda")], VOCABULARY, folder)
    return folder


def random_model(config: PretrainedConfig, head: bool = False, **options: Any) -> PreTrainedModel:
    """Return a model with random weights: the base model, or with its masked-LM head where it has one."""
    torch.manual_seed(0)
    config = copy.deepcopy(config)
    if config.model_type == "t5":
        return transformers.T5EncoderModel._from_config(config, **options)
    if head:
        from clearspan.common.pretrained import model_class

        return model_class(config).from_config(config, **options)
    return transformers.AutoModel.from_config(config, **options)


def write_model(folder: Path, config: PretrainedConfig, tokenizer: Path) -> Path:
    """Write a plain folder of transformers; return it."""
    random_model(config).save_pretrained(folder)
    load_tokenizer(tokenizer).save_pretrained(folder)
    settings = folder / "tokenizer_config.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"model_max_length": 512}))
    return folder
