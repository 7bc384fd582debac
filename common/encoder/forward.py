"""The forward of a transformers model on a packed batch, and the pooling of its states.

    Packed -> states: the model's embeddings and layers, attention within each sequence -> (T, h) -> a pooling -> (N, h)

`check_packing` compares a model's packed and unpacked states on two sequences: an architecture that does not support
packing (`common.encoder.attention`) is refused, not silently wrong.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearspan.common.encoder.attention import PACKED_ATTENTION
from clearspan.common.encoder.packing import Packed, pack_ids
from clearspan.common.model_folder import EncoderError

UNLIMITED = 1 << 31
"""The longest sequence, in tokens, of an encoder without attention or without a limit of positions."""


def states(base: Any, packed: Packed, positions: Tensor) -> Tensor:
    """Return the hidden states of a packed batch, (T, h); each sequence attends to itself only.

    Args:
        base: a transformers base model whose attention is `PACKED_ATTENTION`.
        positions: (1, T), the position ids of the rows, as the model counts them.
    """
    options = {"use_cache": False} if getattr(base.config, "use_cache", False) else {}  # a decoder's, of no use here
    output = base(input_ids=packed.ids[None], position_ids=positions, packed=packed, **options)
    hidden: Tensor = output.last_hidden_state[0]
    return hidden


@torch.no_grad()
def check_packing(base: Any, forward: Callable[[Packed], Tensor], max_tokens: int) -> None:
    """Raise EncoderError unless two sequences have the same states packed and alone. One of them is longer than any
    local attention window.

    Args:
        base: a transformers base model in evaluation mode, whose attention is `PACKED_ATTENTION`.
        forward: returns the model's states of a packed batch, (T, h).
        max_tokens: the longest sequence that the model takes.
    """
    window = getattr(base.config, "sliding_window", None) or 0
    lengths = [min(window + 24, max_tokens), 9]
    ids = torch.arange(sum(lengths), device=base.device) * 7 % (base.config.vocab_size - 8) + 8
    sequences = [ids[: lengths[0]].tolist(), ids[lengths[0] :].tolist()]
    problem = ""
    try:
        packed = forward(pack_ids(sequences, base.device))
        base.set_attn_implementation("eager")
        alone = [base(input_ids=x[None]).last_hidden_state[0] for x in torch.split(ids, lengths)]
        if not torch.allclose(packed, torch.cat(alone), atol=1e-3 * float(packed.abs().max())):
            problem = "the states of a packed sequence differ from those it has alone"
    except NotImplementedError as error:
        problem = str(error)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    base.set_attn_implementation(PACKED_ATTENTION)
    if problem:
        raise EncoderError(f"model type {base.config.model_type!r} cannot run packed: {problem}")


def mean(hidden: Tensor, packed: Packed, weights: Tensor | None = None) -> Tensor:
    """Return the mean of each sequence's states in fp32, 0 if empty: hidden (T, h) -> (num_sequences, h).

    Args:
        weights: (T,) fp32, the weight of each row; None: 1 each.
    """
    n, lengths = packed.num_sequences, packed.cu_seqlens.diff().long()
    if weights is None:
        return (_sums(hidden.float(), lengths) / lengths.clamp(min=1)[:, None])[:n]
    summed, total = (_sums(values, lengths) for values in (hidden.float() * weights[:, None], weights[:, None]))
    return (summed / total.clamp(min=1e-9))[:n]


def _sums(values: Tensor, lengths: Tensor) -> Tensor:
    return torch.segment_reduce(values, "sum", lengths=lengths, axis=0, unsafe=True)


def first(hidden: Tensor, packed: Packed) -> Tensor:
    """Return the fp32 state of each sequence's first token, 0 if empty: hidden (T, h) -> (num_sequences, h)."""
    n = packed.num_sequences
    chosen = hidden[packed.cu_seqlens[:n].long().clamp(max=len(hidden) - 1)].float()
    return chosen * (packed.cu_seqlens.diff()[:n, None] > 0)


def last(hidden: Tensor, packed: Packed) -> Tensor:
    """Return the fp32 state of each sequence's last token, 0 if empty: hidden (T, h) -> (num_sequences, h)."""
    n = packed.num_sequences
    chosen = hidden[(packed.cu_seqlens[1 : n + 1].long() - 1).clamp(min=0)].float()
    return chosen * (packed.cu_seqlens.diff()[:n, None] > 0)
