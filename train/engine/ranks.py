"""Coordination of ranks: work that rank 0 does for all, exchange of values, and the process group.

When rank 0 fails, every other rank raises an error too, so that no rank waits for a rank that has ended.
"""

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
from torch.distributed import FileStore, TCPStore  # type: ignore[attr-defined, unused-ignore]  # no stubs export them
from torch.distributed.rendezvous import register_rendezvous_handler

from clearspan.common import terminal
from clearspan.train.collectives import ranks_here, world

Result = TypeVar("Result")
LOOPBACK = "127.0.0.1"


class ReportedElsewhereError(Exception):
    """Rank 0 has failed, and reports its error. This error ends the other ranks, which report nothing.

    Args:
        kind: the type of rank 0's error.
    """

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__(kind)
        self.kind = kind


def agreed(work: Callable[[], Result]) -> Result:
    """Do `work` on rank 0 and return its result on every rank.

    Raises:
        ReportedElsewhereError: on the other ranks, if `work` raised an error; rank 0 raises the error itself.
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
        raise ReportedElsewhereError(outcome[1])
    result: Result = outcome[0]
    return result


def gathered(value: Result) -> list[Result]:
    """Return a list of the values that all ranks passed, in rank order, on every rank."""
    ranks = world()[1]
    values: list[Any] = [value] * ranks
    if ranks > 1:
        dist.all_gather_object(values, value)
    return values


def name_accelerator() -> None:
    """Tell DeepSpeed to use the CPU if torch finds no accelerator; otherwise it would print a warning in every process.

    Call this before DeepSpeed is imported. Child processes inherit the setting.
    """
    if not torch.accelerator.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def one_machine() -> bool:
    """Return whether all ranks run on this machine."""
    return ranks_here() == int(os.environ["WORLD_SIZE"]) or os.environ["MASTER_ADDR"] in (LOOPBACK, "localhost")


def join_ranks() -> None:
    """Join the launcher's process group, or without a launcher a group of one. A second call does nothing.

    On one machine, only processes of that machine can reach the group. On several machines, rank 0 prints the port
    that it listens on.

    Raises:
        DistNetworkError: the ranks cannot reach each other, or the port is taken.
    """
    if dist.is_initialized():
        return
    if "RANK" not in os.environ:
        os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1", MASTER_ADDR=LOOPBACK, MASTER_PORT="0")
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))  # before the ranks communicate
    import deepspeed

    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if one_machine():
        interfaces = psutil.net_if_addrs().items()
        name = next((name for name, entries in interfaces if any(e.address == LOOPBACK for e in entries)), "lo")
        os.environ.update(GLOO_SOCKET_IFNAME=name, NCCL_SOCKET_IFNAME=f"={name}")
        register_rendezvous_handler("loopback", _meet)  # type: ignore[no-untyped-call, unused-ignore]
        deepspeed.init_distributed(verbose=False, init_method="loopback://", rank=rank, world_size=ranks)
    else:
        if rank == 0:
            port = f"listening on port {os.environ['MASTER_PORT']} of all interfaces for the other machines"
            terminal.notice(f"{port}, without encryption or passwords: use a trusted network only")
        deepspeed.init_distributed(verbose=False)


def _meet(url: str, *, timeout: timedelta, **options: Any) -> Iterator[tuple[TCPStore, int, int]]:
    """Yield (store, rank, number of ranks): a rendezvous handler of torch, for the ranks of one machine.

    Rank 0 owns the store and listens on the loopback interface only; torch's own handlers listen on all interfaces.

    Args:
        url, options: ignored; torch passes them.
        timeout: the timeout of the store.
    """
    rank, ranks, port = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), _chosen_port()
    shared = ranks > 1 and not port
    listener = None
    if rank == 0:
        try:
            listener = socket.create_server((LOOPBACK, port), backlog=1024)
        except OSError as error:
            raise dist.DistNetworkError(str(error)) from None
        port = listener.getsockname()[1]
    if shared:
        port = _share_port(port, rank, ranks, timeout)
    os.environ.update(MASTER_ADDR=LOOPBACK, MASTER_PORT=str(port))
    number = listener.detach() if listener else None
    yield TCPStore(LOOPBACK, port, ranks, rank == 0, timeout, master_listen_fd=number), rank, ranks


def _chosen_port() -> int:
    """Return the port that the user chose for the ranks of one machine (MASTER_PORT); 0 if the user chose none.

    deepspeed's default port, and the port of torchrun, on which torchrun listens itself, are not the user's choice.
    """
    from deepspeed.constants import TORCH_DISTRIBUTED_DEFAULT_PORT

    port = int(os.environ["MASTER_PORT"])
    if "LOCAL_SIZE" in os.environ:
        return 0 if port == TORCH_DISTRIBUTED_DEFAULT_PORT else port
    return port if ranks_here() is None and os.environ["WORLD_SIZE"] != "1" else 0


def _share_port(port: int, rank: int, ranks: int, timeout: timedelta) -> int:
    """Return rank 0's port on every rank. The ranks exchange it through a file named after their launcher.

    Trainings that run at the same time have different launchers, and therefore different files. The last rank that
    reads the file deletes it.

    Args:
        port: the port to share; used on rank 0 only.
    """
    launcher = psutil.Process(os.getppid())
    since = launcher.create_time() - psutil.boot_time()  # the same on all ranks, even while the clock is set
    file = FileStore(str(_private_folder() / f"{launcher.pid}-{since:.2f}"), ranks)
    file.set_timeout(timeout)
    if rank == 0:
        file.set("port", str(port))
    return int(file.get("port"))


def _private_folder() -> Path:
    """Return a folder for temporary files; raise PermissionError if another user owns it or can write to it."""
    folder = Path(tempfile.gettempdir(), f"clearspan-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022 or not stat.S_ISDIR(status.st_mode):
        raise PermissionError(
            f"{folder}: ranks find each other here, but other users can write to it: delete it, or set TMPDIR"
        )
    return folder
