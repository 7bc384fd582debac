"""Attention within each sequence of a packed batch, for any model that uses transformers' attention interface.

    CUDA, half precision    torch's variable-length flash attention
    CPU                     one call of SDPA for consecutive sequences of equal length; with dropout or in bf16, matrix
                            products and a softmax
    otherwise               one call of SDPA on padded sequences, without a host sync

The last line applies on CUDA if the model runs in fp32, has a position bias, or has a head size that flash attention
does not support. It applies on a CPU if the host does not know the lengths of the sequences.

torch's public function for variable-length attention has no dropout. With dropout, the private function that torch's
nested tensors call is used; if this version of torch lacks it, sequences are padded. `packed_attention` is registered
in transformers under a private name, which never reaches an exported configuration.
"""

import itertools
from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from clearspan.common.encoder.autocast import in_fp32
from clearspan.common.encoder.dropout import keep_mask
from clearspan.common.encoder.packing import Packed

PACKED_ATTENTION = "clearspan_packed"
PRIVATE = "_flash_attention_forward"
WITH_MASK = [SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
"""SDPA's kernels on CUDA with a mask. cuDNN is left out: it plans anew for each number and length of sequences, some 50
ms each (torch issue 190388), and its gradients with a mask can be NaN (torch issue 196678). Flash takes no mask.
"""
UNFUSED = 1024
"""Length, in tokens, of the longest sequence whose attention weights are stored in bf16, as 2 MiB for each head."""


def _takes_dropout() -> bool:
    """Return whether torch's private function for variable-length attention can be used with dropout.

    It must take the arguments that `_varlen` passes. torch must also declare it as random, so that activation
    checkpointing repeats the same dropout.
    """
    expected = ["query", "key", "value", "cum_seq_q", "cum_seq_k", "max_q", "max_k", "dropout_p"]
    call = getattr(torch.ops.aten, PRIVATE, None)
    if call is None or torch.Tag.nondeterministic_seeded not in call.default.tags:
        return False
    return [argument.name for argument in call.default._schema.arguments[: len(expected)]] == expected


VARLEN_DROPOUT = _takes_dropout()


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    position_bias: Tensor | None = None,
    *,
    packed: Packed,
    **_: Any,
) -> tuple[Tensor, None]:
    """Compute attention within the sequences of a packed batch, as a function for transformers' attention interface.

    Tokens of a decoder (`module.is_causal`) do not attend to later tokens.

    Args:
        module: the attention layer.
        query: (1, heads, T, d), for T tokens in all sequences and heads of size d.
        key, value: (1, key heads, T, d). If there are fewer key heads than heads, consecutive heads share a key head.
        attention_mask: not used, since `packed` holds the lengths of the sequences.
        dropout: the dropout rate of attention weights.
        scaling: the number that the dot products are multiplied by; None for 1 / sqrt(d).
        sliding_window: tokens at this distance or more do not attend to each other (ModernBERT's local layers); None if
            there is no window.
        softcap: a cap on the scores; must be None, because caps are not supported.
        s_aux: attention sinks; must be None, because sinks are not supported.
        position_bias: the bias of T5 and MPNet that is added to the scores, (1, heads, longest, longest), where
            `longest` is the length of the longest sequence (`common.encoder.relative`); None if there is no bias.
        packed: the batch.

    Returns:
        The output, (1, T, heads, d), and None in place of the attention weights.

    Raises:
        NotImplementedError: the layer caps its scores, has attention sinks, or adds a bias of another shape.
    """
    unsupported = {"a cap on": softcap is not None, "sinks in": s_aux is not None}
    unsupported["a bias of positions in"] = position_bias is not None and position_bias.shape[-1] != packed.longest
    for name in (name for name, is_given in unsupported.items() if is_given):
        raise NotImplementedError(
            f"the model's attention has {name} the scores, which packed attention does not support"
        )
    if query.is_cuda:
        query, key, value = _in_one_dtype(query, key, value)
    causal = bool(getattr(module, "is_causal", False))
    group = query.shape[1] // key.shape[1]
    if group > 1:
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    if query.is_cuda and varlen_supports(query.dtype, query.shape[-1], dropout) and position_bias is None:
        q, k, v = (x[0].transpose(0, 1) for x in (query, key, value))
        reach = sliding_window - 1 if sliding_window else -1
        window = (reach, 0 if causal else reach)
        return _varlen(q, k, v, packed.cu_seqlens, packed.longest, dropout, scaling, window)[None], None
    scores = ScoreOptions(scaling, sliding_window, causal, position_bias)
    if query.device.type != "cpu" or packed.lengths is None:
        return padded_attention(query, key, value, packed, dropout, scores), None
    if module.training or query.requires_grad:  # on a CPU, bf16's backward is slower than fp32's
        q, k, v = query.float(), key.float(), value.float()
        return attention_by_length(q, k, v, packed, dropout, scores).to(query.dtype), None
    return attention_by_length(query, key, value, packed, dropout, scores), None


