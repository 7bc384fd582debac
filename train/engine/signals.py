"""Early ends of a run: Ctrl-C, SIGTERM, the run's time limit, the death of its launcher.

While there is nothing to save yet, a signal is one line and exit code 1, whatever is being imported or read. The
training loop (`train.engine.loop`) saves first. deepspeed's launcher would kill ranks that take long to save, and end
with 1 whatever their exit codes: so `python -m train` keeps signals from it, hands them to the ranks, and waits.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

SIGNALS = {signal.SIGINT, signal.SIGTERM}
SAVING_S = 600
"""Seconds that `python -m train` gives the ranks to save after a signal."""
TELLING_S = 20
"""Seconds that another rank gives rank 0 to say what is wrong."""


@contextlib.contextmanager
def ending_at_once(name: str, mend: str) -> Iterator[None]:
    """Within, those signals end the process; rank 0 says so. An exception instead could be caught on its way out."""

    def end(number: int, frame: FrameType | None) -> None:
        _end(number, name, mend)

    handlers = {number: signal.signal(number, end) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # they are blocked where `Launcher` started this process
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(number: int, name: str, mend: str) -> None:
    if os.environ.get("RANK", "0") == "0":
        os.write(2, f"\n{name}: stopped by {signal.Signals(number).name}: {mend}\n".encode())
    os._exit(1)


class Launcher(subprocess.Popen):
    """The process that deepspeed's runner starts. On one machine it is deepspeed's launcher, the parent of the ranks.

    It starts with SIGINT and SIGTERM blocked, which the ranks unblock. This process hands those signals to the ranks,
    and kills the ranks that have not ended `SAVING_S` seconds later. On several machines the runner hands signals on;
    there this process ignores SIGINT, which a terminal sends to all processes, so as to wait for the ranks.
    """

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        self.local = list(words[2:4]) == ["-m", "deepspeed.launcher.launch"]
        self.given_up = False
        if not self.local:
            signal.signal(signal.SIGINT, lambda *_: None)
            super().__init__(words, **options)
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            super().__init__(words, **options)
            for number in SIGNALS:
                signal.signal(number, self._hand_on)
            signal.signal(signal.SIGALRM, self._give_up)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(self, timeout: float | None = None) -> int:
        """Return the launcher's exit code, which is that of the first rank to fail; say which signal ended that rank.

        Raises:
            RuntimeError: a signal ended the launcher itself.
        """
        code = super().wait(timeout)
        if code < 0:
            name = signal.Signals(-code).name
            raise RuntimeError(f"{name} ended deepspeed's launcher; its ranks save and end: go on with --resume")
        names = {256 - one.value: one.name for one in signal.Signals}  # a rank's -9 is 247 as a launcher's exit code
        if self.local and not self.given_up and code in names:
            why = f"{names[code]} ended a rank (SIGKILL: memory may have run out)"
            print(f"train: {why}: go on with --resume", file=sys.stderr)
        return code

    def _signal_ranks(self, number: int) -> bool:
        """Send a signal to the ranks; return whether there are any."""
        import psutil

        ranks = []
        with contextlib.suppress(psutil.NoSuchProcess):
            ranks = psutil.Process(self.pid).children()
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.send_signal(number)
        return bool(ranks)

    def _hand_on(self, number: int, frame: FrameType | None) -> None:
        if not self._signal_ranks(number):  # it has not started them yet
            self.kill()
            _end(number, "train", "run it again")
        signal.alarm(SAVING_S)

    def _give_up(self, number: int, frame: FrameType | None) -> None:
        self.given_up = True
        self._signal_ranks(signal.SIGKILL)
        os.write(2, f"\ntrain: its ranks took more than {SAVING_S} s to save, and were killed\n".encode())


def leave_to_rank_0() -> None:
    """Give rank 0 `TELLING_S` seconds to say what is wrong: when rank 0 ends, the launcher ends this rank too.

    Otherwise the launcher would end rank 0 because this rank failed first, and the error would never be printed. Rank 0
    does not wait, nor does a rank without a launcher.
    """
    if os.environ.get("RANK", "0") != "0" and "LOCAL_SIZE" in os.environ:
        time.sleep(TELLING_S)


def deadline(max_hours: float) -> Callable[[], bool]:
    """Return a function that says whether this process began at least `max_hours` ago; 0: never.

    A batch system's limit counts from about then: starting up is part of the time.
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
