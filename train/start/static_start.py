"""Initial vectors of a static encoder: `model.init`.

    random    unit length on average
    idf       random, times the inverse document frequency of each token in the run's shards
    distill   each token alone through an encoder -> pooled -> centered -> PCA -> unit length;
              random vectors of unit length in the other dimensions; all times the inverse document frequency

A longer vector has more weight in a mean, so inverse document frequencies alone already give a model that finds texts
by their rare words. The distilled vectors add meaning; the random dimensions separate words that the encoder embeds
alike. The distillation follows Model2Vec (https://github.com/MinishLab/model2vec), except that it keeps the whole
vocabulary, since the shards hold its ids, and weights tokens by their counts in the shards, not by their rank.
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
"""A token of two letters or more, with the marker of its place in a word."""
TOGETHER = 512
"""Number of tokens that are embedded in one forward pass."""


@torch.inference_mode()
def distilled(model: nn.Sequential, special: SpecialTokens, num_tokens: int, dims: int) -> Tensor:
    """Return a vector of unit length for each token: its embedding as a text by itself, centered over all tokens and
    projected on the first principal components, (num_tokens, dims) fp32.

    Args:
        model: a sentence-transformers model of any architecture. All texts have the same length here: there is no
            padding.
        special: the tokens that the encoder puts around a text.
        dims: at most the dimensions of the model.
    """
    vectors = torch.cat([_alone(model, special, ids) for ids in torch.split(torch.arange(num_tokens), TOGETHER)])
    centered = vectors - vectors.mean(dim=0)
    _, axes = torch.linalg.eigh(centered.T @ centered)  # by ascending variance
    return F.normalize(centered @ axes.flip(1)[:, :dims], dim=1)


def _alone(model: nn.Sequential, special: SpecialTokens, ids: Tensor) -> Tensor:
    """Return the embeddings of tokens (n,), each as a text by itself, before they are scaled to unit length: (n, h)."""
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


def start(model: nn.Module, weights: Tensor, known: Tensor | None = None) -> None:
    """Set the first dimensions of a static model's vectors to `known`, and scale all by the tokens' weights.

    Args:
        model: `train.model.static.StaticModel` with random vectors.
        weights: (V,), for the first V tokens of the model; the vectors of further tokens keep their length.
        known: (at most V, at most h) fp32, of unit length.
    """
    table = model.get_input_embeddings().weight.data  # type: ignore[operator]
    if known is not None:
        rows, dims = known.shape
        table[:, dims:] = F.normalize(table[:, dims:], dim=1)
        table[:rows, :dims] = known
    table[: len(weights)] *= weights[:, None]


def split(hidden_size: int | None, random_dims: int, encoder_dim: int) -> tuple[int, int]:
    """Return (all dimensions, distilled ones): the encoder's dimensions, as far as `random_dims` leaves room for them.

    Raises:
        EncoderError: no dimension is left for the encoder's vectors.
    """
    size = hidden_size or encoder_dim + random_dims
    if size <= random_dims:
        raise EncoderError(f"random_dims {random_dims} leaves none of {size} dimensions for the encoder's vectors")
    return size, min(encoder_dim, size - random_dims)


def rank_weights(vocabulary: Mapping[str, int], num_tokens: int) -> Tensor:
    """Return inverse document frequencies, (num_tokens,) fp32, estimated by Zipf's law from the order of the token ids.

    Tokenizers number frequent tokens first. Special tokens and single characters get the smallest weight.
    """
    ranked = sorted(number for token, number in vocabulary.items() if LETTERS.fullmatch(token))
    chances = 1 / torch.arange(2, len(ranked) + 2, dtype=torch.float64)
    of_ranked = -torch.log1p(-((1 - chances / chances.sum()) ** PASSAGE_TOKENS)).float()
    weights = torch.full((num_tokens,), of_ranked.min().item() if ranked else 1.0)
    weights[ranked] = of_ranked
    return weights
