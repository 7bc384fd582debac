"""What ends a run before its last step: Ctrl-C, SIGTERM, the time that it has, a launcher that died.

Where there is nothing to save yet, a signal is one line and exit code 1, whatever is being imported or read. The
training loop (`train.engine.loop`) saves first. deepspeed's launcher would kill ranks that take long to save, and end
with 1 whatever they say: so `python -m train` keeps signals from it and hands them to the ranks itself.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType

SIGNALS = {signal.SIGINT, signal.SIGTERM}


@contextlib.contextmanager
def ending_at_once(name: str, mend: str) -> Iterator[None]:
    """Within, those signals end the process; rank 0 says so. An exception instead could be caught on its way out."""

    def end(number: int, frame: FrameType | None) -> None:
        if os.environ.get("RANK", "0") == "0":
            os.write(2, f"\n{name}: stopped by {signal.Signals(number).name}: {mend}\n".encode())
        os._exit(1)

    handlers = {number: signal.signal(number, end) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # which who started this process keeps from the launcher
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def hand_signals_to_ranks(name: str, mend: str) -> None:
    """From here on signals wait, for this process and for the launcher that it will start; a thread of its own hands
    them to the launcher's children, the ranks, which take them up. Without ranks yet, it ends all at once.
    """
    import psutil

    def hand_on() -> None:
        while True:
            number = signal.sigwait(SIGNALS)
            launchers = psutil.Process().children()
            ranks = [rank for launcher in launchers for rank in launcher.children()]
            for process in ranks or launchers:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.send_signal(number if ranks else signal.SIGKILL)
            if not ranks:
                os.write(2, f"\n{name}: stopped by {signal.Signals(number).name}: {mend}\n".encode())
                os._exit(1)

    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    threading.Thread(target=hand_on, daemon=True, name="signals").start()


def deadline(max_hours: float) -> Callable[[], bool]:
    """A function that says whether this process began so many hours ago or more; 0: never.

    Its beginning is what a batch system's limit counts from, or nearly: starting up is part of the time.
    """
    import psutil

    begun = psutil.Process().create_time()
    return lambda: bool(max_hours) and time.time() - begun >= 3600 * max_hours


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
