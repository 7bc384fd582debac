"""Weights of tokens for `model.pooling: weighted` and `model.init`: inverse document frequencies in the shards.

    shards -> n passages of 64 tokens -> number n_t of passages that hold token t -> ln((1 + n) / (1 + n_t))

Most transformers end in a layer normalization, which makes all token states about equally long. So one word cannot
count more than another in their plain mean. The exported model multiplies the states by the same weights, in
sentence-transformers' module `WordWeights`. A pooling with learned attention is no alternative, because
sentence-transformers could load it only with additional code.
"""

from collections.abc import Iterable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from clearspan.common.model_folder import EncoderError
from clearspan.common.ragged import Ragged
from clearspan.shards import Dataset

PASSAGE_TOKENS = 64
MAX_TOKENS = 1 << 24
"""The number of tokens, from the start of each dataset, after which counting ends."""
LOWEST = 0.05
"""The smallest weight, so that a text of nothing but special tokens still has a vector."""


def inverse_frequencies(
    datasets: Iterable[Dataset], num_tokens: int, special: Iterable[int] = (), columns: Sequence[str] = ("tokens",)
) -> Tensor:
    """Return a weight for each token, its inverse document frequency, but at least 0.05: (num_tokens,) fp32.

    The weight of token t is ln((1 + n) / (1 + n_t)): texts are cut into n passages of 64 tokens, and n_t of these hold
    the token. Counting ends after some 17 million tokens of each dataset.

    Args:
        datasets: the text datasets in which tokens are counted.
        num_tokens: the number of token ids.
        special: the ids of special tokens, which get the smallest weight, because they stand around every text.
        columns: the names of the columns of texts to count in; a column that a dataset does not have is ignored.

    Raises:
        ShardError: a shard is damaged.
    """
    passages, holding = 0, np.zeros(num_tokens, np.int64)
    for dataset in datasets:
        left = MAX_TOKENS
        for batch in dataset:
            named = [name for name in columns if name in batch.schema.names]
            tokens = Ragged.concatenate([Ragged.from_arrow(batch.column(name)) for name in named])
            cut = np.arange(len(tokens.values)) - np.repeat(tokens.offsets[:-1], tokens.lengths)
            starts = cut % PASSAGE_TOKENS == 0
            pairs = np.unique((np.cumsum(starts) - 1) * num_tokens + tokens.values.astype(np.int64))
            holding += np.bincount(pairs % num_tokens, minlength=num_tokens)
            passages += int(starts.sum())
            left -= len(tokens.values)
            if left <= 0:
                break
    weights = np.log((1 + passages) / (1 + holding))
    weights[list(special)] = 0
    return torch.from_numpy(weights.clip(min=LOWEST)).float()


def resized(weights: Tensor, num_tokens: int) -> Tensor:
    """Return token weights for a model that has more tokens, such as new special tokens: (num_tokens,).

    New tokens get the smallest weight, 0.05.

    Args:
        weights: the weights in the model's folder, by token id.
        num_tokens: the number of the model's token embeddings.

    Raises:
        EncoderError: there are weights for more tokens than the model has.
    """
    if len(weights) > num_tokens:
        raise EncoderError(f"WordWeights for {len(weights):,} tokens, and {num_tokens:,} embeddings: they do not fit")
    return F.pad(weights, (0, num_tokens - len(weights)), value=LOWEST)
