"""Train as one rank on the host whose network namespace NAMESPACE names: `train/run.py`, with sockets of that host.

SCRIPT names another script to run in its place.
The environment variables JOIN_S, SILENCE_S and BEAT_S replace the times of `train.engine.machines`.
`tests.processes.run_commands` forks this from a process that has imported torch already, as `ip netns exec` could not.
"""

import ctypes
import os
import runpy
import socket

from clearspan.train.engine import machines

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


if __name__ == "__main__":
    for name in ("JOIN_S", "SILENCE_S", "BEAT_S"):
        if name in os.environ:
            setattr(machines, name, float(os.environ[name]))
    enter(os.environ["NAMESPACE"])
    runpy.run_path(os.environ.get("SCRIPT", "train/run.py"), run_name="__main__")
