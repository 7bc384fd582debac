"""Call a function in a process of its own: options go there as JSON, its result or a typed error comes back as JSON.

    call("module:function", options) ──options──> python -m clearspan.cli.process ──> function(options)
                                     <──result, or errors── a file (`common.answers`)

A process of its own is for Beam beside a notebook, for the ranks of a training, and for models: threads, memory and a
GPU are free when it ends, and code that dies there does not end the caller. What the process prints is printed here.

`common.answers` says how a failure gets here from any process below, where it is raised as an exception of the type
that it had. No object is unpickled.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any, TypeVar

from clearspan.common import terminal
from clearspan.common.answers import ANSWER, Failure, answer, failures, records
from clearspan.common.plain_json import to_json, typed
from clearspan.common.terminal import UsageError
from clearspan.common.working_folder import exclude_working_folder

Item = TypeVar("Item")
Result = TypeVar("Result")
Types = Sequence[type[Exception]]
"""Types of exceptions."""

THREADS = "OMP_NUM_THREADS"


class CommandError(RuntimeError):
    """A command failed. The message is the command's own error message, in one line.

    Attributes:
        code: the exit code.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


class Processes:
    """The running processes that `call` has started, from all threads of this process."""

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
        """Send SIGINT to all running processes that `call` has started.

        Until `resume` is called, `call` raises KeyboardInterrupt in every thread.
        """
        with self._lock:
            self.are_interrupted = True
            for process in self._running:
                process.send_signal(signal.SIGINT)

    def resume(self) -> None:
        """End the effect of `interrupt`: `call` can start processes again, and raises no KeyboardInterrupt."""
        with self._lock:
            self.are_interrupted = False


processes = Processes()


def call(function: str, *options: Any, expected: Types = (), quiet: bool = False) -> Any:
    """Call a function in a process of its own; print the process's output as it comes, and return the result.

    If the user interrupts this process, SIGINT is sent to the other one, which saves its work; KeyboardInterrupt is
    then raised here.

    Args:
        function: `module:function`. If the function returns a command (`cli.command`), the process runs the command and
            prints its result. If it returns an integer, this is the exit code of the process, as of a command. Any
            other result is returned here: a dataclass, or values of JSON.
        options: the arguments of the function: dataclasses and values of JSON, also nested (`common.plain_json`).
        expected: types of exceptions that mean that the work failed. An exception of such a type, or UsageError, is
            raised here with its message. Any other exception is a defect, of which the process prints the traceback.
        quiet: if true, print nothing.

    Raises:
        UsageError: the function cannot work with these options.
        CommandError: the process ended without a result, and without an exception of an expected type.
        KeyboardInterrupt: the user interrupted this process.
    """
    named = [f"{each.__module__}:{each.__qualname__}" for each in expected]
    request = {"options": options, "expected": named, "is_command": terminal.is_command()}
    with answer() as path:
        path.write_text(f"{to_json(request)}\n", encoding="utf-8")
        environment = os.environ | {ANSWER: str(path)}
        exclude_working_folder(environment)
        command = [sys.executable, "-m", "clearspan.cli.process", function]
        with processes.started(command, environment) as process:
            assert process.stdout is not None
            try:
                _pass_on(process.stdout, quiet)
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
                _pass_on(process.stdout, quiet)
                _pass_on((f"{failure.line}\n" for failure in failures(path)), quiet)
                raise
        if processes.are_interrupted:
            raise KeyboardInterrupt
        if process.returncode:
            raise _error(function, failures(path), process.returncode, (*expected, UsageError))
        return next((typed(Any, record["result"]) for record in records(path) if "result" in record), None)


def _pass_on(lines: Iterable[str], quiet: bool) -> None:
    """Read the output of a process until the process closes it; print each line, or nothing if `quiet` is true."""
    for line in lines:
        if not quiet:
            print(line, end="")


def _error(function: str, found: Sequence[Failure], code: int, expected: Types) -> Exception:
    """Return the exception to raise for a process that failed: of an expected type, or a CommandError with its code."""
    messages = dict.fromkeys(failure.message for failure in found)
    types = tuple(name for failure in found for name in failure.types)
    failure = Failure(function, "; ".join(messages) or f"{function} ended with exit code {code}", code, types=types)
    error = failure.exception(expected, CommandError)
    if isinstance(error, CommandError):
        error.code = code
    return error


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item], at_once: int = 1) -> list[Result]:
    """Return `work(item)` for each item, in order, with `at_once` calls at a time, each in a thread.

    After an exception, no further call begins; the exception is raised when the calls that have begun have ended.

    Args:
        work: function that calls functions in processes (`call`), one after the other.
        at_once: number of calls at a time. If it is more than 1, the CPU cores are divided equally between the
            processes, unless the user has set OMP_NUM_THREADS.

    Raises:
        KeyboardInterrupt: the user interrupted this process; the other processes were interrupted, too.
    """
    if at_once == 1:
        return [work(item) for item in items]
    is_shared = THREADS not in os.environ
    if is_shared:
        from joblib import cpu_count  # takes a fifth of a second

        os.environ[THREADS] = str(max(1, cpu_count() // at_once))
    pool = ThreadPoolExecutor(at_once)
    try:
        futures = [pool.submit(work, item) for item in items]
        for future in as_completed(futures):
            future.result()
        return [future.result() for future in futures]
    except KeyboardInterrupt:
        processes.interrupt()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        processes.resume()
        if is_shared:
            del os.environ[THREADS]
