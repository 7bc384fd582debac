"""Compute the initial vectors of a static encoder (`model.init`).

    random    random vectors, of unit length on average
    idf       the same, each multiplied by the inverse document frequency of its token in the run's shards
    distill   each token as a text through another encoder -> centered -> PCA -> unit length;
              random vectors of unit length in the remaining dimensions; all multiplied as for idf

A longer vector has more weight in a mean, so inverse document frequencies alone already give a model that finds texts
by their rare words. The distilled vectors add meaning; the random dimensions separate words that the other encoder
embeds alike. The distillation follows Model2Vec (https://github.com/MinishLab/model2vec), with two differences: it
includes the whole vocabulary, since the shards hold its ids, and it weights tokens by their counts in the shards, not
by their rank.
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

    Each token is embedded as a text of this token only. The embeddings are centered over all tokens and projected on
    their first principal components.

    Args:
        model: the other encoder, a sentence-transformers model of any architecture.
        special: the tokens that this encoder puts around a text.
        num_tokens: the number of tokens, which have the ids 0 to num_tokens - 1.
        dims: the number of components, at most the number of dimensions of the model's vectors.
    """
    vectors = torch.cat(
        [_embedded_alone(model, special, ids) for ids in torch.split(torch.arange(num_tokens), TOGETHER)]
    )
    centered = vectors - vectors.mean(dim=0)
    _, axes = torch.linalg.eigh(centered.T @ centered)  # by ascending variance
    return F.normalize(centered @ axes.flip(1)[:, :dims], dim=1)


def _embedded_alone(model: nn.Sequential, special: SpecialTokens, ids: Tensor) -> Tensor:
    """Return the embedding of each of n tokens, (n, h) fp32: the vector of a text that consists of this token.

    The vectors have the h dimensions of the model, and are not scaled to unit length.

    Args:
        model: a sentence-transformers model.
        special: the tokens that the model puts around a text; a static model puts none.
        ids: the ids of the tokens, (n,) int64.
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
    """Replace the first dimensions of a static model's vectors by `initial`, then multiply each vector by its weight.

    If `initial` is not None, the part of a vector in the remaining dimensions is first scaled to unit length.

    Args:
        model: a `train.model.static.StaticModel` with random vectors of h dimensions, which are changed in place.
        weights: the weights of the tokens with the ids 0 to V - 1, (V,) fp32; the vectors of further tokens are not
            multiplied.
        initial: vectors of unit length that replace the first dimensions of the first tokens, (at most V, at most h)
            fp32; None to keep all dimensions random.
    """
    table = model.get_input_embeddings().weight.data  # type: ignore[operator]
    if initial is not None:
        rows, dims = initial.shape
        table[:, dims:] = F.normalize(table[:, dims:], dim=1)
        table[:rows, :dims] = initial
    table[: len(weights)] *= weights[:, None]


def split_dimensions(hidden_size: int | None, random_dims: int, encoder_dim: int) -> tuple[int, int]:
    """Divide the dimensions of a static model between the vectors of `model.distill`'s encoder and random numbers.

    The encoder's vectors get up to `encoder_dim` dimensions, but leave at least `random_dims` to random numbers.

    Args:
        hidden_size: the number of all dimensions; None for `encoder_dim` + `random_dims`.
        random_dims: the minimum number of random dimensions.
        encoder_dim: the number of dimensions of the encoder's vectors.

    Returns:
        The number of all dimensions, and the number of dimensions that the encoder's vectors get.

    Raises:
        EncoderError: no dimension is left for the encoder's vectors.
    """
    size = hidden_size or encoder_dim + random_dims
    if size <= random_dims:
        raise EncoderError(f"random_dims {random_dims} leaves none of {size} dimensions for the encoder's vectors")
    return size, min(encoder_dim, size - random_dims)


def rank_weights(vocabulary: Mapping[str, int], num_tokens: int) -> Tensor:
    """Return a weight for each token, its inverse document frequency as Zipf's law estimates it: (num_tokens,) fp32.

    The law gives a token's frequency from its rank. The rank is taken from the order of the token ids, because in usual
    tokenizers frequent tokens have lower ids. Special tokens and single characters get the smallest weight.

    Args:
        vocabulary: token -> its id.
        num_tokens: the number of ids, including ids without a token.
    """
    ranked = sorted(number for token, number in vocabulary.items() if LETTERS.fullmatch(token))
    chances = 1 / torch.arange(2, len(ranked) + 2, dtype=torch.float64)
    of_ranked = -torch.log1p(-((1 - chances / chances.sum()) ** PASSAGE_TOKENS)).float()
    weights = torch.full((num_tokens,), of_ranked.min().item() if ranked else 1.0)
    weights[ranked] = of_ranked
    return weights
