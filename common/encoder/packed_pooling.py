"""Poolings of a packed batch: the states of its T tokens, (T, h) -> one vector per sequence, (num_sequences, h) fp32.

The hidden states have h values. Filler sequences at the end of the batch, which `num_sequences` excludes, get no
vector. The results equal sentence-transformers' `Pooling` of padded batches. A sequence without tokens has the vector
0, or -inf from `maximum`.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from clearspan.common.encoder.packing import Packed


def mean(hidden: Tensor, packed: Packed, num_skipped: int = 0, weights: Tensor | None = None) -> Tensor:
    """Return the mean of each sequence's states, weighted if there are weights, (packed.num_sequences, h) fp32.

    Args:
        hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
        packed: the batch.
        num_skipped: the number of tokens at the beginning of each sequence that are left out. The result is 0 if the
            sequence has no other tokens.
        weights: the weights of the tokens, (T,) fp32, by which `hidden` was already multiplied; None if it was not.
            The weights of tokens that are left out count in the divisor, as in sentence-transformers.
    """
    if num_skipped or weights is not None:
        return _summed(hidden, packed, packed.positions >= num_skipped, weights)
    lengths = packed.cu_seqlens.diff().long()
    return (_reduced(hidden.float(), lengths, "sum") / lengths.clamp(min=1)[:, None])[: packed.num_sequences]


def first(hidden: Tensor, packed: Packed, num_skipped: int = 0, weights: Tensor | None = None) -> Tensor:
    """Return the state of each sequence's first token, (packed.num_sequences, h) fp32.

    Args:
        hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
        packed: the batch.
        num_skipped: the number of tokens at the beginning of each sequence that are left out. They are not left out if
            the sequence has no other tokens.
        weights: not used here; other poolings need them.
    """
    starts = packed.cu_seqlens[: packed.num_sequences].long()
    lengths = packed.cu_seqlens.diff()[: packed.num_sequences]
    rows = starts + torch.where(lengths > num_skipped, num_skipped, 0) if num_skipped else starts
    return hidden[rows.clamp(max=len(hidden) - 1)].float() * (lengths[:, None] > 0)


def last(hidden: Tensor, packed: Packed, num_skipped: int = 0, weights: Tensor | None = None) -> Tensor:
    """Return the state of each sequence's last token, (packed.num_sequences, h) fp32.

    Args:
        hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
        packed: the batch.
        num_skipped: the number of tokens at the beginning of each sequence that are left out. The result is 0 if the
            sequence has no other tokens.
        weights: not used here; other poolings need them.
    """
    n = packed.num_sequences
    chosen = hidden[(packed.cu_seqlens[1 : n + 1].long() - 1).clamp(min=0)].float()
    return chosen * (packed.cu_seqlens.diff()[:n, None] > num_skipped)


def maximum(hidden: Tensor, packed: Packed, num_skipped: int = 0, weights: Tensor | None = None) -> Tensor:
    """Return the largest value of each dimension over each sequence's states, (packed.num_sequences, h) fp32.

    Args:
        hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
        packed: the batch.
        num_skipped: the number of tokens at the beginning of each sequence that are left out. The result is -inf if the
            sequence has no other tokens.
        weights: not used here; other poolings need them.
    """
    counts = packed.positions >= num_skipped
    lengths = packed.cu_seqlens.diff().long()
    return _reduced(hidden.masked_fill(~counts[:, None], -torch.inf), lengths, "max")[: packed.num_sequences]


def mean_by_root(hidden: Tensor, packed: Packed, num_skipped: int = 0, weights: Tensor | None = None) -> Tensor:
    """Return the sum of each sequence's states, divided by the square root of the number of these states.

    If there are weights, the divisor is the square root of their sum. The result is (packed.num_sequences, h) fp32.

    Args:
        hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
        packed: the batch.
        num_skipped: the number of tokens at the beginning of each sequence that are left out. The result is 0 if the
            sequence has no other tokens.
        weights: the weights of the tokens, (T,) fp32, by which `hidden` was already multiplied; None if it was not.
            The weights of tokens that are left out count in the divisor, as in sentence-transformers.
    """
    return _summed(hidden, packed, packed.positions >= num_skipped, weights, by_root=True)


def mean_by_position(hidden: Tensor, packed: Packed, num_skipped: int = 0, weights: Tensor | None = None) -> Tensor:
    """Return the mean of each sequence's states, weighted by position, (packed.num_sequences, h) fp32.

    The weights are 1, 2, 3, ..., counted from the first token of the sequence, even if that token is left out.

    Args:
        hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
        packed: the batch.
        num_skipped: the number of tokens at the beginning of each sequence that are left out. The result is 0 if the
            sequence has no other tokens.
        weights: the weights of the tokens, (T,) fp32, by which `hidden` was already multiplied; None if it was not.
            If there are weights, the sum of the states is divided by the sum of the weights, instead of the sum of the
            positions.
    """
    return _summed(hidden, packed, (packed.positions >= num_skipped) * (packed.positions + 1.0), weights)


Pool = Callable[[Tensor, Packed, int, Tensor | None], Tensor]
FUNCTIONS: dict[str, Pool] = {
    "mean": mean,
    "cls": first,
    "lasttoken": last,
    "max": maximum,
    "mean_sqrt_len_tokens": mean_by_root,
    "weightedmean": mean_by_position,
}
"""Name in `common.encoder.pooling_names` of each pooling that is computed from token states -> its function."""


def pooled(hidden: Tensor, packed: Packed, mode: str, num_skipped: int = 0, weights: Tensor | None = None) -> Tensor:
    """Pool the states of each sequence as sentence-transformers' `Pooling` does, (packed.num_sequences, h) fp32.

    Args:
        hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
        packed: the batch.
        mode: the pooling mode, a key of `FUNCTIONS`, such as "mean".
        num_skipped: the number of tokens at the beginning of each sequence that are left out, such as a prompt's.
        weights: the weights of the tokens, (T,) fp32, by which this function multiplies the states, e.g. from
            sentence-transformers' `WordWeights`; None for no weights.
    """
    hidden = hidden.float() if weights is None else hidden.float() * weights[:, None]
    return FUNCTIONS[mode](hidden, packed, num_skipped, weights)


def _summed(hidden: Tensor, packed: Packed, factors: Tensor, weights: Tensor | None, by_root: bool = False) -> Tensor:
    """Multiply each state by its factor, add the products of each sequence, and divide by the sum of its weights.

    Args:
        hidden: the hidden states, of width h, of the T tokens of the batch, (T, h).
        packed: the batch.
        factors: the factor of each state, (T,); 0 for a state that is left out.
        weights: the weights of the tokens, (T,), by which `hidden` was already multiplied. None if it was not; the
            divisor is then the sum of the factors.
        by_root: whether to divide by the square root of that sum instead.

    Returns:
        The results, (packed.num_sequences, h) fp32.
    """
    n = packed.num_sequences
    lengths = packed.cu_seqlens.diff().long()
    factors = factors.float()
    summed = _reduced(hidden * factors[:, None], lengths, "sum")
    # The library divides by the sum of all weights, those of a prompt too.
    total = _reduced((factors if weights is None else weights)[:, None], lengths, "sum").clamp(min=1e-9)
    return (summed / (total.sqrt() if by_root else total))[:n]


def _reduced(values: Tensor, lengths: Tensor, how: str) -> Tensor:
    """Return the sum or maximum over the tokens of each sequence, (N, h).

    Args:
        values: h values for each of the T tokens of all sequences, (T, h).
        lengths: the number of tokens of each of the N sequences, (N,).
        how: "sum" or "max".
    """
    return torch.segment_reduce(values, how, lengths=lengths, axis=0, unsafe=True)
