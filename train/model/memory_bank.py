"""Cross-batch memory (Wang et al. 2020, arXiv 1912.06798): vectors of earlier micro-batches as additional negatives.

    a micro-batch's vectors -> NT-Xent with the vectors of all ranks and of the memory -> added to the memory

The memory starts empty. When it is full, new vectors replace the oldest. On every rank it holds the vectors of all
ranks, in the same order. No gradient flows into it. It is a buffer of the learner, so checkpoints hold it.
"""

import torch
from torch import Tensor, nn

from clearspan.common.encoder.autocast import in_fp32
from clearspan.train.collectives import gather
from clearspan.train.model.losses import nt_xent, unit


class Memory(nn.Module):
    """The vectors that were contrasted last, as additional negatives for the next micro-batches.

    Args:
        size: the number of vectors that it holds; 0 for no memory.
        dim: the number of dimensions of a vector.

    Attributes:
        vectors: the vectors, of unit length, (size, dim): the newest micro-batch first, its anchors before its
            positives. Rows that are not filled yet are zeros.
    """

    vectors: Tensor

    def __init__(self, size: int, dim: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(size, dim), persistent=size > 0)

    def nt_xent(
        self, anchors: Tensor, positives: Tensor, temperature: float, false_negatives: Tensor | None = None
    ) -> Tensor:
        """Return this rank's NT-Xent loss (`losses.nt_xent`), with the memory's vectors as further negatives.

        The other negatives are the vectors of all ranks' pairs. In training, these vectors are then added to the
        memory.

        Args:
            anchors, positives: the vectors of this rank's n pairs, (n, dim) each; row i of both is a positive pair.
            temperature: the divisor of the cosine similarities.
            false_negatives: the mask of false negatives, (n, N) bool, where N is the number of pairs on all ranks: true
                at [i, j] if pair i of this rank and pair j of all ranks must not be negatives of each other. None: mask
                nothing. Vectors of the memory are always negatives.
        """
        loss = nt_xent(anchors, positives, temperature, self.vectors, false_negatives)
        if self.training and torch.is_grad_enabled() and len(self.vectors):
            self._add(anchors.detach(), positives.detach())
        return loss

    @torch.no_grad()
    @in_fp32
    def _add(self, anchors: Tensor, positives: Tensor) -> None:
        new = torch.cat([gather(unit(anchors)), gather(unit(positives))])
        # A new tensor: the loss's backward still needs the old one.
        self.vectors = torch.cat([new, self.vectors])[: len(self.vectors)]
