"""Run commands of this project in processes of their own, and raise their one-line errors as exceptions.

`run_module` runs one command; `common.parallel` runs several at a time. `common.failures` tells how an error gets from
the command's process to this one.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clearspan.common.failures import Failure, channel
from clearspan.common.terminal import UsageError
from clearspan.common.working_folder import exclude_working_folder

Option = str | bool | int | float | Path | Sequence[str | Path | int | float] | None
"""Value of an option: True or False for a switch, a sequence for an option that may be repeated; None leaves the option
out."""
STARTED_BY = "CLEARSPAN_STARTED_BY"
"""Environment variable of a process that `run_module` started: the id of the process that called `run_module`."""
CONTINUED = "repeat the same command or call to continue"


class Processes:
    """The running processes that `run_module` has started, from all threads of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[str]] = set()
        self.are_interrupted = False

    @contextlib.contextmanager
    def started(self, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
        """Start a process, which the `with` statement yields; at the end of the block, wait for the process to end.

        The block can read what the process prints, to stdout and to stderr, from its `stdout`.

        Args:
            command: the program and its arguments.
            environment: all environment variables of the process.

        Raises:
            KeyboardInterrupt: `interrupt` was called before the start.
        """
        with self._lock:
            if self.are_interrupted:
                raise KeyboardInterrupt
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment,
                text=True,
                errors="backslashreplace",
            )
            self._running.add(process)
        try:
            with process:
                yield process
        finally:
            with self._lock:
                self._running.discard(process)

    def interrupt(self) -> None:
        """Send SIGINT to all running processes that `run_module` has started.

        Until `resume` is called, `run_module` raises KeyboardInterrupt in every thread.
        """
        with self._lock:
            self.are_interrupted = True
            for process in self._running:
                process.send_signal(signal.SIGINT)

    def resume(self) -> None:
        """End the effect of `interrupt`: `run_module` can start processes again, and raises no KeyboardInterrupt."""
        with self._lock:
            self.are_interrupted = False


processes = Processes()


class CommandError(RuntimeError):
    """A command failed. The message is the command's own error message, in one line.

    Attributes:
        code: the exit code.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def continue_with(option: str, advice: str = "") -> str:
    """Return advice for the user on how to continue an interrupted command.

    If `run_module` started this process, the user called another command, which in turn called this one. The advice is
    then to repeat that other command as it was, without `option`.

    Args:
        option: the option that continues this command, such as "resume".
        advice: the advice if the user called this command directly; "" for "continue with OPTION".
    """
    return CONTINUED if os.environ.get(STARTED_BY) else advice or f"continue with `{option}`"


def together(arguments: Mapping[str, Any], options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the named arguments of a call and its further options in one dict.

    Raises:
        UsageError: a name is in both dicts.
    """
    if twice := sorted(arguments.keys() & options.keys()):
        raise UsageError(f"{twice[0]}: already given by an argument of this call: leave it out")
    return {**arguments, **options}


def run_module(
    module: str,
    line: Sequence[str],
    quiet: bool = False,
    raises: Sequence[type[Exception]] = (),
    default: type[Exception] | None = None,
) -> None:
    """Run `python -m MODULE LINE` to its end; print its output as it comes.

    If the user interrupts this process, SIGINT is sent to the module's process, which saves its work; KeyboardInterrupt
    is then raised here.

    Args:
        module: the name of the module, such as "clearspan.train".
        line: the arguments of the module.
        quiet: if true, print nothing.
        raises: types of exceptions, besides UsageError, that the caller wants as they are: if an exception of such a
            type ended the command, an exception of this type with the same message is raised here.
        default: type of the exception for all other failures; None for CommandError, which holds the exit code.

    Raises:
        UsageError: the command cannot work with these options.
        CommandError: the command failed in another way, and `default` is None.
        KeyboardInterrupt: the user interrupted this process.
    """
    with channel() as failures:
        command = [sys.executable, "-m", module, *line]
        environment = os.environ | {STARTED_BY: str(os.getpid())} | failures.variables
        exclude_working_folder(environment)
        with processes.started(command, environment) as process:
            assert process.stdout is not None
            try:
                _pass_on(process.stdout, quiet)
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
                _pass_on(process.stdout, quiet)
                _pass_on((f"{failure.line}\n" for failure in failures.read()), quiet)
                raise
        if processes.are_interrupted:
            raise KeyboardInterrupt
        if process.returncode:
            raise _error(module, failures.read(), process.returncode, raises, default)


def _pass_on(lines: Iterable[str], quiet: bool) -> None:
    """Read the output of a process until the process closes it; print each line, or nothing if `quiet` is true."""
    for line in lines:
        if not quiet:
            print(line, end="")


def _error(
    module: str,
    failures: Sequence[Failure],
    code: int,
    raises: Sequence[type[Exception]],
    default: type[Exception] | None,
) -> Exception:
    """Return the exception to raise after a command failed; types in `raises` are kept, others become `default`."""
    messages = dict.fromkeys(failure.message for failure in failures)
    types = tuple(name for failure in failures for name in failure.types)
    failure = Failure(module, "; ".join(messages) or f"{module} ended with exit code {code}", code, types=types)
    error = failure.exception((*raises, UsageError), default or CommandError)
    if isinstance(error, CommandError):
        error.code = code
    return error
