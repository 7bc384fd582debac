"""The forward pass of a transformers model on a packed batch: T tokens -> hidden states (T, h).

    Packed -> the model's embeddings and layers, with attention within each sequence only -> (T, h)

`check_packing` compares the states of two sequences with and without packing. So an architecture that does not support
packing (`common.encoder.attention`) is an error, and does not silently give wrong states.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from clearspan.common.encoder.packing import Packed, pack_ids
from clearspan.common.model_folder import EncoderError

UNLIMITED = 1 << 31
"""The length of the longest sequence, in tokens, for an encoder whose positions are not limited."""


def states(base: Any, packed: Packed, positions: Tensor) -> Tensor:
    """Return the hidden states of the T tokens in a packed batch, (T, h); a token attends only to its own sequence.

    Args:
        base: a transformers base model whose attention implementation is `PACKED_ATTENTION`.
        positions: the position id of each token, as the model counts positions, (1, T).
    """
    hidden: Tensor = output(base, packed, positions).last_hidden_state[0]
    return hidden


def output(base: Any, packed: Packed, positions: Tensor) -> Any:
    """Return the whole output of a base model for a packed batch of T tokens, such as the states of all layers.

    Args:
        base: a transformers base model whose attention implementation is `PACKED_ATTENTION`.
        positions: the position id of each token, as the model counts positions, (1, T).
    """
    options = {"use_cache": False} if getattr(base.config, "use_cache", False) else {}  # no decoding, so no KV cache
    return base(input_ids=packed.ids[None], position_ids=positions, packed=packed, **options)


@torch.no_grad()
def check_packing(
    base: Any, forward: Callable[[Packed], Tensor], encode_alone: Callable[[Tensor], Tensor], max_tokens: int
) -> None:
    """Raise EncoderError if packing two test sequences changes their states.

    If `max_tokens` allows it, one of the sequences is longer than the model's local attention window.

    Args:
        base: a transformers base model.
        forward: function from a packed batch of T tokens to the model's states, (T, h).
        encode_alone: function from the ids of one sequence, (1, L), to the model's states, (1, L, h).
        max_tokens: the length of the longest sequence that the model accepts.
    """
    window = getattr(base.config, "sliding_window", None) or 0
    lengths = [min(window + 24, max_tokens), 9]
    ids = torch.arange(sum(lengths), device=base.device) * 7 % (base.config.vocab_size - 8) + 8
    sequences = [ids[: lengths[0]].tolist(), ids[lengths[0] :].tolist()]
    try:
        packed = forward(pack_ids(sequences, base.device))
        expected = torch.cat([encode_alone(x[None])[0] for x in torch.split(ids, lengths)])
        if torch.allclose(packed, expected, atol=1e-3 * float(packed.abs().max())):
            return
        problem = "the states of a packed sequence differ from those it has alone"
    except NotImplementedError as error:
        problem = str(error)
    except (AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError) as error:
        problem = f"{type(error).__name__}: {error}"
    raise EncoderError(f"model type {base.config.model_type!r} cannot run packed: {problem}")
