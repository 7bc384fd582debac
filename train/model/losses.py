"""Contrastive losses: pure functions of embeddings, in fp32, with the in-batch negatives of all ranks.

| loss       | labels  | positives of an anchor          | hard negatives | objectives that use it            |
| ---------- | ------- | ------------------------------- | -------------- | --------------------------------- |
| `nt_xent`  | none    | its partner, in both directions | no             | `spans`, `clear`                  |
| `info_nce` | none    | its partner, in one direction   | yes            | `simcse`, `patches` with `simclr` |
| `sup_con`  | classes | all examples of its class       | no             | `patches`                         |

Each rank scores its rows against the rows of all ranks (a differentiable gather) and returns the mean over its own
rows; the trainer averages gradients over ranks. All ranks hold the same number of rows, so several ranks give the same
loss and gradients as one rank with the whole batch.
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
    anchors: Tensor,
    positives: Tensor,
    temperature: float,
    memory: Tensor | None = None,
    false_negatives: Tensor | None = None,
) -> Tensor:
    """Return NT-Xent, the normalized temperature-scaled cross-entropy, over the 2N points of N pairs.

    For a point z_i with partner z_p, and t the temperature:

        loss_i = -log(exp(cos(z_i, z_p) / t) / sum over j != i of exp(cos(z_i, z_j) / t))

    Every point is an anchor once, so the loss is symmetric: the partner is the positive, and the other 2N - 2 points
    are in-batch negatives. Source: Chen et al. 2020 (SimCLR), DeCLUTR section 3.1, CLEAR Eq. 1. The papers of DeCLUTR
    and CLEAR sum over points; this is the mean, as in DeCLUTR's code.

    Related: `info_nce` contrasts in one direction and takes hard negatives; `sup_con` takes classes. The recipe
    `declutr-base` trains with this loss.

    Args:
        anchors, positives: n vectors of d dimensions on each rank, (n, d) each, any float type, normalized here; N = n
            x ranks. Row i of `anchors` and row i of `positives` are a pair.
        temperature: the divisor of the cosine similarities, > 0.
        memory: additional negatives of every point, (m, d) unit vectors, the same on each rank; rows of zeros are
            skipped. None for no additional negatives.
        false_negatives: the mask of false negatives, (n, N) bool: true at [i, j] if pair i of this rank and pair j of
            all ranks must not be negatives of each other. A point and its partner are never masked. None: mask nothing.

    Returns:
        The mean over this rank's 2n points, a scalar in fp32.
    """
    logits, partner = _all_views(anchors, positives, temperature)
    if false_negatives is not None:
        logits = _masked(logits, false_negatives.repeat(2, 2), partner)
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
    false_negatives: Tensor | None = None,
) -> Tensor:
    """Return InfoNCE in one direction, with optional hard negatives: find each anchor's positive among all candidates.

    For an anchor a_i with positive p_i, and t the temperature:

        loss_i = -log(exp(cos(a_i, p_i) / t) / sum over candidates c of exp(cos(a_i, c) / t))

    The candidates are all ranks' positives and hard negatives. Source: SimCSE Eqs. 4 and 5 (Gao et al. 2021), and
    NonLing-CSE Eqs. 2, 3 and 5 (Jian et al. 2022).

    Related: sentence-transformers calls this loss MultipleNegativesRankingLoss, with `scale` = 1 / temperature.
    `nt_xent` is its symmetric form, in which anchors are negatives of each other too. The recipes
    `simcse-unsup-bert-base`, `simcse-sup-bert-base` and `pairs` train with this loss.

    Args:
        anchors, positives: n vectors of d dimensions on each rank, (n, d) each, any float type, normalized here; N = n
            x ranks. Row i of both belongs to example i.
        temperature: the divisor of the cosine similarities, > 0.
        negatives: k blocks of hard negatives, (n, d) each; row i of each block belongs to example i.
        negative_weight: a number that is added to the logit between an anchor and the hard negatives of its own
            example, as in SimCSE's code: the logarithm of the weight in Eq. 5. With 0, they count like other negatives.
        false_negatives: the mask of false negatives, (n, (1 + k) N) bool: true at [i, j] if candidate j must not be a
            negative of anchor i of this rank. The candidates are ordered: the positives of all ranks, then block by
            block the hard negatives of all ranks. An anchor's positive is never masked. None: mask nothing.

    Returns:
        The mean over this rank's n anchors, a scalar in fp32.
    """
    partner = gathered_index(anchors)
    anchors = unit(anchors)
    blocks = [anchors @ gather(unit(positives)).T / temperature]
    for block in negatives:
        hard = anchors @ gather(unit(block)).T / temperature
        rows = torch.arange(len(anchors), device=anchors.device)
        blocks.append(hard.index_put((rows, partner), hard.new_full((), negative_weight), accumulate=True))
    logits = torch.cat(blocks, dim=1)
    if false_negatives is not None:
        logits = _masked(logits, false_negatives, partner)
    return F.cross_entropy(logits, partner)


@in_fp32
def sup_con(first: Tensor, second: Tensor, labels: Tensor, temperature: float, variant: str = "khosla") -> Tensor:
    """Return SupCon, the supervised contrastive loss, of two views of N labeled examples, in one of three variants.

    Examples of one class are positives of each other; examples of other classes are negatives.

    `khosla` is Eq. 2 of Khosla et al. (2020). For each of the 2N points, it is the mean of -log softmax over all other
    points of the point's class; the softmax is over all other points.

    `paper` is Eq. 4 of NonLing-CSE as printed. For each first view, it is -log(a / b), where a is the sum of exp(cos /
    temperature) over the second views of the same class, and b the same sum over the second views of other classes. It
    is 0 if all examples of the batch have the class of the first view.

    `published-code` is what the code of that paper computes: for each first view, the cross-entropy over the second
    views, where the target column is the index of the first view's class in the sorted list of the batch's classes. The
    example in that column hardly ever has this class, so choose this variant only to reproduce the published models.

    Related: if every example has a class of its own, `khosla` equals `nt_xent`. The recipe `visualcse-sup-bert-base`
    trains with this loss.

    Args:
        first, second: n vectors of d dimensions on each rank, (n, d) each, any float type, normalized here; N = n x
            ranks. Row i of both is a view of example i.
        labels: the classes of this rank's examples, (n,) int64.
        temperature: the divisor of the cosine similarities, > 0.
        variant: khosla, paper or published-code.

    Returns:
        A scalar in fp32: with `khosla`, the mean over this rank's 2n points; with the other variants, the mean over
            this rank's n first views. (Eq. 4 is a sum over first views.)
    """
    all_labels = gather_labels(labels)
    if variant == "khosla":
        logits, _ = _all_views(first, second, temperature)
        alike = (labels.repeat(2)[:, None] == all_labels.repeat(2)) & ~logits.isneginf()
        log_softmax = F.log_softmax(logits, dim=1).masked_fill(~alike, 0.0)
        return -(log_softmax.sum(1) / alike.sum(1)).mean()
    logits = unit(first) @ gather(unit(second)).T / temperature
    if variant == "published-code":
        return F.cross_entropy(logits, _class_index(labels, all_labels))
    alike = labels[:, None] == all_labels
    same = logits.masked_fill(~alike, -torch.inf).logsumexp(1)
    has_others = ~alike.all(1)
    others = torch.where(has_others[:, None], logits.masked_fill(alike, -torch.inf), logits).logsumexp(1)
    return torch.where(has_others, others - same, 0.0).mean()


def _all_views(first: Tensor, second: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """Return (logits, columns) for this rank's 2n points and the 2N points of all ranks.

    The points are both views of each example: `first` and `second`, (n, d) each on each rank, with n vectors of d
    dimensions. N is the number of examples on all ranks.

    Returns:
        (logits, columns):
            logits: the cosine similarities divided by the temperature, (2n, 2N); -inf between a point and itself.
            columns: the column of each point's partner, the other view of its example, (2n,) int64.
    """
    n, column = len(first), gathered_index(first)
    first, second = unit(first), unit(second)
    everything = torch.cat([gather(first), gather(second)])
    total = len(everything) // 2
    logits = torch.cat([first, second]) @ everything.T / temperature
    itself, partner = torch.cat([column, total + column]), torch.cat([total + column, column])
    rows = torch.arange(2 * n, device=logits.device)
    return logits.index_put((rows, itself), logits.new_full((), -torch.inf)), partner


def _masked(logits: Tensor, false_negatives: Tensor, partner: Tensor) -> Tensor:
    """Return the logits with -inf where the mask `false_negatives` is true, except at each row's positive.

    Args:
        logits: the similarities of this rank's rows and all ranks' candidates.
        false_negatives: the mask of false negatives, bool, of the shape of `logits`.
        partner: for each row of `logits`, the column of its positive, int64.
    """
    rows = torch.arange(len(logits), device=logits.device)
    return logits.masked_fill(false_negatives.index_put((rows, partner), false_negatives.new_zeros(())), -torch.inf)


def gathered_index(rows: Tensor) -> Tensor:
    """Return the index of each of this rank's n rows among the rows of all ranks in the order of ranks, (n,) int64."""
    return world()[0] * len(rows) + torch.arange(len(rows), device=rows.device)


