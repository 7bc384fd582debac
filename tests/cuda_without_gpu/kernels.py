"""CUDA's kernels of attention, computed on the CPU by plain products and a softmax, and which of them torch would take.

    variable-length   sequences end to end, by torch's custom operator (no dropout) or by `_flash_attention_forward`
    SDPA              padded sequences: cuDNN, memory-efficient or plain, as torch chooses on an H100 or H200

A mask here is made from the lengths on the device, so that nothing is read. A row that sees no key gives 0, as in the
memory-efficient kernel; `Attention.blind` counts such rows, since cuDNN's gradient of them is NaN.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

CUDNN, EFFICIENT, FLASH, PLAIN = "cuDNN", "efficient", "flash", "math"
VARLEN, VARLEN_DROPOUT = "varlen", "varlen+dropout"


@dataclass(frozen=True)
class Attention:
    """One call of attention in a forward pass.

    Attributes:
        kernel: the kernel that a GPU would take.
        dtypes: the dtypes of q, k and v in the kernel.
        rows: the number of rows of queries, with padding.
        blind: the number of rows of queries, with padding, that see no key in at least one head.
        masked: whether SDPA got a mask.
    """

    kernel: str
    dtypes: tuple[str, str, str]
    rows: int
    blind: int = 0
    masked: bool = False


def short(dtype: torch.dtype) -> str:
    return {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}.get(
        name := str(dtype).removeprefix("torch."), name
    )


def _dtypes(*tensors: Tensor) -> tuple[str, str, str]:
    q, k, v = (short(tensor.dtype) for tensor in tensors)
    return q, k, v


def chosen(query: Tensor, key: Tensor, mask: Tensor | None, dropout: float) -> str:
    """Return the kernel that SDPA takes on an H100 or H200: `torch._fused_sdp_choice` of torch's build with CUDA.

    For as many heads in keys as in queries, equal lengths where attention is causal, and a mask without a gradient.
    """
    backends, head = torch.backends.cuda, query.shape[-1]
    half = query.dtype in (torch.bfloat16, torch.float16)
    by_cudnn = half and head % 8 == 0 and head <= 256 and key.shape[-2] > 1 and (dropout * 16).is_integer()
    if by_cudnn and backends.cudnn_sdp_enabled():  # type: ignore[no-untyped-call]
        return CUDNN
    if half and mask is None and backends.flash_sdp_enabled() and head <= 256:  # type: ignore[no-untyped-call]
        return FLASH
    aligned = head % (8 if half else 4) == 0
    return EFFICIENT if backends.mem_efficient_sdp_enabled() and aligned else PLAIN  # type: ignore[no-untyped-call]


def _weights(
    q: Tensor, k: Tensor, bias: Tensor | None, scale: float | None, dropout: float, seed: Tensor
) -> tuple[Tensor, Tensor | None, int]:
    """Return (softmax of the scores, what dropout keeps times its scale, the number of rows that see no key)."""
    scores = (q.float() @ k.float().mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias.float() if bias.dtype != torch.bool else scores.masked_fill(~bias, -torch.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    if isinstance(q, FakeTensor):  # torch.compile looks at shapes
        return weights, None, 0
    blind = int((scores.amax(-1) == -torch.inf).any(1).sum()) if scores.numel() else 0
    if not dropout:
        return weights, None, blind
    generator = torch.Generator().manual_seed(int(seed.flatten()[0]))
    keep = torch.rand(weights.shape, generator=generator) >= dropout
    return weights, keep.float() / (1 - dropout), blind


def _backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, scale: float | None, p: float, seed: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the gradients of q, k, v and of the scores."""
    weights, keep, _ = _weights(q, k, bias, scale, p, seed)
    dropped = weights if keep is None else weights * keep
    of_v = dropped.mT @ grad.float()
    of_weights = grad.float() @ v.float().mT
    of_weights = of_weights if keep is None else of_weights * keep
    of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdim=True))
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    of_q, of_k = (of_scores @ k.float()) * factor, (of_scores.mT @ q.float()) * factor
    return of_q.to(q.dtype), of_k.to(k.dtype), of_v.to(v.dtype), of_scores


def _drawn() -> Tensor:
    return torch.randint(0, 1 << 40, (2,)).to(torch.int64)


def _within(cu: Tensor, rows: int, left: int, right: int) -> Tensor:
    """Return the mask of sequences that lie end to end, (1, 1, rows, rows), true where a row sees another."""
    at = torch.arange(rows)
    sequence = torch.searchsorted(cu.long(), at, right=True)
    back = at[:, None] - at[None, :]
    mask = sequence[:, None] == sequence[None, :]
    mask = mask & (back <= left) if left >= 0 else mask
    mask = mask & (-back <= right) if right >= 0 else mask
    return mask[None, None]


def _heads_first(*tensors: Tensor) -> list[Tensor]:
    return [tensor.transpose(0, 1)[None] for tensor in tensors]


def _flash(
    calls: list[Attention],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu: Tensor,
    cu_k: Tensor,
    max_q: int,
    max_k: int,
    dropout: float,
    causal: bool,
    debug: bool = False,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
    **_: Any,
) -> tuple[Tensor, ...]:
    seed = _drawn()
    calls.append(Attention(VARLEN_DROPOUT if dropout else VARLEN, _dtypes(q, k, v), len(q)))
    _check_half(q, k, v)
    mask = _within(cu, len(q), *_reach(window_size_left, window_size_right, causal))
    weights, keep, _blind = _weights(*_heads_first(q, k), mask, scale, dropout, seed)
    out = (weights if keep is None else weights * keep) @ _heads_first(v)[0].float()
    lse = torch.zeros(q.shape[1], len(q))
    return out[0].transpose(0, 1).contiguous().to(q.dtype), lse, seed, torch.zeros(2, dtype=torch.int64), q.new_zeros(0)


