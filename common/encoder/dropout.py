"""Fast dropout on a CPU: 16 random bits a value, drawn for four values at once.

torch draws a random number for each value, on one core; in a profile that was the largest part of a training step. The
rate is p to the nearest 1/65,536, and remaining values are scaled for exactly this rate. The bits come from torch's CPU
generator, so a seed gives the same dropout on any number of threads.
"""

import math

import torch
from torch import Tensor, nn

VALUES = 1 << 16


def keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """Return a random bool mask, False with probability p (0 < p < 1), and the factor that scales the kept values."""
    dropped = min(round(p * VALUES), VALUES - 1)
    count = math.prod(shape)
    drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (-(-count // 4),)).view(torch.int16)
    return (drawn[:count] >= dropped - VALUES // 2).view(shape), VALUES / (VALUES - dropped)


class Dropout(nn.Dropout):
    """torch's dropout, except that it uses `keep_mask` in training on a CPU."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or input.device.type != "cpu" or not 0 < self.p < 1:
            return super().forward(input)
        keep, scale = keep_mask(input.shape, self.p)
        return (input * keep) * scale


def replace_dropout(model: nn.Module) -> None:
    """Replace every dropout of a model with the `Dropout` of this module, with the same rate and mode."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p, child.inplace).train(child.training))
