"""Runs a function, or a training command, on several ranks, each a process of its own."""

import multiprocessing.context
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from tests.conftest import ROOT


def _rank(rank: int, ranks: int, function: Callable[[int, int], Any], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", f"file://{folder}/group", rank=rank, world_size=ranks)
    torch.save(function(rank, ranks), Path(folder) / f"{rank}.pt")
    dist.barrier()
    os._exit(0)  # gloo's threads now and then abort an interpreter that shuts down


def run_on_ranks(function: Callable[[int, int], Any], ranks: int) -> list[Any]:
    """What `function(rank, ranks)` returns on each rank; tensors and plain values only."""
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(_rank, (ranks, function, folder), nprocs=ranks, start_method=_forking().get_start_method())
        return [torch.load(Path(folder) / f"{rank}.pt", weights_only=True) for rank in range(ranks)]


def environment(at: int = 0) -> dict[str, str]:
    """One thread a rank, this interpreter's commands first, and the step at which `terminated_at.py` is signalled."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, "TERMINATED_AT": str(at)}


def launch(ranks: int, script: str, *arguments: str, port: int, at: int = 0) -> subprocess.CompletedProcess:
    """The command of the README, on CPU ranks."""
    command = ["deepspeed", "--num_accelerators", str(ranks), "--master_port", str(port), script, *arguments, "--quiet"]
    return subprocess.run(command, cwd=ROOT, env=environment(at), capture_output=True, text=True, timeout=400)


def train_alone(
    *arguments: str, script: str = "train/run.py", at: int = 8, recipe: str = "demo"
) -> subprocess.CompletedProcess:
    """`python train/run.py`, without the launcher: one rank.

    In a process of its own; scripts that look at imports themselves get a fresh interpreter.
    """
    command = [script, "--recipe", recipe, *arguments, "--quiet"]
    if script == "tests/train/signalled_at.py":
        fresh = [sys.executable, *command]
        return subprocess.run(fresh, cwd=ROOT, env=environment(at), capture_output=True, text=True, timeout=400)
    return _run_scripts(command, [environment(at)])


def train_on_ranks(
    ranks: int, *arguments: str, script: str = "train/run.py", at: int = 8, recipe: str = "demo", port: int
) -> subprocess.CompletedProcess:
    """What the launcher starts, without it: so many ranks that meet at a port."""
    command = [script, "--recipe", recipe, *arguments, "--quiet"]
    meeting = {**environment(at), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return _run_scripts(command, [{**meeting, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)])


def _run_scripts(command: list[str], environments: list[dict[str, str]]) -> subprocess.CompletedProcess:
    """`python COMMAND` in each of these environments, side by side; what they print, and the largest exit code."""
    with tempfile.TemporaryDirectory() as folder:
        outputs = Path(folder) / "stdout", Path(folder) / "stderr"
        processes = [_forking().Process(target=_run_script, args=(command, one, *outputs)) for one in environments]
        for process in processes:
            process.start()
        for process in processes:
            process.join(400)
        codes = [process.exitcode for process in processes]
        assert None not in codes, f"{command} has not ended"
        failed = next((code for code in codes if code), 0)
        return subprocess.CompletedProcess(command, failed, *(path.read_text() for path in outputs))


def _forking() -> multiprocessing.context.ForkServerContext:
    """Starts processes as forks of one that has imported torch and its kin: nine seconds less than a fresh one."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.train.preloaded"])
    return context


def _run_script(command: list[str], variables: dict[str, str], stdout: Path, stderr: Path) -> None:
    """What `python COMMAND` does, in this process."""
    for number, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(ROOT)
    sys.argv = command
    sys.path.insert(0, str(ROOT / Path(command[0]).parent))
    runpy.run_path(command[0], run_name="__main__")
