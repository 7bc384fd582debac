"""Dropout on a CPU at a quarter of its price: what is kept is drawn by 16 bits a value, four at once.

torch draws a number for each value there, 7 ns of one core: a tenth of a training step, and half of an attention with
dropout, for which torch has no fused kernel. The rate is p to the nearest 1/65,536, and what is kept is scaled by that
very rate. Draws come from torch's CPU generator, the same on any number of threads.
"""

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

BITS = 16
CHUNK = 1 << 18
"""Attention scores at a time: they stay in a core's cache from one operation to the next."""


class Dropout(nn.Dropout):
    """torch's, and on a CPU in training this module's."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or input.device.type != "cpu" or not 0 < self.p < 1:
            return super().forward(input)
        found = _Dropout.apply(input, self.p)
        assert isinstance(found, Tensor)
        return found


def replace_dropout(model: nn.Module) -> None:
    """Puts this module's in place of every dropout of a model; p and mode stay."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Dropout:
                own = Dropout(child.p, child.inplace).train(child.training)
                setattr(parent, name, own)


def attention(
    query: Tensor, key: Tensor, value: Tensor, window: Tensor | None, p: float, scaling: float | None
) -> Tensor:
    """Attention with dropout 0 < p < 1 of its weights, fp32: query, key, value (N, heads, L, d) -> the same shape.

    Args:
        window: (L, L) bool, False where a token does not attend to another.
    """
    scaling = 1 / math.sqrt(query.shape[-1]) if scaling is None else scaling
    flat = (x.flatten(0, 1).contiguous() for x in (query, key, value))
    found = _Attention.apply(*flat, window, p, scaling)
    assert isinstance(found, Tensor)
    return found.view(query.shape)


def kept(shape: torch.Size | tuple[int, ...], p: float) -> Tensor:
    """Which values stay: bool, each False with probability `p`, to the nearest 1/65,536."""
    count = math.prod(shape)
    drawn = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(1 << 63), None).view(torch.int16)
    return (drawn[:count] >= _dropping(p) - (1 << BITS - 1)).view(shape)


def scale(p: float) -> float:
    """By what a value that stays is multiplied."""
    return 1 / (1 - _dropping(p) / (1 << BITS))


def _dropping(p: float) -> int:
    """How many of the values that 16 bits can have drop what they are drawn for."""
    return min(round(p * (1 << BITS)), (1 << BITS) - 1)


class _Dropout(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor, p: float) -> Tensor:
        keep = kept(values.shape, p)
        ctx.save_for_backward(keep)
        ctx.scale = scale(p)
        return (values * keep).mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (keep,) = ctx.saved_tensors
        return (gradient * keep).mul_(ctx.scale), None


class _Attention(torch.autograd.Function):
    """Of (B, L, d): softmax(scaling q k^T), dropped, times v, some rows of B at a time."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, window: Tensor | None, p: float, scaling: float) -> Tensor:
        rows, saved, out = max(1, CHUNK // max(1, q.shape[1] ** 2)), [], torch.empty_like(v)
        for q_part, k_part, v_part, out_part in zip(*(x.split(rows) for x in (q, k, v, out)), strict=True):
            scores = _scaled_bmm(q_part, k_part.transpose(1, 2), scaling)
            if window is not None:
                scores.masked_fill_(~window, -math.inf)
            weights = scores.softmax(-1)
            keep = kept(weights.shape, p)
            torch.bmm(weights * keep, v_part, out=out_part)
            saved += [weights, keep]
        ctx.save_for_backward(q, k, v, *saved)
        ctx.rows, ctx.scale, ctx.scaling = rows, scale(p), scaling
        return out.mul_(ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, None]:
        q, k, v, *saved = ctx.saved_tensors
        gradient = gradient * ctx.scale
        found = [torch.empty_like(x) for x in (q, k, v)]
        parts = zip(*(x.split(ctx.rows) for x in (q, k, v, gradient, *found)), saved[::2], saved[1::2], strict=True)
        for q_part, k_part, v_part, own, of_q, of_k, of_v, weights, keep in parts:
            torch.bmm((weights * keep).transpose(1, 2), own, out=of_v)
            of_weights = torch.bmm(own, v_part.transpose(1, 2)).mul_(keep)
            of_scores = torch._softmax_backward_data(of_weights, weights, -1, weights.dtype)
            torch.bmm(of_scores, k_part, out=of_q)
            torch.bmm(of_scores.transpose(1, 2), q_part, out=of_k)
        return found[0].mul_(ctx.scaling), found[1].mul_(ctx.scaling), found[2], None, None, None


def _scaled_bmm(left: Tensor, right: Tensor, factor: float) -> Tensor:
    """factor x left @ right, in one pass."""
    return torch.baddbmm(left.new_empty(()), left, right, beta=0, alpha=factor)
