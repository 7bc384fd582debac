"""Contrastive losses: pure functions of embeddings, in fp32, over the negatives of all ranks.

Each rank scores its rows against every rank's columns and returns the mean over its rows; the trainer averages
gradients over ranks. So N ranks give the loss and gradients of one rank on the same batch, as all ranks hold the same
number of rows. The gather is differentiable.
"""

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from clearspan.common.encoder.autocast import in_fp32
from clearspan.train.collectives import gather, gather_labels, world


@in_fp32
def nt_xent(
    anchors: Tensor, positives: Tensor, temperature: float, memory: Tensor | None = None, same: Tensor | None = None
) -> Tensor:
    """NT-Xent over the 2N points of N pairs, in both directions (DeCLUTR section 3.1, CLEAR Eq. 1; Chen et al. 2020).

    The papers write a sum over points; this is the mean, as in DeCLUTR's code.

    Args:
        anchors, positives: (n, d) on each rank, N = n x ranks, any float type, normalized here; row i of each is a
            pair.
        temperature: the divisor of the cosine similarities, > 0.
        memory: (m, d) unit vectors that are further negatives of every point, the same on each rank; rows of zeros are
            skipped.
        same: (n, N) bool, which of all ranks' pairs are no negatives of this rank's pairs: neither point of one is a
            negative of a point of the other. A pair's own column has no effect.

    Returns:
        Scalar fp32: the mean over this rank's 2n points of -log softmax at the partner, over all other 2N - 1 points
        and those of the memory, without those of `same`.
    """
    logits, partner = _all_views(anchors, positives, temperature)
    if same is not None:
        logits = _without(logits, same.repeat(2, 2), partner)
    if memory is not None and len(memory):
        remembered = unit(torch.cat([anchors, positives])) @ memory.T / temperature
        logits = torch.cat([logits, remembered.masked_fill(~memory.any(1), -torch.inf)], dim=1)
    return F.cross_entropy(logits, partner)


@in_fp32
def info_nce(
    anchors: Tensor,
    positives: Tensor,
    temperature: float,
    negatives: Sequence[Tensor] = (),
    negative_weight: float = 0.0,
    same: Tensor | None = None,
) -> Tensor:
    """InfoNCE in one direction, with or without hard negatives (SimCSE Eqs. 4 and 5; NonLing-CSE Eqs. 2, 3 and 5).

    Args:
        anchors, positives: (n, d) on each rank, any float type, normalized here; row i of each belongs to the same
            example.
        negatives: k blocks (n, d) of hard negatives; row i of each belongs to example i.
        temperature: the divisor of the cosine similarities, > 0.
        negative_weight: added to the logit of an anchor and its own hard negatives, as in SimCSE's code.
        same: bool, (n, (1 + k) N), which of all ranks' positives and negatives, block after block, are no negatives of
            this rank's anchors. The column of an anchor's own positive has no effect.

    Returns:
        Scalar: the mean over this rank's anchors of -log softmax at its positive, over all ranks' positives and
        negatives, without those of `same`.
    """
    partner = own_columns(anchors)
    anchors = unit(anchors)
    blocks = [anchors @ gather(unit(positives)).T / temperature]
    for block in negatives:
        hard = anchors @ gather(unit(block)).T / temperature
        rows = torch.arange(len(anchors), device=anchors.device)
        blocks.append(hard.index_put((rows, partner), hard.new_full((), negative_weight), accumulate=True))
    logits = torch.cat(blocks, dim=1)
    if same is not None:
        logits = _without(logits, same, partner)
    return F.cross_entropy(logits, partner)


