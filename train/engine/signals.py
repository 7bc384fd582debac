"""Early ends of a run: Ctrl-C, SIGTERM, the run's time limit, the death of its launcher.

As long as there is nothing to save, a signal ends the process with one line and exit code 1, even during imports. The
training loop (`train.engine.loop`) saves first. deepspeed's launcher would kill ranks that take long to save, and exit
with 1 whatever their exit codes; therefore `clearspan train` blocks signals for it, forwards them to the ranks, and
waits.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any

from clearspan.common.child_commands import continue_with
from clearspan.common.failures import Failure, report, report_in_handler
from clearspan.common.terminal import SIGNALS, end_process

PREFIX = "train"
"""The beginning of error lines, of `clearspan train` and of each rank alike."""
SAVING_S = 600
"""Seconds that `clearspan train` waits for the ranks to save after a signal."""
REPORTING_S = 20
"""Seconds that a failed rank waits for rank 0 to report an error."""


class Launcher(subprocess.Popen[bytes]):
    """The process that deepspeed's runner starts. On one machine it is deepspeed's launcher, the parent of the ranks.

    The launcher starts with SIGINT and SIGTERM blocked; the ranks unblock them. The current process forwards both to
    the ranks, and kills ranks that have not ended `SAVING_S` seconds later. On several machines deepspeed's runner
    forwards signals; there the current process ignores SIGINT, which a terminal sends to all processes, and waits for
    the ranks.
    """

    def __init__(self, words: Sequence[str], **options: Any) -> None:
        self.local = list(words[2:4]) == ["-m", "deepspeed.launcher.launch"]
        self.killed_ranks = False
        if not self.local:
            signal.signal(signal.SIGINT, lambda *_: None)
            super().__init__(words, **options)
            return
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            super().__init__(words, **options)
            for number in SIGNALS:
                signal.signal(number, self._forward)
            signal.signal(signal.SIGALRM, self._kill_ranks)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code of the launcher, the first failed rank's; print the signal that ended it.

        Raises:
            RuntimeError: a signal ended the launcher itself.
        """
        code = super().wait(timeout)
        if code < 0:
            name = signal.Signals(-code).name
            ends = "its ranks save and end"
            raise RuntimeError(f"{name} ended deepspeed's launcher; {ends}: {continue_with('--resume')}")
        names = {256 - each.value: each.name for each in signal.Signals}  # a rank's -9 is the launcher's 247
        if self.local and not self.killed_ranks and code in names:
            cause = f"{names[code]} ended a rank (SIGKILL: memory may have run out)"
            report(Failure(PREFIX, f"{cause}: {continue_with('--resume')}"))
        return code

    def _signal_ranks(self, number: int) -> bool:
        """Send a signal to all ranks; return whether there are any."""
        import psutil

        ranks = []
        with contextlib.suppress(psutil.NoSuchProcess):
            ranks = psutil.Process(self.pid).children()
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.send_signal(number)
        return bool(ranks)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        if not self._signal_ranks(number):  # the launcher has not started them yet
            self.kill()
            end_process(number, PREFIX, "run it again")
        signal.alarm(SAVING_S)

    def _kill_ranks(self, number: int, frame: FrameType | None) -> None:
        self.killed_ranks = True
        self._signal_ranks(signal.SIGKILL)
        report_in_handler(Failure(PREFIX, f"the ranks took more than {SAVING_S} s to save, and were killed"))


def leave_to_rank_0() -> None:
    """Wait up to `REPORTING_S` seconds for rank 0 to report the error: when rank 0 ends, the launcher ends this rank.

    If this rank ended first, the launcher would end rank 0 before it prints the error. Rank 0 itself does not wait, and
    neither does a rank without a launcher.
    """
    if os.environ.get("RANK", "0") != "0" and "LOCAL_SIZE" in os.environ:
        time.sleep(REPORTING_S)


def deadline(max_hours: float) -> Callable[[], bool]:
    """Return a function that returns whether this process started at least `max_hours` ago; with 0, always False.

    The limit of a batch system includes start-up too.
    """
    import psutil

    started = psutil.Process().create_time()
    return lambda: bool(max_hours) and time.time() - started >= 3600 * max_hours


def launcher_watch() -> Callable[[], bool]:
    """Return a function that returns whether the deepspeed launcher of this rank has died, or the sweep that runs it.

    A killed `deepspeed` command leaves its ranks running; they must stop and save. Without a launcher: always False.
    """
    import psutil

    parent = psutil.Process().parent()
    if parent is None or not any("deepspeed.launcher" in word for word in parent.cmdline()):
        return lambda: False
    processes = [process for process in (parent, parent.parent()) if process is not None]
    above = processes[-1].parent()
    if above is not None and {"sweep", "train.sweep", "clearspan.train.sweep"} & set(above.cmdline()[:4]):
        processes.append(above)

    def gone() -> bool:
        try:
            return any(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)
        except psutil.NoSuchProcess:
            return True

    return gone
