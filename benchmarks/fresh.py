"""What the benchmarks of a step have in place of a model's folder and of shards: RoBERTa's layers and random tokens."""

from types import SimpleNamespace
from typing import TypeVar

import numpy as np
import torch
from transformers import RobertaConfig, RobertaForMaskedLM

from clearspan.shards.ragged import Ragged
from clearspan.train.data.batch import TokenLists
from clearspan.train.modalities import Modality
from clearspan.train.model.attention import PACKED_ATTENTION
from clearspan.train.model.encoder import Encoder
from clearspan.train.model.packing import SpecialTokens
from clearspan.train.objectives import Objective, Setting

Made = TypeVar("Made", bound=Objective)

VOCABULARY = 50265
SPECIAL = SpecialTokens(prefix=[0], suffix=[2], pad=1, mask=4)


class NoShards(SimpleNamespace):
    """A dataset that says of itself only that it has no classes: the batches are made here."""

    folder = ""
    manifest = SimpleNamespace(resources={}, classes={})


def config_of(layers: int, hidden: int, dropout: float, vocab_size: int = VOCABULARY) -> RobertaConfig:
    """RoBERTa's layers in a size of one's own, with heads of 64."""
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


def fresh_encoder(layers: int, hidden: int, dropout: float) -> Encoder:
    """An encoder of such layers, drawn by one seed."""
    torch.manual_seed(0)
    config = config_of(layers, hidden, dropout)
    return Encoder(RobertaForMaskedLM._from_config(config, attn_implementation=PACKED_ATTENTION))


def setting(encoder: Encoder, name: str, data: str, modality: Modality | None = None) -> Setting:
    """What an objective over batches that are made here is told."""
    sizes = {"capacity": encoder.max_tokens - SPECIAL.count, "vocab_size": VOCABULARY, "dim": encoder.dim}
    return Setting(name, data, 0, **sizes, special=SPECIAL, dataset=NoShards(), modality=modality)


def weighted(objective: Made, weight: float = 1.0) -> Made:
    """The objective by the name of its setting, as a recipe would have it."""
    objective.name, objective.data, objective.weight = objective.setting.name, objective.setting.data, weight
    return objective


def texts(lengths: np.ndarray, generator: np.random.Generator) -> TokenLists:
    """Random tokens of such lengths."""
    ids = generator.integers(5, VOCABULARY, lengths.sum(), np.int32)
    return TokenLists.of(Ragged(ids, np.concatenate([[0], lengths.cumsum()])))
