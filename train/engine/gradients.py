"""Gradient norm of each objective (`training.gradient_norms`): it shows how strongly an objective changes weights."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from clearspan.train.collectives import autocast, keep_casts, sum_over_ranks, world
from clearspan.train.data.batch import Batch
from clearspan.train.model.memory_bank import Memory
from clearspan.train.step.requests import Metrics


def gradient_norms(engine: Any, batches: Mapping[str, Batch], turn: str, parameters: Sequence[nn.Parameter]) -> Metrics:
    """Return the gradient norm of each objective of a turn: `OBJECTIVE/grad_norm` -> a scalar.

    The gradient is that of the objective's weighted loss on one micro-batch, averaged over ranks, before clipping.

    This costs one forward pass, and one backward pass per objective. The gradients that DeepSpeed accumulates, and the
    memory banks of objectives, are unchanged afterwards. Every rank must call this function, after seeding dropout with
    the seed of the micro-batch's forward pass.

    Args:
        engine: DeepSpeed's engine, which wraps a `Learner`.
        batches: name of a dataset -> this rank's batch in the micro-batch.
        turn: the name of the turn.
        parameters: the parameters that the turn trains.
    """
    memories = [(module, module.vectors) for module in engine.module.modules() if isinstance(module, Memory)]
    trained = [parameter for parameter in parameters if parameter.requires_grad]
    with autocast(engine):
        losses, _ = engine.module.losses(batches, turn, measured=False)
    norms = {}
    for name, loss in losses.items():
        keep_casts(loss)
        gradients = torch.autograd.grad(loss, trained, retain_graph=True, allow_unused=True)
        flat = torch.cat([gradient.float().flatten() for gradient in gradients if gradient is not None])
        norms[f"{name}/grad_norm"] = sum_over_ranks(flat).div(world()[1]).norm()
    for memory, vectors in memories:
        memory.vectors = vectors
    return norms
