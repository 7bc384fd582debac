"""Collectives of tensors: gathered rows, sums over ranks. Without a process group there is one rank.

The process group itself, and work that rank 0 does for all ranks, are in `train.engine.ranks`.
"""

import os
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def world() -> tuple[int, int]:
    """Return (rank, number of ranks); (0, 1) without a process group."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def ranks_here() -> int | None:
    """Return the number of ranks that the launcher (deepspeed's or torchrun) started here; None without a launcher."""
    number = os.environ.get("LOCAL_SIZE") or os.environ.get("LOCAL_WORLD_SIZE")
    return int(number) if number else None


def gather(rows: Tensor) -> Tensor:
    """Return the rows of all ranks in rank order, differentiable: (n, d) on each of R ranks -> (R n, d)."""
    if world()[1] == 1:
        return rows
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(rows.contiguous()))  # type: ignore[no-untyped-call]  # torch's


def gather_labels(labels: Tensor) -> Tensor:
    """Return the labels of all ranks in rank order."""
    ranks = world()[1]
    if ranks == 1:
        return labels
    parts = [torch.empty_like(labels) for _ in range(ranks)]
    dist.all_gather(parts, labels.contiguous())
    return torch.cat(parts)


def sum_over_ranks(value: Tensor) -> Tensor:
    """Return the sum of a tensor over ranks, detached."""
    total = value.detach().clone()
    if world()[1] > 1:
        dist.all_reduce(total)
    return total


def casts_kept(engine: Any) -> torch.autocast:
    """Return a context in which forward passes share the casts of weights to half precision.

    No weight may change between two forward passes in it, and gradients must be enabled in all of them or in none.
    Autocast keeps its casts until the outermost autocast region ends. This context is that region: the engine's forward
    enables autocast within it. A compiled encoder casts in its graph, once per forward pass.
    """
    return torch.autocast(engine.device.type, enabled=False)


def autocast(engine: Any) -> torch.autocast:
    """Return the autocast context of DeepSpeed's engine, for a forward of its module that bypasses the engine."""
    enabled = engine.torch_autocast_enabled()
    return torch.autocast(engine.device.type, engine.torch_autocast_dtype() if enabled else None, enabled)
