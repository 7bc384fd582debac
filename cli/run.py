"""Run the work of a command: an expected error is one line on stderr, and the end of the work an exit code.

Work: find the command  ->  Work: parse its options, run it, print its result  ->  exit code
"""

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from clearspan.cli.flags import command_line
from clearspan.common.answers import STOPPED, Failure, report, types_of
from clearspan.common.terminal import OutputClosedError, UsageError, one_line
from clearspan.common.working_folder import exclude_working_folder

SIGNALS = {signal.SIGINT, signal.SIGTERM}


@dataclass(frozen=True)
class Work:
    """Work of a command.

    Attributes:
        name: the beginning of error lines.
        do: function that does the work, and returns the exit code, or the work to do next.
        expected: types of exceptions that mean that the work failed.
        remedy: advice for a user who stops the command: SIGINT and SIGTERM then print it in one line and end the
            process at once. "": the signals have their usual effects.
    """

    name: str
    do: "Callable[[], int | Work]"
    expected: tuple[type[Exception], ...] = ()
    remedy: str = ""


@contextlib.contextmanager
def ending_at_once(name: str, remedy: str) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the process at once within the `with` block.

    The process first reports a line: `NAME: stopped by SIGTERM: REMEDY`. In a training with several processes, only
    rank 0 reports the line. No exception is raised, since other code might catch it.

    Args:
        name: the beginning of the line, NAME.
        remedy: the end of the line, REMEDY: advice for the user.
    """

    def end(number: int, frame: FrameType | None) -> None:
        end_process(number, name, remedy)

    handlers = {number: signal.signal(number, end) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # `clearspan train` starts processes with both blocked
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def end_process(number: int, name: str, remedy: str) -> NoReturn:
    """Report in one line which signal has stopped the process, and end the process with exit code 130.

    In a training with several processes, only rank 0 reports the line.

    Args:
        number: the number of the signal, which the line names.
        name: the beginning of the line.
        remedy: the end of the line: advice for the user.
    """
    if os.environ.get("RANK", "0") == "0":
        report(Failure(name, f"stopped by {signal.Signals(number).name}: {remedy}", STOPPED), in_handler=True)
    os._exit(STOPPED)


def run(work: Work, prints_flags: bool = True) -> int:
    """Do the work of a command; return its exit code.

    An expected exception becomes one line on stderr. The exit code is 2 for wrong usage, 130 for Ctrl-C, and 1 for all
    other expected exceptions. Any other exception is raised. The exit code is 0 if the process that reads our stdout
    closes it, as `head` does. Characters that the terminal's encoding lacks are escaped.

    If the user has not set OMP_WAIT_POLICY, it is set so that OpenMP threads sleep while they wait: by default torch's
    threads spin at the end of every parallel operation, on cores that other processes need. libgomp reads the variable
    when torch is imported, so torch must not be imported before the work begins.

    Processes that the work starts import nothing from the working folder, where the user's data may lie.

    Args:
        prints_flags: whether printed messages write options as flags (`cli.flags`).
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        exclude_working_folder(os.environ)
    except FileNotFoundError as error:
        report(Failure(work.name, one_line(error), types=types_of(error)))
        return 1
    # The interpreter has no stream where the user has closed it, as with `2>&-`.
    sys.stdout, sys.stderr = (stream or Path(os.devnull).open("w") for stream in (sys.stdout, sys.stderr))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with command_line() if prints_flags else contextlib.nullcontext():
        following: int | Work = work
        while isinstance(following, Work):
            following = _done(following)
        return following


def _done(work: Work) -> int | Work:
    """Do the work; return its exit code, or the work to do next; report an expected error or Ctrl-C in one line."""
    try:
        with ending_at_once(work.name, work.remedy) if work.remedy else contextlib.nullcontext():
            return work.do()
    except OutputClosedError:
        return 0
    except UsageError as error:
        report(Failure(work.name, one_line(error), 2, types=types_of(error)))
        return 2
    except work.expected as error:
        report(Failure(work.name, one_line(error), types=types_of(error)))
        return 1
    except KeyboardInterrupt:
        report(Failure(work.name, "stopped: run the same command again to continue", STOPPED))
        return STOPPED
