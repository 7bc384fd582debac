"""Attention within each sequence of a packed batch, for any model that uses transformers' attention interface.

    CUDA, half precision    torch's variable-length flash attention. Its public call has no dropout: with dropout, the
                            private call that torch's nested tensors make, or the last row if this torch lacks it
    CPU, lengths on host    one SDPA per run of equal lengths; with dropout, or in bf16, matrix products and a softmax
    otherwise               one padded SDPA without host sync: CUDA in fp32, odd heads, a static budget on a CPU

It is registered under a private name, which never reaches an exported configuration.
"""

import itertools
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from clearspan.common.encoder.autocast import in_fp32
from clearspan.common.encoder.dropout import keep_mask
from clearspan.common.encoder.packing import Packed

PACKED_ATTENTION = "clearspan_packed"
PRIVATE = "_flash_attention_forward"
UNFUSED = 1024
"""Longest sequence whose attention weights are stored in bf16: 2 MiB a head."""


def _takes_dropout() -> bool:
    """Return whether torch's private call takes dropout as the argument that is passed here, and is marked as random,
    so that activation checkpointing repeats the same dropout.
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
    """Compute attention with transformers' signature: query, key, value (1, heads, T, d) -> ((1, T, heads, d), None).

    With a sliding window w (ModernBERT's local layers) tokens more than w - 1 apart do not attend to each other. A
    decoder's tokens do not attend to later tokens; several query heads may share one head of keys and values. The
    bias of T5 and MPNet, (1, heads, longest, longest), is added to the scores (`common.encoder.relative`).

    Raises:
        NotImplementedError: the layers add a cap, sinks or another bias to the scores, which is not supported here.
    """
    unsupported = {"a cap on": softcap is not None, "sinks in": s_aux is not None}
    unsupported["a bias of positions in"] = position_bias is not None and position_bias.shape[-1] != packed.longest
    for name in (name for name, is_given in unsupported.items() if is_given):
        raise NotImplementedError(f"its attention has {name} the scores, which packed attention does not support")
    causal = bool(getattr(module, "is_causal", False))
    group = query.shape[1] // key.shape[1]
    if group > 1:
        key, value = (x.repeat_interleave(group, dim=1) for x in (key, value))
    if query.is_cuda and varlen_takes(query.dtype, query.shape[-1], dropout) and position_bias is None:
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


class ScoreOptions(NamedTuple):
    """Scale, mask and bias of attention scores before the softmax.

    Attributes:
        scaling: factor of the dot products; None: 1 / sqrt(d).
        sliding_window: tokens this far apart, or farther, do not attend to each other; None: all tokens attend to all.
        causal: whether tokens do not attend to later tokens.
        bias: values to add to the scores, (1, heads, longest, longest).
    """

    scaling: float | None = None
    sliding_window: int | None = None
    causal: bool = False
    bias: Tensor | None = None

    def mask(self, length: int, query: Tensor) -> Tensor | None:
        """Return the mask of a sequence of L = `length` tokens, as SDPA takes it.

        It is a bias to add to the scores, (1, heads, L, L) in the query's dtype, or bool (L, L), true where a token
        attends to another; None if every token attends to all, without a bias.
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
    """Compute attention on a CPU, one call per run of sequences of equal length (`common.encoder.grouping` sorts)."""
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
    """Compute attention with matrix products and a softmax.

    On a CPU, torch has no fused kernel with dropout of the attention weights, and its fused kernel for bf16 takes twice
    as long as oneDNN's products.

    Args:
        q, k, v: (N, heads, L, d).
        mask: a mask that `ScoreOptions.mask` returned.
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


def varlen_takes(dtype: torch.dtype, head_dim: int, dropout: float) -> bool:
    """Return whether torch's variable-length kernel on CUDA supports this dtype, head size and dropout."""
    fits = dtype in (torch.float16, torch.bfloat16) and head_dim % 8 == 0 and head_dim <= 256
    return fits and (dropout == 0.0 or VARLEN_DROPOUT)


def padded_attention(
    query: Tensor, key: Tensor, value: Tensor, packed: Packed, dropout: float, scores: ScoreOptions
) -> Tensor:
    """Compute attention with one padded SDPA, for cases that the other kernels do not support; no host sync."""
    starts, ends = packed.cu_seqlens[:-1, None].long(), packed.cu_seqlens[1:, None].long()
    at = torch.arange(packed.longest, device=query.device)
    index = (starts + at).clamp(max=query.shape[2] - 1)
    # An empty sequence attends to all: a softmax needs a term.
    mask = ((starts + at < ends) | (ends <= starts))[:, None, None, :]
    added = scores.mask(packed.longest, query)
    if added is not None:
        mask = mask & added if added.dtype == torch.bool else added.masked_fill(~mask, -torch.inf)
    q, k, v = (x[0].transpose(0, 1)[index].transpose(1, 2) for x in (query, key, value))
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
    """Compute variable-length flash attention, (T, heads, d).

    Args:
        window: number of tokens to the left and to the right that a token attends to; -1: unlimited.
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
