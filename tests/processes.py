"""Run commands of this repository in processes forked from one that has already imported the slow packages.

Tests of imports, of the interpreter's exit or of signals to it start `sys.executable` instead.
"""

import multiprocessing.context
import os
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.conftest import ROOT


def environment(**more: str) -> dict[str, str]:
    """Return environment variables: one thread, this interpreter's commands first on PATH, and `more`."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "OMP_NUM_THREADS": "1", "PATH": path, **more}


def run_module(
    module: str,
    *words: str | Path,
    variables: Mapping[str, str] | None = None,
    text: str = "",
    stdout: Path | None = None,
) -> subprocess.CompletedProcess:
    """Run `python -m MODULE WORDS`.

    Args:
        variables: further environment variables.
        text: standard input.
        stdout: file for standard output; None: return it.
    """
    return run_commands(["-m", module, *map(str, words)], [environment(**variables or {})], text, stdout)


def run_commands(
    command: list[str],
    environments: list[dict[str, str]],
    text: str = "",
    stdout: Path | None = None,
    folder: Path = ROOT,
) -> subprocess.CompletedProcess:
    """Run `python COMMAND` in each of these environments at the same time.

    Returns:
        Their joint output, and the first exit code that is not 0, if there is one.
    """
    with tempfile.TemporaryDirectory() as place:
        (stdin := Path(place) / "stdin").write_text(text)
        outputs = stdout or Path(place) / "stdout", Path(place) / "stderr"
        shared = folder, stdin, *outputs
        processes = [forking().Process(target=_run, args=(command, variables, *shared)) for variables in environments]
        for process in processes:
            process.start()
        for process in processes:
            process.join(400)
        codes = [process.exitcode for process in processes]
        assert None not in codes, f"{command} has not ended"
        failed = next((code for code in codes if code), 0)
        printed = "" if stdout else outputs[0].read_text()
        return subprocess.CompletedProcess(command, failed, printed, outputs[1].read_text())


def forking() -> multiprocessing.context.ForkServerContext:
    """Return a context that forks processes from one with all imports done, which saves nine seconds per process."""
    os.environ["OMP_NUM_THREADS"] = "1"  # as `environment` says; the forked processes have it from their server
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.preloaded"])
    return context


def _run(command: list[str], variables: dict[str, str], folder: Path, stdin: Path, stdout: Path, stderr: Path) -> None:
    """Do in this process what `python COMMAND` would do in a folder."""
    os.dup2(os.open(stdin, os.O_RDONLY), 0)
    for number, path in ((1, stdout), (2, stderr)):
        os.dup2(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND), number)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    sys.stdin = open(0, closefd=False)
    if encoding := variables.get("PYTHONIOENCODING"):
        sys.stdout.reconfigure(encoding=encoding)  # type: ignore[union-attr]
        sys.stderr.reconfigure(encoding=encoding)  # type: ignore[union-attr]
    if command[0] in ("-m", "-c"):
        sys.path.insert(0, str(folder))
    if command[0] == "-m":
        sys.argv = command[1:]
        runpy.run_module(command[1], run_name="__main__", alter_sys=True)
    elif command[0] == "-c":
        sys.argv = ["-c", *command[2:]]
        exec(compile(command[1], "<string>", "exec"), {"__name__": "__main__"})
    else:
        sys.argv = command
        sys.path.insert(0, str(ROOT / Path(command[0]).parent))
        runpy.run_path(command[0], run_name="__main__")
