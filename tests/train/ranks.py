"""Runs a function on several gloo ranks, each a process of its own."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def _rank(rank: int, ranks: int, function: Callable[[int, int], Any], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=ranks)
    torch.save(function(rank, ranks), Path(folder) / f"{rank}.pt")
    dist.destroy_process_group()


def run_on_ranks(function: Callable[[int, int], Any], ranks: int) -> list[Any]:
    """What `function(rank, ranks)` returns on each rank; tensors and plain values only."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        mp.spawn(_rank, (ranks, function, folder), nprocs=ranks)
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(ranks)]
