"""What several ranks do as one: rank 0 works, and all hear how it went, so that none waits for one that failed."""

from collections.abc import Callable
from typing import Any, TypeVar

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
