"""How strongly each objective pulls: the norm of its own gradient, on request (`training.gradient_norms`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from clearspan.train.data.batch import Batch
from clearspan.train.distributed import autocast, sum_over_ranks, world
from clearspan.train.model.memory_bank import Memory
from clearspan.train.objectives import Metrics


def gradient_norms(engine: Any, batches: Mapping[str, Batch], turn: str, parameters: Sequence[nn.Parameter]) -> Metrics:
    """By `OBJECTIVE/grad_norm`, the norm of each weighted loss's gradient on a micro-batch of all ranks, unclipped.

    It costs a forward, and a backward an objective. What DeepSpeed's engine, over a `Learner`, does with gradients
    (accumulation, ZeRO) has no part in it, and what is remembered of earlier batches stays as it is. Every rank calls
    it, with dropout seeded as training's forward will be.
    """
    memories = [(one, one.vectors) for one in engine.module.modules() if isinstance(one, Memory)]
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    with autocast(engine):
        losses, _ = engine.module.losses(batches, turn, measured=False)
    norms = {}
    for name, loss in losses.items():
        found = torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True)
        whole = torch.cat([gradient.float().flatten() for gradient in found if gradient is not None])
        norms[f"{name}/grad_norm"] = sum_over_ranks(whole).div(world()[1]).norm()
    for memory, vectors in memories:
        memory.vectors = vectors
    return norms