def _class_index(labels: Tensor, all_labels: Tensor) -> Tensor:
    """Return the index of each of n labels in the ascending list of the batch's distinct classes, (n,) int64.

    torch.unique is not used, because it would wait for the device.

    Args:
        labels: the classes of this rank's examples, (n,) int64.
        all_labels: the classes of all ranks' examples, (N,) int64.
    """
    ordered = all_labels.sort().values
    below = F.pad((ordered.diff() != 0).cumsum(0), (1, 0))
    return below[torch.searchsorted(ordered, labels)]


def unit(rows: Tensor) -> Tensor:
    """Return rows (n, d) scaled to unit length, in fp32; fp64 rows stay fp64."""
    return F.normalize(rows if rows.dtype == torch.float64 else rows.float(), dim=1)


def alignment(anchors: Tensor, positives: Tensor) -> Tensor:
    """Return the mean squared distance of positive pairs on the unit sphere (Wang & Isola 2020). Lower is better.

    Args:
        anchors, positives: n vectors of d dimensions, (n, d) each, scaled to unit length here; row i of both is a pair.
    """
    difference = F.normalize(anchors.float(), dim=1) - F.normalize(positives.float(), dim=1)
    return difference.square().sum(1).mean()


def accuracy(anchors: Tensor, positives: Tensor) -> Tensor:
    """Return in-batch accuracy: the fraction of this rank's anchors that are nearest to the positive of their pair.

    Args:
        anchors, positives: n vectors of d dimensions on each rank, (n, d) each; row i of both is a pair. The
            candidates are all ranks' positives, compared by cosine similarity.
    """
    nearest = (unit(anchors) @ gather(unit(positives)).T).argmax(1)
    return (nearest == gathered_index(anchors)).float().mean()


def uniformity(points: Tensor) -> Tensor:
    """Return log mean exp(-2 |x - y|^2) over all pairs x, y of n vectors (Wang & Isola 2020). Lower is better.

    Args:
        points: the n >= 2 vectors of d dimensions, (n, d), which are scaled to unit length here.
    """
    distances = torch.pdist(F.normalize(points.float(), dim=1)).square()
    return torch.logsumexp(-2 * distances, dim=0) - math.log(len(distances))
