"""Runs a function, or a training command, on several ranks, each a process of its own."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests import processes
from tests.conftest import ROOT
from tests.processes import forking, run_commands


def _rank(rank: int, ranks: int, function: Callable[[int, int], Any], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=ranks)
    torch.save(function(rank, ranks), Path(folder) / f"{rank}.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads now and then abort an interpreter that shuts down


def run_on_ranks(function: Callable[[int, int], Any], ranks: int) -> list[Any]:
    """What `function(rank, ranks)` returns on each rank; tensors and plain values only."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_rank, (ranks, function, folder), nprocs=ranks, start_method=forking().get_start_method())
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(ranks)]


def checked(done: subprocess.CompletedProcess, code: int) -> subprocess.CompletedProcess:
    """The same; a run that fails does so in a line, without a traceback."""
    assert done.returncode == code and (not code or "Traceback" not in done.stderr), done.stderr
    return done


def environment(at: int = 0) -> dict[str, str]:
    """Of a training, and the step at which `terminated_at.py` is signalled."""
    return processes.environment(TERMINATED_AT=str(at))


def launch(ranks: int, script: str, *arguments: str, at: int = 0) -> subprocess.CompletedProcess:
    """The command of the README, on CPU ranks."""
    command = ["deepspeed", "--num_accelerators", str(ranks), script, *arguments, "--quiet"]
    return subprocess.run(command, cwd=ROOT, env=environment(at), capture_output=True, text=True, timeout=400)


def train_alone(
    *arguments: str, script: str = "train/run.py", at: int = 8, recipe: str = "demo", quiet: bool = True, code: int = 0
) -> subprocess.CompletedProcess:
    """`python train/run.py`, without the launcher: one rank, which ends with this exit code.

    In a process of its own; scripts that look at imports themselves get a fresh interpreter.
    """
    command = [script, "--recipe", recipe, *arguments, *(["--quiet"] * quiet)]
    if script == "tests/train/signalled_at.py":
        fresh = [sys.executable, *command]
        done = subprocess.run(fresh, cwd=ROOT, env=environment(at), capture_output=True, text=True, timeout=400)
        return checked(done, code)
    return checked(run_commands(command, [environment(at)]), code)


def train_on_ranks(
    ranks: int,
    *arguments: str,
    script: str = "train/run.py",
    at: int = 8,
    recipe: str = "demo",
    port: int,
    code: int = 0,
) -> subprocess.CompletedProcess:
    """What the launcher starts, without it: so many ranks that meet at a port."""
    command = [script, "--recipe", recipe, *arguments, "--quiet"]
    meeting = {**environment(at), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    places = [{**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    return checked(run_commands(command, places), code)
