"""A static encoder: a learned vector for each token, without layers; a text's vector is the mean of its token vectors.

    ids (T,) -> table (V, h) -> mean of each sequence (N, h)

There are T tokens in N sequences, V tokens in the vocabulary, and h dimensions. The encoder is a transformers model of
the type `static`, so that recipes, checkpoints and `TrainableEncoder` treat it like any model. Neither training nor the
export, sentence-transformers' `StaticEmbedding`, adds special tokens or cuts texts. Cosine similarity ignores the
length of a text's vector, but in the mean a longer token vector counts more. So the table learns which tokens matter.
Source: arXiv 2508.03453.
"""

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init

from clearspan.common.model_folder import EncoderError
from clearspan.train.config.options import STATIC


class StaticConfig(PreTrainedConfig):  # type: ignore[misc]
    """The options of `model.config` with `model_type: static`.

    Args:
        hidden_size: the number of dimensions of the vectors.
        weights: whether each token has a learned weight, by which its vector is multiplied. If True, the exported table
            holds the products.
        dropout: the probability that a component of a sequence's mean is set to 0 in training.
    """

    model_type = STATIC
    vocab_size: int = 1
    hidden_size: int = 512
    weights: bool = False
    dropout: float | int = 0.0

    def __post_init__(self, **options: Any) -> None:
        super().__post_init__(**options)
        if type(self.hidden_size) is not int or self.hidden_size < 1:
            raise EncoderError(f"hidden_size {self.hidden_size!r} must be a positive number of dimensions")
        if type(self.weights) is not bool:
            raise EncoderError(f"weights {self.weights!r} must be true or false")
        if type(self.dropout) not in (int, float) or not 0 <= self.dropout < 1:
            raise EncoderError(f"dropout {self.dropout!r} must be a probability below 1")


class TokenVectors(nn.EmbeddingBag):
    """The table of token vectors: ids (T,), offsets (N + 1,) -> the sum of each sequence's vectors, (N, h).

    `offsets` holds the cumulative lengths of N sequences with T tokens in all; h is the number of dimensions. If tokens
    have weights, each vector is multiplied by its token's weight. torch's fused `EmbeddingBag` adds the vectors up
    without storing them for all T tokens.
    """

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config.vocab_size, config.hidden_size, mode="sum", include_last_offset=True)
        self.scale = nn.Parameter(torch.ones(config.vocab_size)) if config.weights else None

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:  # type: ignore[override]
        scale = None if self.scale is None else nn.functional.embedding(ids, self.scale[:, None])[:, 0]
        return super().forward(ids, offsets, scale)

    @torch.no_grad()
    def folded(self) -> Tensor:
        """Return a copy of the table in which each token's vector is multiplied by its weight, (V, h) fp32.

        V is the number of tokens in the vocabulary. If tokens have no weights, the vectors are unchanged.
        """
        return (self.weight if self.scale is None else self.weight * self.scale[:, None]).detach().float().clone()


class StaticModel(PreTrainedModel):  # type: ignore[misc]
    """A base model of transformers that consists of a table of token vectors, and returns the mean of each sequence."""

    config_class = StaticConfig
    base_model_prefix = STATIC
    config: StaticConfig

    def __init__(self, config: StaticConfig) -> None:
        super().__init__(config)
        self.embeddings, self.dropout = TokenVectors(config), nn.Dropout(config.dropout)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """If `module` is the table, draw vectors whose mean squared length is 1, and set the weights of tokens to 1."""
        if isinstance(module, TokenVectors):
            init.normal_(module.weight, std=self.config.hidden_size**-0.5)
            if module.scale is not None:
                init.ones_(module.scale)

    def get_input_embeddings(self) -> nn.EmbeddingBag:
        return self.embeddings

    def forward(self, ids: Tensor, offsets: Tensor) -> Tensor:
        """Return the mean vector of each sequence: ids (T,), offsets (N + 1,) -> (N, h) fp32.

        `offsets` holds the cumulative lengths of N sequences with T tokens in all; h is the number of dimensions. The
        mean of an empty sequence is 0. In training, dropout is applied to the means.
        """
        means: Tensor = self.embeddings(ids, offsets.to(ids.dtype)) / offsets.diff().clamp(min=1)[:, None]
        dropped: Tensor = self.dropout(means)
        return dropped


AutoConfig.register(STATIC, StaticConfig)
for auto in (AutoModel, AutoModelForMaskedLM):  # it has no masked-LM head: `Encoder.mlm_head` is None
    auto.register(StaticConfig, StaticModel)
