"""Train as one rank on the host whose network namespace NAMESPACE names: `train/run.py`, with sockets of that host.

SCRIPT names another script to run in its place. With OWN_FOLDER, the working folder is the host's own.
With UNREACHED, this rank reaches no port of another rank but that of rank 0's store, as behind a firewall of one way.
JOIN_S, SILENCE_S, BEAT_S and SHARED_S replace times of `train.engine.machines` and `train.job`.
`tests.processes.run_commands` forks this from a process that has imported torch already, as `ip netns exec` could not.
"""

import ctypes
import os
import runpy
import socket
from typing import Any, NoReturn

from clearspan.train import job
from clearspan.train.engine import machines
from tests.conftest import ROOT

CLONE_NEWUTS, CLONE_NEWNET = 0x04000000, 0x40000000


def enter(namespace: str) -> None:
    """Move this process to the network namespace of a host, and give it the host's name; root only."""
    libc = ctypes.CDLL(None, use_errno=True)
    for done in (
        libc.setns(os.open(f"/run/netns/{namespace}", os.O_RDONLY), CLONE_NEWNET),
        libc.unshare(CLONE_NEWUTS),
    ):
        if done:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    socket.sethostname(namespace.rpartition("-")[2])


def unreached(*_: Any) -> NoReturn:
    raise TimeoutError("timed out")


if __name__ == "__main__":
    for module, name in ((machines, "JOIN_S"), (machines, "SILENCE_S"), (machines, "BEAT_S"), (job, "SHARED_S")):
        if name in os.environ:
            setattr(module, name, float(os.environ[name]))
    if os.environ.get("UNREACHED") == os.environ["RANK"]:
        socket.create_connection = unreached
    enter(os.environ["NAMESPACE"])
    script = ROOT / os.environ.get("SCRIPT", "train/run.py")
    if "OWN_FOLDER" in os.environ:
        os.chdir(os.environ["TMPDIR"])
    runpy.run_path(str(script), run_name="__main__")
