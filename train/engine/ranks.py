"""What several ranks do as one: rank 0 works, and all hear how it went, so that none waits for one that failed."""

import os
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import psutil
import torch
import torch.distributed as dist
from torch.distributed.rendezvous import register_rendezvous_handler

from clearspan.common import terminal
from clearspan.train.distributed import world

Result = TypeVar("Result")
LOOPBACK = "127.0.0.1"


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


def name_accelerator() -> None:
    """Name the CPU to DeepSpeed where torch finds no accelerator. DeepSpeed would warn of that in every process.

    Call it before DeepSpeed is imported. The processes that this one starts inherit the choice.
    """
    if not torch.accelerator.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def one_machine() -> bool:
    """Return whether all ranks run on this machine."""
    return _ranks_here() == os.environ["WORLD_SIZE"] or os.environ["MASTER_ADDR"] in (LOOPBACK, "localhost")


def _ranks_here() -> str | None:
    """Return how many ranks a launcher started on this machine: deepspeed's tells it, and torchrun does."""
    return os.environ.get("LOCAL_SIZE") or os.environ.get("LOCAL_WORLD_SIZE")


def join_ranks() -> None:
    """Join the launcher's process group, or without a launcher a group of one. A second call does nothing.

    On one machine only processes of that machine can reach the group. On several machines rank 0 prints where it
    listens.

    Raises:
        DistNetworkError: the ranks cannot reach each other, or the port is taken.
    """
    if dist.is_initialized():
        return
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR=LOOPBACK, MASTER_PORT="0")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # before ranks speak to each other
    import deepspeed

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if one_machine():
        interfaces = psutil.net_if_addrs().items()
        name = next((name for name, found in interfaces if any(one.address == LOOPBACK for one in found)), "lo")
        os.environ.update(GLOO_SOCKET_IFNAME=name, NCCL_SOCKET_IFNAME=f"={name}")
        register_rendezvous_handler("loopback", _meet)
        deepspeed.init_distributed(verbose=False, init_method="loopback://", rank=rank, world_size=ranks)
    else:
        if rank == 0:
            where = f"listens on port {os.environ['MASTER_PORT']} of all interfaces for the other machines"
            terminal.notice(f"{where}, without encryption or passwords: the network must be a trusted one")
        deepspeed.init_distributed(verbose=False)


def _meet(url: str, *, timeout: timedelta, **options: Any) -> Iterator[tuple[dist.Store, int, int]]:
    """Yield (store, rank, ranks), as torch wants it of a rendezvous handler. Rank 0 holds the store, and listens on
    the loopback interface alone: the store of torch's own handlers listens on all interfaces.
    """
    rank, ranks, port = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "MASTER_PORT"))
    launched = ranks > 1 and _ranks_here() is not None
    listener = None
    if rank == 0:
        try:
            is_free = launched or ranks == 1  # nobody looks for rank 0 at the port that the launcher gives
            listener = socket.create_server((LOOPBACK, 0 if is_free else port), backlog=1024)
        except OSError as error:
            raise dist.DistNetworkError(str(error)) from None
        port = listener.getsockname()[1]
    if launched:
        port = _tell_port(port, rank, ranks, timeout)
    os.environ.update(MASTER_ADDR=LOOPBACK, MASTER_PORT=str(port))
    number = listener.detach() if listener else None
    yield dist.TCPStore(LOOPBACK, port, ranks, rank == 0, timeout, master_listen_fd=number), rank, ranks


def _tell_port(port: int, rank: int, ranks: int, timeout: timedelta) -> int:
    """Return rank 0's port on every rank, by a file that is named for their launcher: two trainings at once have two
    launchers, though one MASTER_PORT. The last rank to have read the file deletes it.
    """
    launcher = psutil.Process(os.getppid())
    since = launcher.create_time() - psutil.boot_time()  # the same to all ranks even while the clock is being set
    file = dist.FileStore(str(_private_folder() / f"{launcher.pid}-{since:.2f}"), ranks)
    file.set_timeout(timeout)
    if rank == 0:
        file.set("port", str(port))
    return int(file.get("port"))


def _private_folder() -> Path:
    """Return a folder for temporary files that no other user of this machine can write to; make it if need be.

    Raises:
        PermissionError: somebody else made it, or may write to it.
    """
    folder = Path(tempfile.gettempdir(), f"clearspan-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o022 or not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder}: other users can write to it, where ranks meet: delete it, or set TMPDIR")
    return folder
