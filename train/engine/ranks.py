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

from clearspan.common.terminal import UsageError
from clearspan.train.collectives import ranks_here, world
from clearspan.train.engine import machines

Result = TypeVar("Result")
LOOPBACK = "127.0.0.1"
LAUNCHER = ("WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""Environment variables that a launcher sets for each rank, beside RANK."""
OPEN_MPI = "OMPI_COMM_WORLD_"
"""Beginning of the names of the environment variables that mpirun sets for the processes that it starts."""


class ReportedElsewhereError(Exception):
    """Rank 0 has failed, and reports its error. This error ends the other ranks, which report nothing.

    Args:
        kind: the type of rank 0's error.
    """

    def __init__(self, kind: type[Exception]) -> None:
        super().__init__(kind)
        self.kind = kind


def agreed(work: Callable[[], Result]) -> Result:
    """Call `work` on rank 0 only, and return its result on every rank. Every rank must call this function.

    Raises:
        ReportedElsewhereError: `work` raised an error. Rank 0 raises that error itself, the other ranks raise this one.
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
    """Return, on every rank, a list of the values that the ranks called this function with, in rank order."""
    ranks = world()[1]
    values: list[Any] = [value] * ranks
    if ranks > 1:
        dist.all_gather_object(values, value)
    return values


def name_accelerator() -> None:
    """Set an environment variable that makes DeepSpeed use the CPU, if torch finds no accelerator.

    Without the variable, DeepSpeed would print a warning in every process. Call this function before DeepSpeed is
    imported. Child processes inherit the variable.
    """
    if not torch.accelerator.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")


def check_environment() -> None:
    """Check the environment variables in which a launcher tells this rank its place, and remove what is left over.

    Without RANK, no launcher started this process, which is then a run of its own. A shell that mpirun or another
    launcher started may leave such variables to every process below it; DeepSpeed stops if they contradict each other.

    Raises:
        UsageError: RANK is set, but another variable is missing or wrong; or mpirun itself started this rank.
    """
    if "RANK" in os.environ:
        if missing := [name for name in LAUNCHER if name not in os.environ]:
            raise UsageError(f"RANK is set without {', '.join(missing)}: unset it, or start ranks with a launcher")
        for name in ("RANK", *LAUNCHER):
            if name != "MASTER_ADDR" and not os.environ[name].isdecimal():
                raise UsageError(f"the environment variable {name} is {os.environ[name]!r}, not an integer")
    elif (size := os.environ.get(f"{OPEN_MPI}SIZE", "1")) != "1":
        raise UsageError(
            f"{OPEN_MPI}SIZE is {size}, but mpirun does not tell ranks where to meet: start them with clearspan train, "
            "deepspeed or torchrun; unset the variable if it is left over"
        )
    left_over = () if "RANK" in os.environ else LAUNCHER
    for name in [name for name in os.environ if name in left_over or name.startswith(OPEN_MPI)]:
        del os.environ[name]


def one_machine() -> bool:
    """Return whether all ranks run on this machine, according to the launcher's environment variables.

    They do if the launcher started as many ranks here as in all, or if MASTER_ADDR is 127.0.0.1 or localhost. The
    variables WORLD_SIZE and MASTER_ADDR must be set.
    """
    return ranks_here() == int(os.environ["WORLD_SIZE"]) or os.environ["MASTER_ADDR"] in (LOOPBACK, "localhost")


def join_ranks() -> None:
    """Join the process group of all ranks that the launcher started. If there is no launcher, form a group of one rank.

    A second call does nothing. If all ranks run on one machine, only processes of that machine can connect to the
    group. If they run on several machines, they use the network of MASTER_ADDR only (`train.engine.machines`), and
    rank 0 prints the port that it listens on.

    Raises:
        DistNetworkError: the ranks cannot reach each other, or the port is taken.
        MachineError: the ranks of several machines cannot reach each other, or one of them has not come.
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
        register_rendezvous_handler("machines", machines.meet)  # type: ignore[no-untyped-call, unused-ignore]
        deepspeed.init_distributed(verbose=False, init_method="machines://", rank=rank, world_size=ranks)


def _meet(url: str, *, timeout: timedelta, **options: Any) -> Iterator[tuple[TCPStore, int, int]]:
    """Connect the ranks of one machine; yield (store, rank, number of ranks). torch calls this rendezvous handler.

    Rank 0 serves the store, and listens on the loopback interface only; torch's handlers listen on all interfaces.

    Args:
        url, options: ignored; torch passes them.
        timeout: the maximum time that a rank waits for another.
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
    """Return the port in MASTER_PORT if the user chose it for the ranks of one machine; otherwise 0, for any free port.

    It is not the user's choice if it is deepspeed's default port, or if torchrun started the ranks: torchrun itself
    listens on this port. For a single rank without a launcher, the result is 0 too.
    """
    from deepspeed.constants import TORCH_DISTRIBUTED_DEFAULT_PORT

    port = int(os.environ["MASTER_PORT"])
    if "LOCAL_SIZE" in os.environ:
        return 0 if port == TORCH_DISTRIBUTED_DEFAULT_PORT else port
    return port if ranks_here() is None and os.environ["WORLD_SIZE"] != "1" else 0


def _share_port(port: int, rank: int, ranks: int, timeout: timedelta) -> int:
    """Return, on every rank, the port that rank 0 called this function with. Every rank must call it.

    The ranks of one machine exchange the port through a temporary file, whose name contains the process id of their
    launcher. Runs that train at the same time have different launchers, and therefore different files. The last rank
    that reads the file deletes it.

    Args:
        port: the port to share, on rank 0; ignored on other ranks.
        rank, ranks: the number of this rank, and the number of ranks.
        timeout: the maximum time to wait for rank 0.
    """
    launcher = psutil.Process(os.getppid())
    since = launcher.create_time() - psutil.boot_time()  # the same on all ranks, even while the clock is set
    file = FileStore(str(_private_folder() / f"{launcher.pid}-{since:.2f}"), ranks)
    file.set_timeout(timeout)
    if rank == 0:
        file.set("port", str(port))
    return int(file.get("port"))


def _private_folder() -> Path:
    """Return this user's folder for the temporary files through which ranks find each other; create it if needed.

    Raises:
        PermissionError: another user owns the folder or can write to it.
    """
    folder = Path(tempfile.gettempdir(), f"clearspan-{os.getuid()}")
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022 or not stat.S_ISDIR(status.st_mode):
        raise PermissionError(
            f"{folder}: ranks find each other here, but other users can write to it: delete it, or set TMPDIR"
        )
    return folder
