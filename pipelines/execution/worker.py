"""Beam worker process on this machine. `pipelines.execution.runners` starts it with the parent's process id.

The worker tokenizes and computes in one thread, writes no log, and exits when the parent process exits, so that a
killed run leaves no processes behind.
"""

import logging
import os
import signal
import sys
import threading
import time
from pathlib import Path

POLL_S = 0.5
THREADS = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")
"""Environment variables that limit the threads of tokenizers and numpy. With two threads, a process would take twice
the CPU time for log-mel spectrograms."""


def end_with(parent: int) -> None:
    """Wait until the parent process has ended; then exit.

    Args:
        parent: the id of the parent process.
    """
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)


def main() -> None:
    """Run Beam's worker until its parent ends."""
    threading.Thread(target=end_with, args=(int(sys.argv[1]),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group: the parent handles it
    os.environ.update({"TOKENIZERS_PARALLELISM": "false", **dict.fromkeys(THREADS, "1")})
    logging.disable(logging.CRITICAL)
    from apache_beam.runners.worker import sdk_worker_main

    sys.stderr = Path(os.devnull).open("w")  # Beam prints there what it also reports to the parent
    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
