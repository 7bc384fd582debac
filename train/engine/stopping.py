"""Ctrl-C and SIGTERM where there is nothing to save yet: one line and exit code 1, whatever is being imported or read.

The training loop has its own way (`train.engine.loop`): it saves first.
"""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType


@contextlib.contextmanager
def ending_at_once(name: str, mend: str) -> Iterator[None]:
    """Within, those signals end the process; rank 0 says so. An exception instead could be caught on its way out."""

    def end(number: int, frame: FrameType | None) -> None:
        if os.environ.get("RANK", "0") == "0":
            os.write(2, f"\n{name}: stopped by {signal.Signals(number).name}: {mend}\n".encode())
        os._exit(1)

    handlers = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
