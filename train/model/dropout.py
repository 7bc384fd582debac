"""Dropout on a CPU: what is kept is drawn by 16 bits a value, four values at once.

torch draws a whole number for each value there, on one core; that was the largest part of a training step in its
profile. The rate is p to the nearest 1/65,536, and what is kept is scaled by that very rate. The numbers come from
torch's CPU generator, so that its seed repeats them, on any number of threads.
"""

import math

import torch
from torch import Tensor, nn

VALUES = 1 << 16


def kept(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """(which values stay, bool of a shape, each False with probability 0 < p < 1; what those are multiplied by)."""
    dropped, count = min(round(p * VALUES), VALUES - 1), math.prod(shape)
    drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (-(-count // 4),)).view(torch.int16)
    return (drawn[:count] >= dropped - VALUES // 2).view(shape), VALUES / (VALUES - dropped)


class Dropout(nn.Dropout):
    """torch's; on a CPU, in training, with these draws."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or input.device.type != "cpu" or not 0 < self.p < 1:
            return super().forward(input)
        keep, scale = kept(input.shape, self.p)
        return (input * keep) * scale


def replace_dropout(model: nn.Module) -> None:
    """Puts this module's in the place of every dropout of a model, with its rate and mode."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p, child.inplace).train(child.training))


def attention(q: Tensor, k: Tensor, v: Tensor, window: Tensor | None, p: float, scaling: float | None) -> Tensor:
    """Attention with dropout of its weights, for which torch has no fused kernel on a CPU: (N, heads, L, d) each.

    Args:
        window: (L, L) bool, False where a token does not attend to another. p: 0 < p < 1.
    """
    shape, scaling = q.shape, q.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (x.flatten(0, 1) for x in (q, k, v))
    scores = torch.baddbmm(q.new_empty(()), q, k.mT, beta=0, alpha=scaling)
    weights = (scores if window is None else scores.masked_fill(~window, -math.inf)).softmax(-1)
    keep, scale = kept(weights.shape, p)
    return (torch.bmm(weights * keep, v) * scale).view(shape)
