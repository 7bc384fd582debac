"""Ctrl-C and SIGTERM where there is nothing to save yet: one line and exit code 1, whatever is being imported or read.

The training loop has its own way (`train.engine.loop`): it saves first, and does so too where its launcher has died.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
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


def launcher_watch() -> Callable[[], bool]:
    """A function that says whether the deepspeed launcher that started this rank has died, or the sweep above that.

    Killed, the `deepspeed` command leaves its ranks behind; they are to stop and save. Without that launcher: never.
    """
    import psutil

    parent = psutil.Process().parent()
    if parent is None or not any("deepspeed.launcher" in word for word in parent.cmdline()):
        return lambda: False
    watched = [process for process in (parent, parent.parent()) if process is not None]
    above = watched[-1].parent()
    if above is not None and any(word.endswith(("train.sweep", "clearspan-sweep")) for word in above.cmdline()[:3]):
        watched.append(above)

    def gone() -> bool:
        try:
            return any(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in watched)
        except psutil.NoSuchProcess:
            return True

    return gone