def _reach(left: int | None, right: int | None, causal: bool) -> tuple[int, int]:
    left, right = -1 if left is None else left, -1 if right is None else right
    return left, 0 if causal else right


def _check_half(*tensors: Tensor) -> None:
    dtypes = {tensor.dtype for tensor in tensors}
    if len(dtypes) > 1 or not dtypes <= {torch.bfloat16, torch.float16}:
        raise RuntimeError("FlashAttention only support fp16 and bf16 data type, the same of q, k and v")


def _flash_backward(
    calls: list[Attention],
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cu: Tensor,
    cu_k: Tensor,
    max_q: int,
    max_k: int,
    dropout: float,
    causal: bool,
    rng_state: Tensor,
    unused: Tensor,
    *,
    scale: float | None = None,
    window_size_left: int | None = None,
    window_size_right: int | None = None,
) -> tuple[Tensor, ...]:
    mask = _within(cu, len(q), *_reach(window_size_left, window_size_right, causal))
    gradients = _backward(*_heads_first(grad, q, k, v), mask, scale, dropout, rng_state)[:3]
    return tuple(gradient[0].transpose(0, 1).contiguous() for gradient in gradients)


def _varlen(
    calls: list[Attention],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu: Tensor,
    cu_k: Tensor,
    max_q: int,
    max_k: int,
    causal: bool = False,
    scale: float | None = None,
    window: list[int] | None = None,
    *_: Any,
) -> tuple[Tensor, ...]:
    left, right = window or [-1, -1]
    options = {"scale": scale, "window_size_left": left, "window_size_right": right}
    out, lse, *_rest = _flash(calls, q, k, v, cu, cu_k, max_q, max_k, 0.0, causal, **options)  # type: ignore[arg-type]
    return out, lse, torch.zeros(2, dtype=torch.uint64)


def _varlen_backward(
    calls: list[Attention],
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    out: Tensor,
    lse: Tensor,
    cu: Tensor,
    cu_k: Tensor,
    max_q: int,
    max_k: int,
    causal: bool,
    rng_state: Tensor,
    scale: float | None = None,
    window: list[int] | None = None,
) -> tuple[Tensor, ...]:
    left, right = window or [-1, -1]
    options = {"scale": scale, "window_size_left": left, "window_size_right": right}
    return _flash_backward(
        calls,
        grad,
        q,
        k,
        v,
        out,
        lse,
        cu,
        cu_k,
        max_q,
        max_k,
        0.0,
        causal,
        rng_state,
        rng_state,
        **options,  # type: ignore[arg-type]
    )


def _sdpa(
    calls: list[Attention],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    *options: Any,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """SDPA where nothing is differentiated: it comes whole."""
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], dim=1) for x in (k, v))
    dropout = options[0] if options else dropout_p
    causal = options[1] if len(options) > 1 else is_causal
    return _sdpa_forward(calls, q, k, v, mask, False, dropout, causal, scale=scale)[0]


def _sdpa_forward(
    calls: list[Attention],
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    lse: bool,
    dropout: float = 0.0,
    causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor, ...]:
    if len({q.dtype, k.dtype, v.dtype}) > 1:
        raise RuntimeError(f"Expected query, key, and value to have the same dtype, but got {_dtypes(q, k, v)}")
    seed = _drawn()
    if causal:
        mask = torch.ones(q.shape[-2], k.shape[-2]).tril().bool()
    weights, keep, blind = _weights(q, k, mask, scale, dropout, seed)
    out = ((weights if keep is None else weights * keep) @ v.float()).to(q.dtype)
    rows, kernel = q.shape[0] * q.shape[2], chosen(q, k, mask, dropout)
    calls.append(Attention(kernel, _dtypes(q, k, v), rows, blind, mask is not None))
    return out, torch.zeros(q.shape[:3]), seed[:1], seed[1:]


def _sdpa_backward(
    calls: list[Attention],
    grad: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    seed: Tensor,
    offset: Tensor,
    dropout: float,
    needed: list[bool],
    causal: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Tensor | None, ...]:
    assert not causal, "no path of Clearspan in training"
    *gradients, of_scores = _backward(grad, q, k, v, mask, scale, dropout, seed)
    of_mask = None
    if needed[3] and mask is not None:
        of_mask = of_scores.sum_to_size(mask.shape).to(mask.dtype)
    return (*gradients, of_mask)


OF: dict[str, Callable[..., Any]] = {
    "aten::_flash_attention_forward": _flash,
    "aten::_flash_attention_backward": _flash_backward,
    "torch_attn::_varlen_attn": _varlen,
    "torch_attn::_varlen_attn_backward": _varlen_backward,
    "aten::scaled_dot_product_attention": _sdpa,
    "aten::_scaled_dot_product_efficient_attention": _sdpa_forward,
    "aten::_scaled_dot_product_efficient_attention_backward": _sdpa_backward,
}
"""Operator -> the function that computes it on the CPU; the first argument takes the notes of calls."""


def _differentiable_sdpa(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """SDPA on CUDA, whichever kernel: all have the interface of one operator here, which autograd knows."""
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // x.shape[1], dim=1) for x in (key, value))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    call = torch.ops.aten._scaled_dot_product_efficient_attention
    return call(query, key, value, attn_mask, True, dropout_p, is_causal, scale=scale)[0]


LIBRARY = torch.library.Library("aten", "IMPL")


def register() -> None:
    """Let torch's SDPA on CUDA call the kernel above; torch would ask the GPU which kernel to take."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        LIBRARY.impl("scaled_dot_product_attention", _differentiable_sdpa, "AutogradCUDA")
