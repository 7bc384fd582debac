"""Cross-batch memory (Wang et al. 2020, arXiv 1912.06798): vectors of earlier micro-batches as additional negatives.

    a micro-batch's vectors -> NT-Xent with the vectors of all ranks and of the memory -> added to the memory

The oldest vectors leave the memory. It starts empty, and every rank has the same vectors in the same order, as a single
rank would. No gradient flows into it. It is a buffer of the learner, so checkpoints hold it.
"""

import torch
from torch import Tensor, nn

from clearspan.common.encoder.autocast import in_fp32
from clearspan.train.collectives import gather
from clearspan.train.model.losses import nt_xent, unit


class Memory(nn.Module):
    """The last `size` contrasted vectors. The newest micro-batch comes first, its anchors before its positives.

    Rows that are not filled yet are zeros. `size` 0 disables the memory.

    Attributes:
        vectors: (size, dim), of unit length.
    """

    vectors: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(size, dim), persistent=size > 0)

    def nt_xent(self, anchors: Tensor, positives: Tensor, temperature: float, same: Tensor | None = None) -> Tensor:
        """Return `train.model.losses.nt_xent` with the memory as additional negatives.

        In training, the vectors of these pairs are then added to the memory.
        """
        loss = nt_xent(anchors, positives, temperature, self.vectors, same)
        if self.training and torch.is_grad_enabled() and len(self.vectors):
            self._add(anchors.detach(), positives.detach())
        return loss

    @torch.no_grad()
    @in_fp32
    def _add(self, anchors: Tensor, positives: Tensor) -> None:
        new = torch.cat([gather(unit(anchors)), gather(unit(positives))])
        # A new tensor: the loss's backward still needs the old one.
        self.vectors = torch.cat([new, self.vectors])[: len(self.vectors)]
