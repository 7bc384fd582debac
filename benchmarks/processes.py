"""Whole commands beside each other: this project's pipelines, and peers that run as processes of the same benchmark.

    main -> measure -> pipeline(...), contender(...) -> Process: seconds, processor seconds, memory

A contender is a function that returns its seconds. It runs in a process of its own, as `--contender NAME ...`, so that
its memory and its imports are its own; its time starts after its imports.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil

from benchmarks.report import publish

NUM_PROCESSES = 2
MEMORY = {"first MB": ("first_process_mb", ",.0f"), "worker MB": ("other_process_mb", ",.0f")}
"""Columns of a table of `Process.memory`."""
NONE: Mapping[str, str] = MappingProxyType({})


class Process:
    """A command, run to its end.

    Args:
        variables: environment variables to set for it.

    Attributes:
        output: its standard output.
        seconds: elapsed. cpu_seconds: processor time of all its processes.
        first_bytes: the peak resident size of its first process. other_bytes: of any other of its processes.
    """

    def __init__(self, *command: str, variables: Mapping[str, str] = NONE) -> None:
        start = time.perf_counter()
        environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        environment |= variables
        with tempfile.TemporaryFile("w+") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
            self.first_bytes = self.other_bytes = 0
            self._cpu: dict[int, float] = {}
            self._ended = threading.Event()
            watcher = threading.Thread(target=self._watch, args=(psutil.Process(process.pid),))
            watcher.start()
            self.output, _ = process.communicate()
            self.seconds = time.perf_counter() - start
            self._ended.set()
            watcher.join()
            self.cpu_seconds = sum(self._cpu.values())
            if process.returncode:
                errors.seek(0)
                raise SystemExit(f"benchmark: {' '.join(command[:4])} ... failed:\n{errors.read()[-3000:]}")

    def _watch(self, first: psutil.Process) -> None:
        while not self._ended.wait(0.1):
            with contextlib.suppress(psutil.Error):
                self.first_bytes = max(self.first_bytes, self._sample(first))
                self.other_bytes = max(0, self.other_bytes, *map(self._sample, first.children(recursive=True)))

    def _sample(self, process: psutil.Process) -> int:
        times = process.cpu_times()
        self._cpu[process.pid] = times.user + times.system
        return int(process.memory_info().rss)

    def memory(self) -> dict[str, float]:
        """Return the peaks of memory for a result's row."""
        return {"first_process_mb": round(self.first_bytes / 1e6), "other_process_mb": round(self.other_bytes / 1e6)}


def pipeline(
    kind: str,
    inputs: list[Path],
    output: Path,
    *options: str,
    workers: int | None = NUM_PROCESSES,
    variables: Mapping[str, str] = NONE,
) -> tuple[Process, dict[str, Any]]:
    """Run this project's command into a new folder; return (process, the summary that it prints).

    Args:
        workers: its processes; None: the command's own choice.
        variables: as for `Process`.
    """
    shutil.rmtree(output, ignore_errors=True)
    words = ["--input", *map(str, inputs), "--output", str(output), "--json", "--quiet"]
    if workers is not None:
        words += ["--workers", str(workers)]
    process = Process(sys.executable, "-m", "pipelines", kind, *words, *options, variables=variables)
    return process, json.loads(process.output)


def contender(
    module: str, name: str, output: Path, *words: str | Path, variables: Mapping[str, str] = NONE
) -> tuple[Process, float]:
    """Run a contender into a new folder; return (process, its seconds)."""
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir(parents=True)
    command = [sys.executable, "-m", f"benchmarks.{module}", "--contender", name, str(output), *map(str, words)]
    process = Process(*command, variables=variables)
    return process, float(process.output.split()[-1])


def progress(start: float, text: str) -> None:
    """Print a line of progress with the seconds since `start`."""
    print(f"[{time.perf_counter() - start:5.0f} s] {text}", file=sys.stderr, flush=True)


def main(
    parser: argparse.ArgumentParser,
    contenders: Mapping[str, Callable[..., float]],
    measure: Callable[[argparse.Namespace, Path], dict[str, Any]],
    table: Callable[[dict[str, Any]], str],
    required: tuple[str, ...],
) -> None:
    """Run the benchmark in a temporary folder, or in a process of its own one of its contenders.

    Args:
        required: the options that a benchmark needs, but a contender does not.
    """
    parser.add_argument("--work", type=Path, metavar="DIR", help="parent of the working folder (default: temporary)")
    parser.add_argument("--contender", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contender:
        name, output, *words = arguments.contender
        print(contenders[name](Path(output), *words))
        return
    if missing := [f"--{name}" for name in required if getattr(arguments, name) is None]:
        parser.error(f"the following arguments are required: {', '.join(missing)}")
    with tempfile.TemporaryDirectory(dir=arguments.work) as work:
        result = measure(arguments, Path(work))
    publish(result, table, arguments.output)
