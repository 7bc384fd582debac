"""The forward pass of a transformers model on a packed batch: T tokens -> hidden states of h values each, (T, h).

    Packed -> the model's embeddings and layers, with attention within each sequence only -> (T, h)

`check_packing` compares the states of two sequences with and without packing. It raises an error for an architecture
that does not support packing (`common.encoder.attention`), which would otherwise give wrong states.
"""

import copy
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from clearspan.common.encoder.packing import Packed, pack_ids
from clearspan.common.model_folder import EncoderError

UNLIMITED = 1 << 31
"""The length of the longest sequence, in tokens, for an encoder whose positions are not limited."""
Model = TypeVar("Model", bound=nn.Module)


def with_shared_weights(model: Model) -> Model:
    """Return a copy of a model's modules with the parameters and buffers of the model itself."""
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())})


def states(base: Any, packed: Packed, positions: Tensor) -> Tensor:
    """Return the last layer's hidden states, of width h, of the T tokens in a packed batch, (T, h).

    Args:
        base: a transformers base model whose attention implementation is `PACKED_ATTENTION` (`packed_attention` in
            `common.encoder.attention`), with which a token attends only to tokens of its own sequence.
        packed: the batch.
        positions: the position id of each token in its sequence, (1, T), counted from the model's first position id,
            which is 2 for RoBERTa.
    """
    hidden: Tensor = output(base, packed, positions).last_hidden_state[0]
    return hidden


def output(base: Any, packed: Packed, positions: Tensor) -> Any:
    """Return the output object of a transformers base model for a packed batch of T tokens, with all its tensors.

    Args:
        base: a base model whose attention implementation is `PACKED_ATTENTION` (`packed_attention` in
            `common.encoder.attention`), with which a token attends only to tokens of its own sequence.
        packed: the batch.
        positions: the position id of each token in its sequence, (1, T), counted from the model's first position id,
            which is 2 for RoBERTa.
    """
    options = {"use_cache": False} if getattr(base.config, "use_cache", False) else {}  # no decoding, so no KV cache
    return base(input_ids=packed.ids[None], position_ids=positions, packed=packed, **options)


@torch.no_grad()
def check_packing(
    base: Any,
    forward: Callable[[Packed], Tensor],
    encode_alone: Callable[[Tensor], Tensor],
    max_tokens: int,
    way: str = "packed",
) -> None:
    """Check that two test sequences have the same hidden states in one packed batch as each has without packing.

    If `max_tokens` allows it, one of the sequences is longer than the model's local attention window.

    Args:
        base: the transformers base model, whose configuration and device the test sequences are made for.
        forward: function from a packed batch of T tokens to the model's states of width h, (T, h).
        encode_alone: function from the ids of one sequence of L tokens, (1, L), to the model's states, (1, L, h).
        max_tokens: the length of the longest sequence that the model accepts.
        way: how `forward` computes the states, `packed` or `padded`, for the error message.

    Raises:
        EncoderError: the states differ, or the model cannot process the packed batch.
    """
    window = getattr(base.config, "sliding_window", None) or 0
    lengths = [min(window + 24, max_tokens), min(9, max_tokens)]
    first = min(8, base.config.vocab_size // 2)  # special tokens, which may be treated in another way, have low ids
    ids = torch.arange(sum(lengths), device=base.device) * 7 % (base.config.vocab_size - first) + first
    sequences = [ids[: lengths[0]].tolist(), ids[lengths[0] :].tolist()]
    try:
        packed = forward(pack_ids(sequences, base.device))
        expected = torch.cat([encode_alone(x[None])[0] for x in torch.split(ids, lengths)])
        if torch.allclose(packed, expected, atol=1e-3 * float(packed.abs().max())):
            return
        problem = f"the states of a {way} sequence differ from those it has alone"
    except NotImplementedError as error:
        problem = str(error)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise EncoderError(f"model type {base.config.model_type!r} cannot run {way}: {problem}")