def _in_one_dtype(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
    """Return the three tensors in the dtype of autocast, or in the dtype of the values if there is no autocast."""
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else value.dtype
    return tuple(x.to(dtype) for x in (query, key, value))


class ScoreOptions(NamedTuple):
    """Scale, mask and bias of attention scores before the softmax.

    Attributes:
        scaling: the number that the dot products are multiplied by; None for 1 / sqrt(d), where d is the head size.
        sliding_window: tokens at this distance or more do not attend to each other; None if there is no window.
        causal: whether a token attends only to itself and to earlier tokens.
        bias: values to add to the scores, (1, heads, longest, longest), where `longest` is the length of the longest
            sequence; None if there are none.
    """

    scaling: float | None = None
    sliding_window: int | None = None
    causal: bool = False
    bias: Tensor | None = None

    def mask(self, length: int, query: Tensor) -> Tensor | None:
        """Return the argument `attn_mask` of SDPA for sequences of `length` tokens; None if no mask is needed.

        If there is no bias, the mask is (length, length) bool, true where the token of the row attends to the token of
        the column. If there is a bias, the mask is the bias, (1, heads, length, length) in the query's dtype, with -inf
        where a token does not attend to another token.

        Args:
            length: the number of tokens of each sequence.
            query: a tensor with the dtype and the device that the mask needs.
        """
        bias = None if self.bias is None else self.bias[:, :, :length, :length].to(query.dtype)
        if not self.causal and (self.sliding_window is None or length <= self.sliding_window):
            return bias
        at = torch.arange(length, device=query.device)
        back = at[:, None] - at[None, :]
        near = back.abs() < (self.sliding_window or length)
        near = near & (back >= 0) if self.causal else near
        return near if bias is None else bias.masked_fill(~near, -torch.inf)


@in_fp32
def attention_by_length(
    query: Tensor, key: Tensor, value: Tensor, packed: Packed, dropout: float, scores: ScoreOptions
) -> Tensor:
    """Compute attention on a CPU, with one call for consecutive sequences of equal length; return (1, T, heads, d).

    There are few calls if `common.encoder.grouping` has sorted the sequences of the batch by length.

    Args:
        query, key, value: (1, heads, T, d), for T tokens in all sequences and heads of size d.
        packed: the batch; the host must know its lengths.
        dropout: the dropout rate of attention weights.
        scores: the scale, mask and bias of attention scores.
    """
    assert packed.lengths is not None
    runs = [(length, sum(1 for _ in run)) for length, run in itertools.groupby(packed.lengths) if length]
    rows = [length * count for length, count in runs]
    parts = zip(*(torch.split(x[0].transpose(0, 1), rows) for x in (query, key, value)), strict=True)
    outs = []
    for (length, count), part in zip(runs, parts, strict=True):
        q, k, v = (x.view(count, length, *x.shape[1:]).transpose(1, 2) for x in part)
        mask = scores.mask(length, q)
        if 0 < dropout < 1 or (q.dtype == torch.bfloat16 and length <= UNFUSED):
            out = unfused_attention(q, k, v, mask, dropout, scores.scaling)
        else:
            out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, scale=scores.scaling)
        outs.append(out.transpose(1, 2).flatten(0, 1))
    return (torch.cat(outs) if len(outs) > 1 else outs[0])[None]


