"""Early ends of a run: Ctrl-C, SIGTERM, the run's time limit, the death of its launcher.

Before there is anything to save, even during imports, a signal ends the process with one line. Later the training loop
(`train.engine.loop`) saves a checkpoint first. The exit code is 130 in both cases, so that `train && eval` scores no
unfinished run. deepspeed's launcher would kill ranks that take long to save, and would exit with 1 whatever the exit
codes of the ranks. Therefore `clearspan train` starts the launcher with SIGINT and SIGTERM blocked, forwards these
signals to the ranks itself, and waits for them.
"""

import contextlib
import math
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from clearspan.cli.run import SIGNALS, end_process
from clearspan.common.answers import Failure, continue_with, report

if TYPE_CHECKING:
    import psutil

LAUNCH = "deepspeed.launcher.launch"
"""The module that starts the ranks of a machine."""
PREFIX = "train"
"""The beginning of error lines, of `clearspan train` and of each rank alike."""
SAVING_S = 600
"""The time, in seconds, that `clearspan train` gives the ranks to save after a signal."""
REPORTING_S = 20
"""The time, in seconds, that a failed rank waits for rank 0 to report an error."""
POLL_S = 0.2
"""The time, in seconds, after which `clearspan train` looks again whether deepspeed's launcher has started ranks."""


class Launcher(subprocess.Popen[bytes]):
    """The child process of `clearspan train` that starts the ranks.

    On one machine the child is deepspeed's launcher, the parent of the ranks. It starts with SIGINT and SIGTERM
    blocked; the ranks unblock them. Creating the child also sets handlers in `clearspan train`: they forward both
    signals to the ranks, and kill ranks that have not ended 600 seconds later (`SAVING_S`).

    On several machines the child is a command, such as pdsh or mpirun, that starts the ranks on each machine. If it is
    pdsh, DeepSpeed replaces the handlers: SIGINT and SIGTERM then stop the child, the ranks and this process. If it is
    another command, `clearspan train` ignores SIGINT and waits for the child, to which a terminal sends SIGINT too.

    Args:
        words: the command and its arguments, each a separate string.
        quiet: whether deepspeed's launchers on other machines print only errors.
        options: other arguments of `subprocess.Popen`.
    """

    def __init__(self, words: Sequence[str], quiet: bool = True, **options: Any) -> None:
        self.local = list(words[2:4]) == ["-m", LAUNCH]
        self.killed_ranks = self._had_ranks = False
        if not self.local:
            signal.signal(signal.SIGINT, lambda *_: None)
            if quiet and LAUNCH in words:
                place = words.index(LAUNCH) + 1
                # deepspeed hands its own --log_level on only to the launcher of one machine
                words = [*words[:place], "--log_level=critical", *words[place:]]
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
        """Wait for the child process; return its exit code.

        If the child is deepspeed's launcher, this is the exit code of the first rank that failed, or 0 if no rank
        failed. If a signal ended that rank, and this process did not kill it, print the name of the signal.

        Args:
            timeout: the maximum time to wait, in seconds, as for `subprocess.Popen.wait`; None for no limit.

        Raises:
            RuntimeError: a signal ended the child itself.
        """
        until = math.inf if timeout is None else time.monotonic() + timeout
        while self.local and not self._had_ranks and not self._has_ended() and time.monotonic() < until:
            self._ranks()
            time.sleep(POLL_S)
        code = super().wait(timeout if timeout is None else max(0.0, until - time.monotonic()))
        if code < 0:
            name = signal.Signals(-code).name
            ends = "its ranks save and end"
            raise RuntimeError(f"{name} ended deepspeed's launcher; {ends}: {continue_with('resume')}")
        names = {256 - each.value: each.name for each in signal.Signals}  # a rank's -9 is the launcher's 247
        if self.local and not self.killed_ranks and code in names:
            cause = f"{names[code]} ended a rank (SIGKILL: memory may have run out)"
            report(Failure(PREFIX, f"{cause}: {continue_with('resume')}"))
        return code

    def _ranks(self) -> list["psutil.Process"]:
        """Return the ranks that run, and remember whether there have ever been any."""
        import psutil

        ranks = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children():
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "LOCAL_RANK" in child.environ():  # not a program that the launcher asks about the machine
                        ranks.append(child)
        self._had_ranks = self._had_ranks or bool(ranks)
        return ranks

    def _signal_ranks(self, number: int) -> bool:
        """Send a signal to all ranks; return whether there are any."""
        import psutil

        ranks = self._ranks()
        for rank in ranks:
            with contextlib.suppress(psutil.NoSuchProcess):
                rank.send_signal(number)
        return bool(ranks)

    def _forward(self, number: int, frame: FrameType | None) -> None:
        """Forward a signal to the ranks; kill a launcher that has not started any, and leave one whose ranks ended."""
        if self._signal_ranks(number):
            signal.alarm(SAVING_S)
        elif not self._had_ranks and not self._has_ended():
            self._kill_all()
            end_process(number, PREFIX, "run it again")

    def _kill_all(self) -> None:
        """Kill the launcher and its children, so that none of them starts a rank."""
        import psutil

        self.send_signal(signal.SIGSTOP)
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.pid).children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        self.kill()

    def _has_ended(self) -> bool:
        """Return whether the child has ended, and leave its exit code to `wait`."""
        try:
            return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:  # `wait` has just taken it
            return True

    def _kill_ranks(self, number: int, frame: FrameType | None) -> None:
        self.killed_ranks = True
        self._signal_ranks(signal.SIGKILL)
        report(Failure(PREFIX, f"the ranks took more than {SAVING_S} s to save, and were killed"), in_handler=True)


def reports() -> bool:
    """Return whether this rank reports errors: the first one of its machine, since each machine may have a terminal."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def leave_to_first_rank() -> None:
    """Wait for 20 seconds (`REPORTING_S`) in a rank that failed, so that its machine's first rank can report the error.

    The launcher ends all ranks of its machine as soon as the process of one has failed. Without the wait, it could end
    the first rank before that one prints the error. The first rank does not wait, nor does any rank that deepspeed's
    launcher did not start.
    """
    if not reports() and "LOCAL_SIZE" in os.environ:
        time.sleep(REPORTING_S)


def deadline(max_hours: float) -> Callable[[], bool]:
    """Return a function that returns whether this process started at least `max_hours` ago.

    If `max_hours` is 0, the function always returns False. The time of start-up counts too, because it counts toward
    the time limit of a batch system.
    """
    import psutil

    started = psutil.Process().create_time()
    return lambda: bool(max_hours) and time.time() - started >= 3600 * max_hours


def launcher_watch() -> Callable[[], bool]:
    """Return a function that returns whether a process that started this rank has died, so that the rank must stop.

    These processes are deepspeed's launcher, its parent and, if a sweep started the run, the sweep. If they are killed,
    the ranks still run, and must save and stop. If deepspeed's launcher did not start this rank, the function always
    returns False.
    """
    import psutil

    parent = psutil.Process().parent()
    if parent is None or not any("deepspeed.launcher" in word for word in parent.cmdline()):
        return lambda: False
    processes = [process for process in (parent, parent.parent()) if process is not None]
    above = processes[-1].parent()
    called = {word.partition(":")[0] for word in above.cmdline()[:4]} if above is not None else set[str]()
    if above is not None and {"sweep", "train.sweep", "clearspan.train.sweep"} & called:
        processes.append(above)

    def gone() -> bool:
        try:
            return any(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in processes)
        except psutil.NoSuchProcess:
            return True

    return gone
