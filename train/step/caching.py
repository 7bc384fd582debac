"""Gradient caching (Gao et al. 2021, arXiv 2101.06983, section 3.2): contrast more examples than one forward holds.

    pass 1   micro-batches -> forward of each, no gradient -> all vectors -> contrastive losses -> vectors' gradients
    pass 2   micro-batches -> forward of each, same dropout -> backward of vectors x their gradients, and other losses

Between the passes, the vectors of the sequences and the packed micro-batches stay in memory, with their token ids or
patches, but not the activations. A contrastive loss gets the same gradient as if all examples of the step were one
batch. Other losses are computed in pass 2. A masked-LM loss is weighted by the micro-batch's fraction of the step's
masked tokens, so that its gradient, too, is the same as in one batch.
"""

import dataclasses
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from clearspan.common.encoder.autocast import in_fp32
from clearspan.train.collectives import sum_over_ranks
from clearspan.train.model.encoded import Encoded, SequenceVectors
from clearspan.train.step.contract import Objective
from clearspan.train.step.contrast import ContrastiveObjective
from clearspan.train.step.requests import Metrics, Prepared


@dataclasses.dataclass(frozen=True)
class Part:
    """The result of pass 1 of gradient caching for one micro-batch.

    Pass 1 runs the encoder over all micro-batches of a step, without gradients, so that contrastive losses can compare
    the examples of all of them.

    Args:
        vectors: the vectors of all sequences of the micro-batch; None if no objective is contrastive.
        prepared: the micro-batch, packed and masked, which pass 2 encodes again.
    """

    vectors: SequenceVectors | None
    prepared: Prepared


@dataclasses.dataclass(frozen=True)
class Cached:
    """The input of pass 2 of gradient caching for one micro-batch.

    Pass 1 computes the vectors of the whole step, and the gradients of the losses with respect to them. Pass 2 computes
    the vectors again, and the gradients of the weights.

    Args:
        losses: name of a contrastive objective -> its weighted loss on all examples of the step, detached.
        metrics: the metrics of the contrastive objectives.
        pooled: the gradient of the sum of these losses with respect to the pooled vectors of the micro-batch's N
            sequences, (N, h), where h is the hidden size; None if no loss uses pooled vectors. It is multiplied by the
            number of micro-batches, because the step averages the gradients of its micro-batches.
        first: the gradient of this sum with respect to the states of the sequences' first tokens, (N, h), multiplied by
            the number of micro-batches too; None if no loss uses these states.
        parameters: the parameters of the contrastive objectives, such as heads, with their gradients.
        shares: name of a masked-LM objective -> the number by which its loss is multiplied, a scalar: the number of
            masked tokens in this micro-batch, on all ranks, divided by the mean of this number over the step's
            micro-batches.
        prepared: the micro-batch, packed and masked, as pass 1 encoded it.
    """

    losses: dict[str, Tensor]
    metrics: Metrics
    pooled: Tensor | None
    first: Tensor | None
    parameters: list[tuple[nn.Parameter, Tensor]]
    shares: dict[str, Tensor]
    prepared: Prepared

    def pull(self, vectors: SequenceVectors) -> Tensor:
        """Return a scalar of value 0 whose backward pass gives the weights the gradients of the contrastive losses.

        Added to a loss, it leaves the value unchanged. In the backward pass, `vectors` get the stored gradients
        `pooled` and `first`, which flow on to the encoder's weights.

        Args:
            vectors: the micro-batch's vectors, computed again with gradient.
        """
        pairs: list[tuple[Tensor, Tensor]] = [*self.parameters]
        if self.pooled is not None:
            pairs.append((vectors.pooled, self.pooled))
        if self.first is not None:
            pairs.append((vectors.first, self.first))
        pulled = torch.stack([(value * gradient).sum() for value, gradient in pairs]).sum()
        return pulled - pulled.detach()


