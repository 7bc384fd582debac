"""Cross-batch memory (Wang et al. 2020, arXiv 1912.06798): vectors of earlier micro-batches as further negatives.

    this micro-batch's vectors -> NT-Xent against those of all ranks and of the memory -> into the memory, oldest out

It starts empty, and is the same on every rank: a rank's rows stand in it in the order in which one rank alone would
have them. No gradient goes into it. It is a buffer of the learner, so a checkpoint has it and a resumed run goes on
with it.
"""

import torch
from torch import Tensor, nn

from clearspan.train.distributed import gather
from clearspan.train.losses import in_fp32, nt_xent, unit


class Memory(nn.Module):
    """The last `size` vectors that were contrasted, a micro-batch's anchors before its positives; 0: none.

    Newest micro-batch first. A row of zeros is a place that holds none yet.
    """

    vectors: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(size, dim), persistent=size > 0)

    def nt_xent(self, anchors: Tensor, positives: Tensor, temperature: float) -> Tensor:
        """`train.losses.nt_xent` with what is remembered; in training these pairs are remembered after it."""
        loss = nt_xent(anchors, positives, temperature, self.vectors)
        if self.training and torch.is_grad_enabled() and len(self.vectors):
            self._add(anchors.detach(), positives.detach())
        return loss

    @torch.no_grad()
    @in_fp32
    def _add(self, anchors: Tensor, positives: Tensor) -> None:
        new = torch.cat([gather(unit(anchors)), gather(unit(positives))])
        # A new tensor: the loss's backward still wants the one before.
        self.vectors = torch.cat([new, self.vectors])[: len(self.vectors)]
