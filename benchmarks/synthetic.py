"""Synthetic models and data for the benchmarks of a step: RoBERTa's layers with random weights, and random tokens."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import numpy as np
import torch
from transformers import RobertaConfig, RobertaForMaskedLM

from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.ragged import Ragged
from clearspan.shards import Dataset
from clearspan.train.config.options import Recipe
from clearspan.train.data.batch import TokenLists
from clearspan.train.export import save_model
from clearspan.train.modalities import Modality
from clearspan.train.model.encoder import TrainableEncoder
from clearspan.train.model.packing import SpecialTokens
from clearspan.train.model.tokenizer import load_tokenizer
from clearspan.train.objectives import Objective, Setting
from clearspan.train.recipe import to_yaml
from clearspan.train.start.build_encoder import build_encoder

AnyObjective = TypeVar("AnyObjective", bound=Objective)

VOCABULARY = 50265
SPECIAL = SpecialTokens(prefix=[0], suffix=[2], pad=1, mask=4)
NO_SHARDS: Any = SimpleNamespace(folder="", manifest=SimpleNamespace(resources={}, classes={}, lengths={}))
"""Stands in for a dataset: the benchmarks make their batches themselves."""


def config_of(layers: int, hidden: int, dropout: float, vocab_size: int = VOCABULARY) -> RobertaConfig:
    """Return the configuration of RoBERTa in another size, with attention heads of 64 dimensions."""
    return RobertaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=max(1, hidden // 64),
        intermediate_size=4 * hidden,
        max_position_embeddings=514,
        type_vocab_size=1,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


def random_encoder(layers: int, hidden: int, dropout: float) -> TrainableEncoder:
    """Return an encoder with random weights, drawn with a fixed seed."""
    torch.manual_seed(0)
    config = config_of(layers, hidden, dropout)
    return TrainableEncoder(RobertaForMaskedLM._from_config(config, attn_implementation=PACKED_ATTENTION))


def setting(
    encoder: TrainableEncoder, name: str, data: str, modality: Modality | None = None, vocab_size: int = VOCABULARY
) -> Setting:
    """Return the setting of an objective over synthetic batches."""
    capacity = encoder.max_tokens - SPECIAL.count
    return Setting(name, data, 0, capacity, vocab_size, encoder.dim, SPECIAL, NO_SHARDS, modality=modality)


def weighted(objective: AnyObjective, weight: float = 1.0) -> AnyObjective:
    """Return the objective with a weight, and the names in its setting, as a recipe would set them."""
    objective.name, objective.data, objective.weight = objective.setting.name, objective.setting.data, weight
    return objective


def texts(lengths: np.ndarray, generator: np.random.Generator) -> TokenLists:
    """Return sequences of random tokens of these lengths."""
    ids = generator.integers(5, VOCABULARY, lengths.sum(), np.int32)
    return TokenLists.of(Ragged(ids, np.concatenate([[0], lengths.cumsum()])))


def wait_for(device: torch.device) -> None:
    """Wait until the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def export_untrained(recipe: Recipe) -> Path:
    """Export the encoder of a recipe as it is before training; return its folder."""
    first = next(iter(recipe.data.values()))
    tokenizer = load_tokenizer(Dataset(first.path).local_tokenizer())
    encoder = build_encoder(recipe, tokenizer)
    encoder.drop_mlm_head()
    folder = Path(recipe.output) / "model"
    save_model(encoder, tokenizer, folder, to_yaml(recipe))
    return folder
