"""What several ranks do as one: rank 0 works, and all hear how it went, so that none waits for one that failed."""

import os
import socket
from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from train.losses import world

Result = TypeVar("Result")


class ToldElsewhereError(Exception):
    """Rank 0 failed with an error of type `kind`, and tells of it."""

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__(kind)
        self.kind = kind


def agreed(work: Callable[[], Result]) -> Result:
    """What `work`, done on rank 0, returns: on every rank.

    Raises:
        ToldElsewhereError: on the other ranks, where it raised an error on rank 0; there it is that error.
    """
    rank, ranks = world()
    outcome: list[Any] = [None, None]
    failed: Exception | None = None
    if rank == 0:
        try:
            outcome[0] = work()
        except Exception as error:
            failed, outcome[1] = error, type(error)
    if ranks > 1:
        dist.broadcast_object_list(outcome)
    if failed:
        raise failed
    if outcome[1]:
        raise ToldElsewhereError(outcome[1])
    return outcome[0]


def gathered(value: Result) -> list[Result]:
    """Every rank's value, by rank, on every rank."""
    ranks = world()[1]
    values: list[Any] = [value] * ranks
    if ranks > 1:
        dist.all_gather_object(values, value)
    return values


def barrier() -> None:
    if dist.is_initialized():
        dist.barrier()


def join_ranks() -> None:
    """Joins the launcher's process group; without a launcher, a group of one."""
    if "RANK" not in os.environ:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # before ranks speak to each other
    import deepspeed

    deepspeed.init_distributed(verbose=False)
