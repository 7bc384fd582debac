"""Collective operations on tensors: gather rows, sum over ranks. If there is no process group, there is one rank.

The process group itself, and work that rank 0 does for all ranks, are in `train.engine.ranks`.
"""

import os
import threading
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from clearspan.common.host_copy import HostCopy


def world() -> tuple[int, int]:
    """Return (rank of this process, number of ranks); (0, 1) if there is no process group."""
    return (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)


def ranks_here() -> int | None:
    """Return the number of ranks that deepspeed or torchrun started on this machine; None if neither was used."""
    number = os.environ.get("LOCAL_SIZE") or os.environ.get("LOCAL_WORLD_SIZE")
    return int(number) if number else None


def gather(rows: Tensor) -> Tensor:
    """Gather the rows of all ranks in rank order, with gradients: (n, d) on each of R ranks -> (R n, d)."""
    if world()[1] == 1:
        return rows
    from torch.distributed.nn.functional import all_gather

    return torch.cat(all_gather(rows.contiguous()))  # type: ignore[no-untyped-call]  # torch's


def gather_labels(labels: Tensor) -> Tensor:
    """Gather the labels of all ranks in rank order, without gradients: (n, ...) on each of R ranks -> (R n, ...)."""
    ranks = world()[1]
    if ranks == 1:
        return labels
    parts = [torch.empty_like(labels) for _ in range(ranks)]
    dist.all_gather(parts, labels.contiguous())
    return torch.cat(parts)


def sum_over_ranks(value: Tensor) -> Tensor:
    """Return the sum of a tensor over all ranks, detached."""
    total = value.detach().clone()
    if world()[1] > 1:
        dist.all_reduce(total)
    return total


def sum_later(value: Tensor) -> Callable[[], Tensor]:
    """Start to sum a tensor, in place, over all ranks; return a function that waits for the sum, and returns it.

    Until that function is called, the host waits for no rank. Then, on CUDA, it waits for the work that the device had
    before this call, and not for what it was given since.
    """
    work = dist.all_reduce(value, async_op=True)
    assert work is not None
    if value.is_cuda:
        work.wait()  # the stream waits, and not the host
        return HostCopy(value).result

    def summed() -> Tensor:
        work.wait()
        return value

    return summed


def autocast_cache(engine: Any) -> torch.autocast:
    """Return a context in which autocast casts each weight to half precision once, not once per forward pass.

    Autocast keeps the cast weights until its outermost context ends. Enter the returned context as the outermost one,
    around several forward passes. It does not turn autocast on; the engine does so in each forward pass.

    Within the context, no weight may change, and gradients must be enabled in all forward passes or in none: a weight
    that is cast without gradients has none in a later pass. So gradient caching casts each weight twice a step. A
    compiled encoder still casts once per forward pass, because the casts are part of its graph.

    Args:
        engine: DeepSpeed's engine.
    """
    return torch.autocast(engine.device.type, enabled=False)


def keep_casts(loss: Tensor) -> None:
    """Let a loss's backward pass leave the cache of `autocast_cache` as it is, on CUDA.

    Call this within that context, before the backward pass. On CUDA the backward pass has a thread of its own. With
    activation checkpointing it enters autocast there, to compute layers again. Autocast counts its contexts by thread,
    but has one cache for all threads: the end of each layer would empty it.

    Args:
        loss: the scalar that is differentiated.
    """
    if not loss.is_cuda:
        return

    def begin(_: Tensor) -> None:
        thread = threading.get_ident()

        def end() -> None:
            if threading.get_ident() == thread:  # else the count of another thread would be wrong
                torch.autocast_decrement_nesting()

        torch.autocast_increment_nesting()
        torch.autograd.Variable._execution_engine.queue_callback(end)

    loss.register_hook(begin)  # type: ignore[no-untyped-call]  # torch's


def autocast(engine: Any) -> torch.autocast:
    """Return the autocast context of DeepSpeed's engine, for a forward pass that calls the engine's module directly."""
    enabled = engine.torch_autocast_enabled()
    return torch.autocast(engine.device.type, engine.torch_autocast_dtype() if enabled else None, enabled)