def cache(parts: Sequence[Part], objectives: Sequence[Objective], measured: bool = True) -> list[Cached]:
    """Compute the contrastive losses of a step, and their gradients with respect to the vectors of its sequences.

    Every rank must call this function, because the losses gather the vectors of all ranks. If an objective has a memory
    bank of earlier vectors, its loss adds the vectors of the whole step to the bank here.

    Args:
        parts: for each micro-batch of the step, its vectors, computed without gradient, and what they were made from.
        objectives: the objectives whose losses the weight update minimizes, in the recipe's order.
        measured: whether the step is logged. If not, the metrics need only hold losses.

    Returns:
        For each micro-batch, the losses and the gradients of its vectors, from which the gradients of the weights can
        be computed when the micro-batch is encoded again, with gradient.
    """
    contrasts = [objective for objective in objectives if isinstance(objective, ContrastiveObjective)]
    losses: dict[str, Tensor] = {}
    metrics: Metrics = {}
    leaves: list[Tensor] = []
    gradients: list[Tensor | None] = []
    trained = [p for objective in contrasts for p in objective.parameters() if p.requires_grad]
    with torch.enable_grad():
        if contrasts:
            cut_vectors = [_leaves(part) for part in parts]
            leaves = [leaf for vectors in cut_vectors for leaf in (vectors.pooled, vectors.first)]
            together = joined(cut_vectors)
        for objective in contrasts:
            context = objective.joined([part.prepared.requests[objective.name].context for part in parts])
            encoded = Encoded(together, objective.name, measured, objective.pools)
            losses[objective.name], named = objective.weighted_loss(encoded, context)
            metrics |= named
        if contrasts:
            total = torch.stack(list(losses.values())).sum()
            backward = in_fp32(torch.autograd.grad)  # autocast would run it in half precision
            gradients = list(backward(total, [*leaves, *trained], allow_unused=True))
    detached = {name: loss.detach() for name, loss in losses.items()}
    of_parameters = [(p, g) for p, g in zip(trained, gradients[len(leaves) :], strict=True) if g is not None]
    of_vectors = [None if g is None else g * len(parts) for g in gradients[: len(leaves)]] or [None] * 2 * len(parts)
    shares = _shares(parts)
    return [
        Cached(detached, metrics, of_vectors[2 * i], of_vectors[2 * i + 1], of_parameters, shares[i], part.prepared)
        for i, part in enumerate(parts)
    ]


def joined(parts: Sequence[SequenceVectors]) -> SequenceVectors:
    """Concatenate the vectors of several micro-batches, as if they had been computed in one batch.

    The first block of all micro-batches comes first, in the order of the micro-batches, then the second block, and so
    on.
    """
    blocks: dict[str, slice] = {}
    pooled: list[Tensor] = []
    first: list[Tensor] = []
    end = 0
    for name in parts[0].blocks:
        pooled += [part.pooled[part.blocks[name]] for part in parts]
        first += [part.first[part.blocks[name]] for part in parts]
        begin, end = end, sum(map(len, pooled))
        blocks[name] = slice(begin, end)
    return SequenceVectors(torch.cat(pooled), torch.cat(first), blocks)


def _leaves(part: Part) -> SequenceVectors:
    """Return a micro-batch's vectors as leaves of a new graph, with respect to which the losses are differentiated."""
    assert part.vectors is not None
    pooled, first = part.vectors.pooled.detach(), part.vectors.first.detach()
    return SequenceVectors(pooled.requires_grad_(), first.requires_grad_(), part.vectors.blocks)


def _shares(parts: Sequence[Part]) -> list[dict[str, Tensor]]:
    """Return, for each micro-batch, name of an objective -> the factor by which its masked-LM loss is multiplied.

    The factor is the number of masked tokens in the micro-batch, on all ranks, divided by the mean of these numbers
    over the micro-batches.
    """
    masked = [part.prepared.masked_tokens() for part in parts]
    names = list(masked[0])
    if not names:
        return [{} for _ in parts]
    counts = sum_over_ranks(torch.stack([torch.stack([each[name] for name in names]) for each in masked]))
    shares = counts / counts.double().mean(0).clamp(min=1 / len(parts))
    return [dict(zip(names, row.float().unbind(), strict=True)) for row in shares]
