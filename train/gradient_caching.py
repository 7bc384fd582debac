"""Gradient caching (Gao et al. 2021, arXiv 2101.06983, section 3.2): contrast among more than one forward holds.

    micro-batches -> forward of each, no gradient -> vectors of all -> every contrast's loss -> the vectors' gradients
    micro-batches -> forward of each again, the same dropout -> backward of vectors x their gradients, and of the rest

What is kept between the two is one vector a sequence. The gradient of a contrast is that of one batch of all the step's
examples; a masked-LM loss, which compares nothing, is computed in the second pass, and each micro-batch's counts by its
share of the step's masked tokens, so that it too is that of one batch.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from clearspan.train.distributed import sum_over_ranks
from clearspan.train.losses import in_fp32
from clearspan.train.model.encoded import Encoded, Vectors
from clearspan.train.objectives import Metrics, Objective


@dataclasses.dataclass(frozen=True)
class Part:
    """What the first pass keeps of a micro-batch.

    Args:
        vectors: of all its sequences; None: no objective contrasts them.
        contexts: of the objectives' requests, by objective.
        masked: () masked tokens on this rank, by the objective that asked for them.
    """

    vectors: Vectors | None
    contexts: Mapping[str, Any]
    masked: Mapping[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Cached:
    """What the second pass of a micro-batch needs of the first one of all.

    Args:
        losses: each contrast's weighted loss on the step's examples, detached. metrics: theirs, as they are logged.
        pooled, first: the losses' gradients by this micro-batch's vectors, (N, h) each, times the number of
            micro-batches, of whose gradients the step takes the mean; None: no loss uses these.
        parameters: the contrasts' own parameters, such as a head's, with their gradients.
        shares: what to multiply a loss over masked tokens with, (), by objective.
    """

    losses: dict[str, Tensor]
    metrics: Metrics
    pooled: Tensor | None
    first: Tensor | None
    parameters: list[tuple[nn.Parameter, Tensor]]
    shares: dict[str, Tensor]

    def pull(self, vectors: Vectors) -> Tensor:
        """A scalar of value 0 whose gradient is the contrasts', by the same vectors computed with gradient."""
        pairs: list[tuple[Tensor, Tensor]] = [*self.parameters]
        if self.pooled is not None:
            pairs.append((vectors.pooled, self.pooled))
        if self.first is not None:
            pairs.append((vectors.first, self.first))
        pulled = torch.stack([(value * gradient).sum() for value, gradient in pairs]).sum()
        return pulled - pulled.detach()


def cache(parts: Sequence[Part], objectives: Sequence[Objective], measured: bool = True) -> list[Cached]:
    """From the first pass over a step's micro-batches, what the second one of each needs.

    Every rank calls it: contrasts see the vectors of all ranks, and a memory bank is filled here, once.

    Args:
        objectives: those of the turn, in their order.
        measured: whether anyone will look at metrics beside losses.
    """
    contrasts = [one for one in objectives if one.contrasts]
    losses: dict[str, Tensor] = {}
    metrics: Metrics = {}
    leaves: list[Tensor] = []
    gradients: list[Tensor | None] = []
    trained = [p for one in contrasts for p in one.parameters() if p.requires_grad]
    with torch.enable_grad():
        if contrasts:
            own = [_leaves(part) for part in parts]
            leaves = [leaf for vectors in own for leaf in (vectors.pooled, vectors.first)]
            together = joined(own)
        for one in contrasts:
            context = one.joined([part.contexts[one.name] for part in parts])
            loss, found = one.loss(Encoded(together, one.name, measured), context)
            losses[one.name] = one.weight * loss
            metrics[f"{one.name}/loss"] = loss.detach()
            metrics |= {f"{one.name}/{key}": value for key, value in found.items()}
        if contrasts:
            total = torch.stack(list(losses.values())).sum()
            backward = in_fp32(torch.autograd.grad)  # which autocast would else do in half precision, too
            gradients = list(backward(total, [*leaves, *trained], allow_unused=True))
    detached = {name: loss.detach() for name, loss in losses.items()}
    of_parameters = [(p, g) for p, g in zip(trained, gradients[len(leaves) :], strict=True) if g is not None]
    of_vectors = [None if g is None else g * len(parts) for g in gradients[: len(leaves)]] or [None] * 2 * len(parts)
    shares = _shares(parts)
    return [
        Cached(detached, metrics, of_vectors[2 * i], of_vectors[2 * i + 1], of_parameters, shares[i])
        for i in range(len(parts))
    ]


def joined(parts: Sequence[Vectors]) -> Vectors:
    """The vectors of several micro-batches as those of one: each block's rows stand together, in their order."""
    blocks: dict[str, slice] = {}
    pooled: list[Tensor] = []
    first: list[Tensor] = []
    end = 0
    for name in parts[0].blocks:
        pooled += [part.pooled[part.blocks[name]] for part in parts]
        first += [part.first[part.blocks[name]] for part in parts]
        begin, end = end, sum(map(len, pooled))
        blocks[name] = slice(begin, end)
    return Vectors(torch.cat(pooled), torch.cat(first), blocks)


def _leaves(part: Part) -> Vectors:
    assert part.vectors is not None
    kept = part.vectors
    return Vectors(kept.pooled.detach().requires_grad_(), kept.first.detach().requires_grad_(), kept.blocks)


def _shares(parts: Sequence[Part]) -> list[dict[str, Tensor]]:
    """Of each micro-batch: its masked tokens of all ranks by the mean over micro-batches, by objective."""
    names = list(parts[0].masked)
    if not names:
        return [{} for _ in parts]
    counts = sum_over_ranks(torch.stack([torch.stack([part.masked[name] for name in names]) for part in parts]))
    shares = counts / counts.double().mean(0).clamp(min=1 / len(parts))
    return [dict(zip(names, row.float().unbind(), strict=True)) for row in shares]