@in_fp32
def sup_con(first: Tensor, second: Tensor, labels: Tensor, temperature: float, variant: str = "khosla") -> Tensor:
    """Supervised contrast of two views of N labeled examples, in one of three variants.

    `khosla` is Eq. 2 of Khosla et al. (2020): for each of the 2N points, the mean of -log softmax over all other points
    of its class, where the softmax runs over all other points.

    `paper` is Eq. 4 of NonLing-CSE as printed: for each first view, -log of the sum over the second views of its class
    divided by the sum over those of other classes; 0 for an anchor in a batch without other classes.

    `published-code` is what that paper's code computes: cross-entropy over the second views, where the target column is
    the rank of the anchor's class among the batch's classes. That column hardly ever belongs to the anchor's class.

    Args:
        first, second: (n, d) on each rank, N = n x ranks, any float type, normalized here.
        labels: (n,) int64.
        temperature: the divisor of the cosine similarities, > 0.

    Returns:
        Scalar: the mean over this rank's points (Eq. 4 writes a sum).
    """
    all_labels = gather_labels(labels)
    if variant == "khosla":
        logits, _ = _all_views(first, second, temperature)
        alike = (labels.repeat(2)[:, None] == all_labels.repeat(2)) & ~logits.isneginf()
        log_softmax = F.log_softmax(logits, dim=1).masked_fill(~alike, 0.0)
        return -(log_softmax.sum(1) / alike.sum(1)).mean()
    logits = unit(first) @ gather(unit(second)).T / temperature
    if variant == "published-code":
        return F.cross_entropy(logits, _rank_among(labels, all_labels))
    alike = labels[:, None] == all_labels
    same = logits.masked_fill(~alike, -torch.inf).logsumexp(1)
    has_others = ~alike.all(1)
    others = torch.where(has_others[:, None], logits.masked_fill(alike, -torch.inf), logits).logsumexp(1)
    return torch.where(has_others, others - same, 0.0).mean()


def _all_views(first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return logits (2n, 2N) of this rank's points of both views against all ranks' points, -inf between a point and
    itself, and the column of each point's other view (2n,).
    """
    n, column = len(first), own_columns(first)
    first, second = unit(first), unit(second)
    everything = torch.cat([gather(first), gather(second)])
    total = len(everything) // 2
    logits = torch.cat([first, second]) @ everything.T / temperature
    itself, partner = torch.cat([column, total + column]), torch.cat([total + column, column])
    rows = torch.arange(2 * n, device=logits.device)
    return logits.index_put((rows, itself), logits.new_full((), -torch.inf)), partner


def _without(logits: Tensor, same: Tensor, partner: Tensor) -> Tensor:
    """Return logits with -inf at `same`, a bool tensor of their shape, except in each row's column `partner`."""
    rows = torch.arange(len(logits), device=logits.device)
    return logits.masked_fill(same.index_put((rows, partner), same.new_zeros(())), -torch.inf)


def own_columns(rows: Tensor) -> Tensor:
    """Return the columns of this rank's rows among the rows of all ranks, (n,)."""
    return world()[0] * len(rows) + torch.arange(len(rows), device=rows.device)


def _rank_among(labels: Tensor, all_labels: Tensor) -> Tensor:
    """Return the number of the batch's classes below each label, (n,). torch.unique would wait for the device."""
    ordered = all_labels.sort().values
    below = F.pad((ordered.diff() != 0).cumsum(0), (1, 0))
    return below[torch.searchsorted(ordered, labels)]


def unit(rows: Tensor) -> Tensor:
    """Return each row divided by its norm, in fp32, or fp64 if the rows are."""
    return F.normalize(rows if rows.dtype == torch.float64 else rows.float(), dim=1)


def alignment(anchors: Tensor, positives: Tensor) -> Tensor:
    """Return the mean squared distance of positive pairs on the unit sphere (Wang & Isola 2020): (n, d), (n, d)."""
    difference = F.normalize(anchors.float(), dim=1) - F.normalize(positives.float(), dim=1)
    return difference.square().sum(1).mean()


def accuracy(anchors: Tensor, positives: Tensor) -> Tensor:
    """Return the fraction of this rank's anchors whose nearest positive of all ranks, by cosine, is their own.

    Args:
        anchors, positives: (n, d) on each rank; row i of each is a pair.
    """
    nearest = (unit(anchors) @ gather(unit(positives)).T).argmax(1)
    return (nearest == own_columns(anchors)).float().mean()


def uniformity(points: Tensor) -> Tensor:
    """Return log mean exp(-2 |x - y|^2) over pairs on the unit sphere (Wang & Isola 2020): (n, d), n >= 2."""
    distances = torch.pdist(F.normalize(points.float(), dim=1)).square()
    return torch.logsumexp(-2 * distances, dim=0) - math.log(len(distances))
