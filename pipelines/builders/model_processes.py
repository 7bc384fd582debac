"""Processes that hold the model for the workers of a run on this machine, one process per GPU.

    driver -> one process per GPU, each with a Unix socket -> an equal number of workers at each socket

    python -m clearspan.pipelines.builders.model_processes PARENT SOCKET    starts such a process, with options on stdin

The sockets are in a private folder; workers read its path from an environment variable (`common.encoder.shared_model`).
The processes exit when the driver exits or is killed.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from clearspan.common.encoder.shared_model import SharedModel
from clearspan.common.errors import PipelineError
from clearspan.common.model_folder import EncoderError
from clearspan.common.terminal import one_line

FOLDER = "CLEARSPAN_MODEL_SOCKETS"
"""Name of the environment variable that holds the folder of the sockets for all processes of a run."""
SOCKET = ".socket"
POLL_S = 0.5


@contextlib.contextmanager
def holding(devices: list[str], options: dict[str, Any]) -> Iterator[None]:
    """Context manager that loads a model in one process per device, for the worker processes that start within the
    context.

    Args:
        devices: the devices, such as "cuda:0".
        options: the arguments of `common.encoder.checked_model.load_model` except the device.

    Raises:
        PipelineError: the model cannot be loaded.
    """
    with tempfile.TemporaryDirectory(prefix="clearspan-", ignore_cleanup_errors=True) as folder:
        processes = [_started(Path(folder, f"{at}{SOCKET}"), options | {"device": d}) for at, d in enumerate(devices)]
        try:
            for process, device in zip(processes, devices, strict=True):
                _wait(process, device)
            os.environ[FOLDER] = folder
            yield
        finally:
            os.environ.pop(FOLDER, None)
            for process in processes:
                process.kill()
                process.wait()


def connected() -> SharedModel | None:
    """Return a connection to the model that a separate process holds for this worker; None if there is no such process.

    Raises:
        PipelineError: the process has ended, or cannot be reached.
    """
    if FOLDER not in os.environ:
        return None
    folder = Path(os.environ[FOLDER])
    try:
        number = _worker_number(folder)
        sockets = sorted(folder.glob(f"*{SOCKET}"))
        if not sockets:
            raise FileNotFoundError("its socket is gone")
        return SharedModel(str(sockets[number % len(sockets)]))  # the workers are divided equally among the sockets
    except (OSError, EncoderError) as error:
        raise PipelineError(f"the model's process has ended ({one_line(error)}): run again") from None


def _worker_number(folder: Path) -> int:
    """Return the lowest number, from 0, that no other worker of the run has, and reserve it by a file in `folder`."""
    for number in itertools.count():
        with contextlib.suppress(FileExistsError):
            (folder / f"worker-{number}").touch(exist_ok=False)
            return number
    raise AssertionError


def _started(socket: Path, options: dict[str, Any]) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", __name__, str(os.getpid()), str(socket)]
    process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None
    with contextlib.suppress(BrokenPipeError), process.stdin:  # the process may have ended already
        process.stdin.write(json.dumps(options))
    return process


def _wait(process: "subprocess.Popen[str]", device: str) -> None:
    """Wait until a process has loaded the model.

    Args:
        process: the process.
        device: its device, for the error message.

    Raises:
        PipelineError: the process has ended, or reports an error.
    """
    assert process.stdout is not None
    told = process.stdout.readline()
    if not told:
        raise PipelineError(f"the process that loads the model on {device} ended with exit code {process.wait()}")
    if problem := json.loads(told).get("error"):
        raise PipelineError(problem)


def _end_with(parent: int, folder: Path) -> None:
    """Wait until the parent process has ended; then remove the folder of the sockets and exit.

    Args:
        parent: the id of the parent process.
        folder: the folder of the sockets.
    """
    while os.getppid() == parent:
        time.sleep(POLL_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


def main() -> None:
    """Load a model and serve it until the parent process ends. One line on stdout says that the model is loaded, or why
    it cannot be loaded.
    """
    parent = int(sys.argv[1])
    socket = Path(sys.argv[2])
    threading.Thread(target=_end_with, args=(parent, socket.parent), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group: the parent handles it
    with os.fdopen(os.dup(1), "w") as told:
        os.dup2(2, 1)  # what libraries print goes to stderr
        from multiprocessing.connection import Listener

        from clearspan.common.encoder.checked_model import load_model

        try:
            model: Any = load_model(**json.load(sys.stdin))
            from clearspan.common.encoder.model_server import ModelServer  # imports torch, which takes seconds

            process = ModelServer(model, Listener(str(socket), "AF_UNIX", backlog=64))
        except (PipelineError, OSError) as error:
            told.write(json.dumps({"error": one_line(error)}) + "\n")
            return
        told.write(json.dumps({"ready": True}) + "\n")
    process.run()


if __name__ == "__main__":
    main()
