"""`python -m pipelines.execution.worker PARENT`: a Beam worker process on this machine, which
`pipelines.execution.runners` starts.

One thread of tokenization and of algebra per process; no log; and an end with its parent, so that a killed run leaves
none behind.
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
"""Of tokenizers' libraries and of numpy's: two threads a process spend twice the processor's time on log-mel frames."""


def end_with(parent: int) -> None:
    """Ends this process when its parent has gone."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    os._exit(1)


def main() -> None:
    threading.Thread(target=end_with, args=(int(sys.argv[1]),), daemon=True).start()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group: the parent decides
    os.environ.update({"TOKENIZERS_PARALLELISM": "false", **dict.fromkeys(THREADS, "1")})
    logging.disable(logging.CRITICAL)
    from apache_beam.runners.worker import sdk_worker_main

    sys.stderr = Path(os.devnull).open("w")  # Beam prints there what it also sends to the parent
    sdk_worker_main.main(sys.argv)


if __name__ == "__main__":
    main()
