"""Compute the initial vectors of a static encoder (`model.init`).

    random    unit length on average
    idf       random, times the inverse document frequency of each token in the run's shards
    distill   each token by itself through another encoder -> pooled -> centered -> PCA -> unit length;
              random vectors of unit length in the other dimensions; all times the inverse document frequency

A longer vector has more weight in a mean, so inverse document frequencies alone already give a model that finds texts
by their rare words. The distilled vectors add meaning; the random dimensions separate words that the encoder embeds
alike. The distillation follows Model2Vec (https://github.com/MinishLab/model2vec), with two differences: it keeps the
whole vocabulary, since the shards hold its ids, and it weights tokens by their counts in the shards, not by their rank.
"""

import re
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clearspan.common.model_folder import EncoderError
from clearspan.train.model.packing import SpecialTokens
from clearspan.train.start.token_weights import PASSAGE_TOKENS

LETTERS = re.compile(r"(##|[\u0120\u2581])?[^\W_]{2,}(</w>|@@)?")
"""A token of two letters or more, with a tokenizer's marker for the beginning or the end of a word, such as `##`."""
TOGETHER = 512
"""The number of tokens that are embedded in one forward pass."""


@torch.inference_mode()
def distilled(model: nn.Sequential, special: SpecialTokens, num_tokens: int, dims: int) -> Tensor:
    """Return a vector of unit length for each token, (num_tokens, dims) fp32, computed by another encoder.

    Each token is embedded as a text by itself. The embeddings are centered over all tokens and projected on their first
    principal components.

    Args:
        model: a sentence-transformers model of any architecture. Padding is not needed, because all texts have the same
            length here.
        special: the tokens that the encoder puts around a text.
        dims: the number of components, at most the dimensions of the model.
    """
    vectors = torch.cat(
        [_embedded_alone(model, special, ids) for ids in torch.split(torch.arange(num_tokens), TOGETHER)]
    )
    centered = vectors - vectors.mean(dim=0)
    _, axes = torch.linalg.eigh(centered.T @ centered)  # by ascending variance
    return F.normalize(centered @ axes.flip(1)[:, :dims], dim=1)


def _embedded_alone(model: nn.Sequential, special: SpecialTokens, ids: Tensor) -> Tensor:
    """Return the embeddings of tokens, (n, h), each as a text by itself, before they are scaled to unit length.

    Args:
        ids: the tokens, (n,) int64.
    """
    from sentence_transformers.sentence_transformer.modules import Normalize, StaticEmbedding

    around = [
        torch.tensor(tokens, dtype=torch.long).expand(len(ids), -1) for tokens in (special.prefix, special.suffix)
    ]
    rows = torch.cat([around[0], ids[:, None], around[1]], dim=1)
    features = {"input_ids": rows, "attention_mask": torch.ones_like(rows)}
    if isinstance(model[0], StaticEmbedding):
        features = {"input_ids": ids, "offsets": torch.arange(len(ids))}
    for module in model:
        if not isinstance(module, Normalize):
            features = module(features)
    return features["sentence_embedding"].float()


def set_initial_vectors(model: nn.Module, weights: Tensor, initial: Tensor | None = None) -> None:
    """Set the first dimensions of a static model's vectors to `initial`, and multiply all vectors by the tokens'
    weights.

    Args:
        model: a `train.model.static.StaticModel` with random vectors.
        weights: the weights of the first V tokens of the model, (V,); the vectors of further tokens keep their length.
        initial: vectors of unit length for the first tokens and dimensions, (at most V, at most h) fp32; None to keep
            all dimensions random.
    """
    table = model.get_input_embeddings().weight.data  # type: ignore[operator]
    if initial is not None:
        rows, dims = initial.shape
        table[:, dims:] = F.normalize(table[:, dims:], dim=1)
        table[:rows, :dims] = initial
    table[: len(weights)] *= weights[:, None]


def split_dimensions(hidden_size: int | None, random_dims: int, encoder_dim: int) -> tuple[int, int]:
    """Return (number of all dimensions of a vector, number of dimensions that the encoder's vectors take up).

    The encoder's vectors take up to `encoder_dim` dimensions, but leave at least `random_dims` to random numbers.

    Args:
        hidden_size: the number of all dimensions; None for `encoder_dim` + `random_dims`.

    Raises:
        EncoderError: no dimension is left for the encoder's vectors.
    """
    size = hidden_size or encoder_dim + random_dims
    if size <= random_dims:
        raise EncoderError(f"random_dims {random_dims} leaves none of {size} dimensions for the encoder's vectors")
    return size, min(encoder_dim, size - random_dims)


def rank_weights(vocabulary: Mapping[str, int], num_tokens: int) -> Tensor:
    """Return inverse document frequencies, (num_tokens,) fp32, estimated by Zipf's law from the order of the token ids.

    This assumes that frequent tokens have lower ids, as in usual tokenizers. Special tokens and single characters get
    the smallest weight.
    """
    ranked = sorted(number for token, number in vocabulary.items() if LETTERS.fullmatch(token))
    chances = 1 / torch.arange(2, len(ranked) + 2, dtype=torch.float64)
    of_ranked = -torch.log1p(-((1 - chances / chances.sum()) ** PASSAGE_TOKENS)).float()
    weights = torch.full((num_tokens,), of_ranked.min().item() if ranked else 1.0)
    weights[ranked] = of_ranked
    return weights