def unfused_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float, scaling: float | None
) -> Tensor:
    """Compute attention with matrix products and a softmax; return (N, heads, L, d).

    On a CPU, torch has no fused kernel with dropout of the attention weights, and its fused kernel for bf16 takes twice
    as long as oneDNN's products.

    Args:
        q, k, v: (N, heads, L, d), for N sequences of L tokens and heads of size d.
        mask: true where a token attends to another token, (L, L) bool; or numbers to add to the attention scores,
            (1, heads, L, L); None if each token attends to all tokens of its sequence.
        dropout: the dropout rate of attention weights.
        scaling: the number that the dot products are multiplied by; None for 1 / sqrt(d).
    """
    shape = q.shape
    scaling = q.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    products = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scaling)
    if mask is not None and mask.dtype == torch.bool:
        products = products.masked_fill(~mask, -torch.inf)
    elif mask is not None:
        products = (products.view(*shape[:-1], -1) + mask).flatten(0, 1)
    weights = products.softmax(-1)
    if not 0 < dropout < 1:
        return torch.bmm(weights, v).view(shape)
    keep, scale = keep_mask(weights.shape, dropout)
    return (torch.bmm(weights * keep, v) * scale).view(shape)


def varlen_supports(dtype: torch.dtype, head_dim: int, dropout: float) -> bool:
    """Return whether torch's variable-length kernel on CUDA supports this dtype, head size and dropout."""
    fits = dtype in (torch.float16, torch.bfloat16) and head_dim % 8 == 0 and head_dim <= 256
    return fits and (dropout == 0.0 or VARLEN_DROPOUT)


def padded_attention(
    query: Tensor, key: Tensor, value: Tensor, packed: Packed, dropout: float, scores: ScoreOptions
) -> Tensor:
    """Compute attention with one call of SDPA on padded sequences, without a host sync; return (1, T, heads, d).

    This function works for every batch, and is used if the faster functions of this module do not support a batch.

    Args:
        query, key, value: (1, heads, T, d), for T tokens in all sequences and heads of size d.
        packed: the batch.
        dropout: the dropout rate of attention weights.
        scores: the scale, mask and bias of attention scores.
    """
    starts, ends = packed.cu_seqlens[:-1, None].long(), packed.cu_seqlens[1:, None].long()
    at = torch.arange(packed.longest, device=query.device)
    index = (starts + at).clamp(max=query.shape[2] - 1)
    # An empty sequence attends to all, and padding to itself: a softmax needs a term.
    mask = ((starts + at < ends) | (ends <= starts))[:, None, None, :]
    added = scores.mask(packed.longest, query)
    if added is not None:
        itself = at[:, None] == at
        is_bool = added.dtype == torch.bool
        mask = (mask & added) | itself if is_bool else added.masked_fill(~(mask | itself), -torch.inf)
    q, k, v = (x[0].transpose(0, 1)[index].transpose(1, 2) for x in (query, key, value))
    with sdpa_kernel(WITH_MASK) if query.is_cuda else nullcontext():
        out = F.scaled_dot_product_attention(q, k, v, mask, dropout_p=dropout, scale=scores.scaling)
    return out.transpose(1, 2)[packed.sequence, packed.positions][None]


def _varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu: Tensor,
    longest: int,
    dropout: float,
    scale: float | None,
    window: tuple[int, int],
) -> Tensor:
    """Compute variable-length flash attention on CUDA; return (T, heads, d).

    Args:
        q, k, v: (T, heads, d), for T tokens in all sequences and heads of size d.
        cu: the cumulative lengths of the N sequences, (N + 1,) int32.
        longest: the length of the longest sequence.
        dropout: the dropout rate of attention weights.
        scale: the number that the dot products are multiplied by; None for 1 / sqrt(d).
        window: the number of tokens to the left, and the number to the right, that a token attends to; -1 for all
            tokens on that side.
    """
    left, right = window
    if dropout == 0.0:
        size: dict[str, Any] = {"window_size": window} if max(window) >= 0 else {}
        out = varlen_attn(q, k, v, cu, cu, longest, longest, scale=scale, **size)
        assert isinstance(out, Tensor)
        return out
    causal = right == 0 and left != 0
    sides = {"window_size_left": left, "window_size_right": right} if left >= 0 else {}
    call = getattr(torch.ops.aten, PRIVATE)
    attended: Tensor = call(q, k, v, cu, cu, longest, longest, dropout, causal, False, scale=scale, **sides)[0]
    return attended


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
