"""Fast dropout on a CPU: a random number of 64 bits is drawn for four values at once.

torch draws a random number for each value, on one core; in a profile, this took the largest part of a training step.
With 16 bits for each value, the rate p is rounded to a multiple of 1/65,536, and the values that are kept are scaled
for the rounded rate. The bits come from torch's CPU generator, so a seed gives the same dropout on any number of
threads.
"""

import math

import torch
from torch import Tensor, nn

VALUES = 1 << 16


def keep_mask(shape: torch.Size, p: float) -> tuple[Tensor, float]:
    """Return a random bool mask, False with probability p (0 < p < 1), and the factor by which to scale kept values."""
    dropped = min(round(p * VALUES), VALUES - 1)
    count = math.prod(shape)
    drawn = torch.randint(-(1 << 63), (1 << 63) - 1, (-(-count // 4),)).view(torch.int16)
    return (drawn[:count] >= dropped - VALUES // 2).view(shape), VALUES / (VALUES - dropped)


class Dropout(nn.Dropout):
    """Dropout layer that draws its mask with `keep_mask` in training on a CPU, and is torch's dropout otherwise."""

    def forward(self, input: Tensor) -> Tensor:
        if not self.training or input.device.type != "cpu" or not 0 < self.p < 1:
            return super().forward(input)
        keep, scale = keep_mask(input.shape, self.p)
        return (input * keep) * scale


def replace_dropout(model: nn.Module) -> None:
    """Replace every dropout layer of a model with the `Dropout` of this module, with the same rate and mode."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Dropout:
                setattr(parent, name, Dropout(child.p, child.inplace).train(child.training))
