"""Relative position biases of packed batches, for MPNet, T5 and its relatives.

The bias of two tokens depends only on the distance between them. So one matrix for the longest sequence,
(1, heads, longest, longest), serves every sequence of a batch. The models themselves would compute a bias for every
pair of tokens in the packed batch, even if the two tokens are in different sequences.

T5 passes the bias to the configured attention function. MPNet computes attention itself, so its `forward` is replaced
by a function that calls packed attention. `restore` undoes the changes to a model.
"""

import threading
import types
from typing import Any

import torch
from torch import Tensor, nn
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder, MPNetSelfAttention

from clearspan.common.encoder.attention import packed_attention
from clearspan.common.encoder.packing import Packed

REPLACED = ("forward", "compute_position_bias", "compute_bias")
"""The methods that `adapt` replaces in some modules."""


class CurrentBatch(threading.local):
    """Holds the batch of a thread's current forward pass, for modules to which the model does not pass the batch.

    Attributes:
        packed: the batch; each thread has its own.
    """

    packed: Packed


def adapt(base: nn.Module) -> CurrentBatch:
    """Change a base model, in place, so that it computes its relative position biases for packed batches.

    A model that has no such biases, i.e. is neither MPNet nor T5 or a relative of it, is left unchanged.

    Returns:
        The object whose attribute `packed` must be set to the batch before each forward pass.
    """
    current = CurrentBatch()
    for module in base.modules():
        if isinstance(module, MPNetEncoder):
            _compute_for_longest(module, "compute_position_bias", _of_mpnet, current)
        elif isinstance(module, MPNetSelfAttention):
            module.forward = types.MethodType(_attend, module)
            module.current = current
        elif getattr(module, "has_relative_attention_bias", False) and hasattr(module, "compute_bias"):
            _compute_for_longest(module, "compute_bias", _of_t5, current)
            _keep_batch(module, current)
    return current


def restore(base: nn.Module) -> None:
    """Undo the changes that `adapt` made to a base model."""
    for module in base.modules():
        for name in REPLACED:
            vars(module).pop(name, None)


def is_biased(base: nn.Module) -> bool:
    """Return whether `adapt` has changed a base model, i.e. whether it has relative position biases."""
    return any(name in vars(module) for module in base.modules() for name in ("compute_position_bias", "compute_bias"))


def _compute_for_longest(module: Any, name: str, compute: Any, current: CurrentBatch) -> None:
    original = getattr(module, name)
    setattr(module, name, lambda *_, **__: compute(module, original, current.packed.longest))


def _keep_batch(module: Any, current: CurrentBatch) -> None:
    """Let a layer note the batch that it is called with.

    Activation checkpointing calls the layer again in the backward pass, which on CUDA has a thread of its own.
    """
    original = module.forward

    def forward(*inputs: Any, **options: Any) -> Any:
        if "packed" in options:
            current.packed = options["packed"]
        return original(*inputs, **options)

    module.forward = forward


def _of_t5(module: Any, original: Any, longest: int) -> Tensor:
    bias: Tensor = original(longest, longest, device=module.relative_attention_bias.weight.device)
    return bias


def _of_mpnet(module: Any, original: Any, longest: int) -> Tensor:
    weight = module.relative_attention_bias.weight
    bias: Tensor = original(torch.empty((1, longest, 0), device=weight.device))
    return bias


def _attend(self: Any, hidden_states: Tensor, attention_mask: Any = None, position_bias: Any = None, **_: Any) -> Any:
    """Compute attention within each sequence of a packed batch; this function replaces `MPNetSelfAttention.forward`.

    Args:
        self: the attention layer; its attribute `current.packed` is the batch.
        hidden_states: the hidden states, of width h, of the T tokens of the batch, (1, T, h).
        attention_mask: not used, since the batch holds the lengths of the sequences.
        position_bias: the bias to add to the scores, (1, heads, longest, longest), where `longest` is the length of the
            longest sequence; None if there is no bias.

    Returns:
        A tuple with one item, the output, (1, T, h).
    """
    heads = (*hidden_states.shape[:-1], self.num_attention_heads, self.attention_head_size)
    query, key, value = (project(hidden_states).view(heads).transpose(1, 2) for project in (self.q, self.k, self.v))
    dropout = self.dropout.p if self.training else 0.0
    out, _weights = packed_attention(
        self, query, key, value, None, dropout, position_bias=position_bias, packed=self.current.packed
    )
    return (self.o(out.reshape(*hidden_states.shape[:-1], -1)),)
