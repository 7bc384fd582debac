"""Runs of pytest on copies of the checkout, each in a process forked from one that has imported the slow packages.

Cosmic Ray starts an interpreter for each mutant, which takes longer than most of the tests.
"""

import contextlib
import importlib
import multiprocessing
import multiprocessing.connection
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.context import ForkProcess
from pathlib import Path

import pytest

from tests.guarantees import ROOT

SLOW_PACKAGES = (
    *("torch", "apache_beam", "transformers", "sentence_transformers", "pyarrow.parquet", "deepspeed", "hypothesis"),
    *("webdataset", "scipy.stats", "sklearn.linear_model", "sentencex", "torch.utils.tensorboard", "pytest"),
)
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".mutants", "__pycache__", ".mypy_cache", ".hypothesis", "demo", "build"
)
TIMED_OUT = -1


@dataclass
class Run:
    """Tests to run on a copy.

    Attributes:
        arguments: what to run, for pytest.
        changed: file of the copy to its content.
        limit_s: seconds after which the run is ended.
    """

    arguments: Sequence[str]
    changed: dict[str, str]
    limit_s: float
    output: Path | None = None


@dataclass
class _Running:
    process: ForkProcess
    ends: float
    unchanged: dict[str, str]
    done: Callable[[int, float], None]
    started: float


class Copies:
    """Copies of the checkout, as many as there are runs at a time."""

    def __init__(self, folder: Path, number: int) -> None:
        for package in SLOW_PACKAGES:
            importlib.import_module(package)
        self._free = [folder / str(index) for index in range(number)]
        self._running: dict[Path, _Running] = {}
        self._stamp = int(time.time()) - 10**8  # an own time for each content, by which Python knows it from others
        for copy in self._free:
            shutil.copytree(ROOT, copy / "checkout", symlinks=True, ignore=LEFT_OUT)

    def run(self, run: Run, done: Callable[[int, float], None]) -> None:
        """Start a run as soon as a copy is free; `done` gets pytest's exit code (or TIMED_OUT) and the seconds."""
        while not self._free:
            self._collect()
        copy = self._free.pop()
        unchanged = {}
        for path, content in run.changed.items():
            unchanged[path] = (copy / "checkout" / path).read_text(encoding="utf-8")
            self._write(copy / "checkout" / path, content)
        process = multiprocessing.get_context("fork").Process(target=_test, args=(copy, run.arguments, run.output))
        process.start()
        now = time.monotonic()
        self._running[copy] = _Running(process, now + run.limit_s, unchanged, done, now)

    def finish(self) -> None:
        """Wait for all runs."""
        while self._running:
            self._collect()

    def _collect(self) -> None:
        soonest = min(each.ends for each in self._running.values()) - time.monotonic()
        sentinels = [each.process.sentinel for each in self._running.values()]
        multiprocessing.connection.wait(sentinels, max(soonest, 0))
        for copy, running in list(self._running.items()):
            late = time.monotonic() > running.ends
            if running.process.is_alive() and not late:
                continue
            code = TIMED_OUT if running.process.is_alive() else running.process.exitcode
            with contextlib.suppress(ProcessLookupError):  # also what its tests left running
                os.killpg(running.process.pid, signal.SIGKILL)
            running.process.join()
            for path, content in running.unchanged.items():
                self._write(copy / "checkout" / path, content)
            del self._running[copy]
            self._free.append(copy)
            running.done(code, time.monotonic() - running.started)

    def _write(self, path: Path, content: str) -> None:
        path.write_text(content, encoding="utf-8")
        self._stamp += 2
        os.utime(path, (self._stamp, self._stamp))


def _test(copy: Path, arguments: Sequence[str], output: Path | None) -> None:
    """Run pytest in this forked process, and leave with its exit code."""
    os.setsid()
    checkout = copy / "checkout"
    os.chdir(checkout)
    log = os.open(output or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    sys.path[:] = [str(checkout), *(entry for entry in sys.path if entry not in ("", str(ROOT)))]
    os.environ["PYTHONPATH"] = str(checkout)
    for name in [name for name in sys.modules if name.split(".")[0] in ("tests", "clearspan")]:
        del sys.modules[name]
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    options = ["--rootdir", str(checkout), "--basetemp", str(copy / "tmp")]
    os._exit(int(pytest.main([*options, *arguments])))


@contextlib.contextmanager
def copies(folder: Path, number: int) -> Iterator[Copies]:
    """Give copies, and remove them."""
    try:
        yield Copies(folder, number)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
