"""Contrastive losses: pure functions of embeddings, in fp32, over the negatives of all ranks.

Each rank scores its own rows against every rank's columns and returns the mean over its rows; the trainer averages
gradients over ranks, so N ranks give the loss and gradients of one rank on the same batch (all ranks hold the same
number of rows). The gather is differentiable.
"""

import math

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

IGNORED = -100
"""The label of a slot that holds no masked token; cross-entropy's usual mark."""


def world() -> tuple[int, int]:
    """(rank, number of ranks); (0, 1) without a process group."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def gather(rows: Tensor) -> Tensor:
    """Rows of all ranks in rank order, differentiable: (n, d) on each of R ranks -> (R n, d)."""
    if world()[1] == 1:
        return rows
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(rows.contiguous()))


def sum_over_ranks(value: Tensor) -> Tensor:
    """The sum of a detached tensor over ranks."""
    total = value.detach().clone()
    if world()[1] > 1:
        dist.all_reduce(total)
    return total


@torch.autocast("cuda", enabled=False)
@torch.autocast("cpu", enabled=False)
def nt_xent(anchors: Tensor, positives: Tensor, temperature: float) -> Tensor:
    """NT-Xent over the 2N points of N pairs, both directions (DeCLUTR section 3.1, CLEAR Eq. 1; Chen et al. 2020).

    The papers write a sum over points, DeCLUTR's code takes the mean, as here.

    Args:
        anchors, positives: (n, d) on each rank, N = n x ranks, any float type, not necessarily unit; row i of each is a
            pair.
        temperature: the divisor of the cosine similarities, > 0.

    Returns:
        Scalar fp32: the mean over this rank's 2n points of -log softmax at the partner, over all other 2N - 1 points.
    """
    rank, _ = world()
    n = len(anchors)
    anchors, positives = F.normalize(anchors.float(), dim=1), F.normalize(positives.float(), dim=1)
    all_anchors, all_positives = gather(anchors), gather(positives)
    total = len(all_anchors)
    logits = torch.cat([anchors, positives]) @ torch.cat([all_anchors, all_positives]).T / temperature
    own = rank * n + torch.arange(n, device=logits.device)
    itself, partner = torch.cat([own, total + own]), torch.cat([total + own, own])
    rows = torch.arange(2 * n, device=logits.device)
    logits = logits.index_put((rows, itself), torch.full((), -torch.inf, device=logits.device))
    return F.cross_entropy(logits, partner)


@torch.autocast("cuda", enabled=False)
@torch.autocast("cpu", enabled=False)
def masked_lm(logits: Tensor, labels: Tensor) -> Tensor:
    """Cross-entropy over the masked tokens of all ranks.

    Args:
        logits: (k, vocabulary) on this rank, any float type.
        labels: (k,) int64; IGNORED marks an unused slot.

    Returns:
        Scalar fp32 whose mean over ranks is the mean over all ranks' masked tokens, whatever each rank's count.
    """
    count = sum_over_ranks((labels != IGNORED).sum()).clamp(min=1)
    summed = F.cross_entropy(logits.float(), labels, ignore_index=IGNORED, reduction="sum")
    return summed * world()[1] / count


def alignment(anchors: Tensor, positives: Tensor) -> Tensor:
    """Mean squared distance of positive pairs on the unit sphere (Wang & Isola 2020): (n, d), (n, d) -> scalar."""
    difference = F.normalize(anchors.float(), dim=1) - F.normalize(positives.float(), dim=1)
    return difference.square().sum(1).mean()


def uniformity(points: Tensor) -> Tensor:
    """log mean exp(-2 |x - y|^2) over pairs on the unit sphere (Wang & Isola 2020): (n, d), n >= 2 -> scalar."""
    distances = torch.pdist(F.normalize(points.float(), dim=1)).square()
    return torch.logsumexp(-2 * distances, dim=0) - math.log(len(distances))
