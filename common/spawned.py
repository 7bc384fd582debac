"""Call a function in a process of its own: options go there as JSON, its result or a typed error comes back as JSON.

    call("module:function", options) ──options──> python -m clearspan.common.spawned ──> function(options)
                                     <──result, or errors── a file, to which all processes below may add (`report`)

A process of its own is for Beam beside a notebook, for the ranks of a training, and for models: threads, memory and a
GPU are free when it ends, and code that dies there does not end the caller. What the process prints is printed here.

A failure is reported once: a process that `call` started, or that such a process started, hands it up, and `call`
raises it as an exception of the type that it had. All other processes print it. No object is unpickled.
"""

import contextlib
import errno
import functools
import inspect
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from clearspan.common.flags import as_printed
from clearspan.common.working_folder import exclude_working_folder

Item = TypeVar("Item")
Result = TypeVar("Result")
Types = Sequence[type[Exception]]
"""Types of exceptions."""

ANSWER = "CLEARSPAN_ANSWER"
"""Environment variable of the processes below a `call`: the file for the result and the errors."""
STOPPED = 130
"""The exit code of a command that was stopped before it had done its work: by the user, or by a batch system."""
CONTINUED = "repeat the same command or call to continue"
HINT = " (see --help)"
"""End of a line on a wrong command line."""
THREADS = "OMP_NUM_THREADS"


class CommandError(RuntimeError):
    """A command failed. The message is the command's own error message, in one line.

    Attributes:
        code: the exit code.
    """

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Failure:
    """Failure of a command.

    Attributes:
        name: name of the command, printed before the message.
        message: one line for the user.
        code: the exit code: 2 for wrong usage, 130 (`STOPPED`) if the command was stopped, otherwise 1.
        is_refused: whether the command line was invalid, so that no work was done.
        types: names of the class of the exception that ended the command, and of its base classes; empty if unknown.
    """

    name: str
    message: str
    code: int = 1
    is_refused: bool = False
    types: tuple[str, ...] = ()

    @property
    def line(self) -> str:
        """The line that is printed to stderr: name and message; a hint at `--help` if the command line was invalid."""
        return f"{self.name}: {as_printed(self.message)}{HINT if self.is_refused else ''}"

    def exception(self, documented: Iterable[type[Exception]], default: type[Exception]) -> Exception:
        """Return an exception with the failure's message and a type that the caller may raise.

        This is the type of the exception that ended the command, or else the nearest of its base classes.

        Args:
            documented: the types of exceptions that the caller may raise.
            default: the type of the exception if the caller may raise none of these types.
        """
        known = {each.__name__: each for each in documented}
        return next((known[name] for name in self.types if name in known), default)(self.message)


def types_of(error: BaseException) -> tuple[str, ...]:
    """Return the names of an exception's class and of its base classes, except `Exception`; the class comes first."""
    return tuple(each.__name__ for each in type(error).__mro__ if issubclass(each, Exception) and each is not Exception)


def report(failure: Failure, in_handler: bool = False) -> None:
    """Hand a failure to the process above that called `call`, or else print it to stderr.

    It is printed if there is no such process, or if it cannot be reached.

    Args:
        failure: the failure.
        in_handler: whether a signal handler calls, which must not call `print`, since the signal may have interrupted
            it.
    """
    if path := os.environ.get(ANSWER):
        with contextlib.suppress(OSError):  # the caller has ended, or runs on another machine
            return _append(path, asdict(failure))
    if in_handler:
        os.write(2, f"\n{failure.line}\n".encode())
    else:
        print(failure.line, file=sys.stderr)


def continue_with(option: str, advice: str = "") -> str:
    """Return advice for the user on how to continue an interrupted command.

    If this process is below a `call`, the user called another command, which in turn called this one. The advice is
    then to repeat that other command as it was, without `option`.

    Args:
        option: the option that continues this command, such as "resume".
        advice: the advice if the user called this command directly; "" for "continue with OPTION".
    """
    return CONTINUED if os.environ.get(ANSWER) else advice or f"continue with `{option}`"


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
        function: `module:function`. If the function returns an integer, this is the exit code of the process, as of a
            command; any other result is returned here: a dataclass, or values of JSON.
        options: the arguments of the function: dataclasses and values of JSON, also nested (`common.plain_json`).
        expected: types of exceptions that mean that the work failed. An exception of such a type, or UsageError, is
            raised here with its message. Any other exception is a defect, of which the process prints the traceback.
        quiet: if true, print nothing.

    Raises:
        UsageError: the function cannot work with these options.
        CommandError: the process ended without a result, and without an exception of an expected type.
        KeyboardInterrupt: the user interrupted this process.
    """
    from clearspan.common.plain_json import to_json, typed
    from clearspan.common.terminal import UsageError

    request = {"options": options, "expected": [f"{each.__module__}:{each.__qualname__}" for each in expected]}
    with answer() as path:
        path.write_text(f"{to_json(request)}\n", encoding="utf-8")
        environment = os.environ | {ANSWER: str(path)}
        exclude_working_folder(environment)
        command = [sys.executable, "-m", "clearspan.common.spawned", function]
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
        return next((typed(Any, record["result"]) for record in _records(path) if "result" in record), None)


@contextlib.contextmanager
def answer() -> Iterator[Path]:
    """Create a file for a request and its answer; delete it after the `with` block. Other users cannot open it."""
    number, name = tempfile.mkstemp(prefix="clearspan-call-")
    os.close(number)
    try:
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)


def failures(path: Path) -> list[Failure]:
    """Return the failures in an answer so far, in order."""
    found = []
    for record in _records(path):
        with contextlib.suppress(TypeError, KeyError):
            found.append(Failure(**{**record, "types": tuple(record["types"])}))
    return found


def _records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in an answer, without lines that a killed process left incomplete."""
    for line in path.read_text("utf-8").splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(record := json.loads(line), dict):
                yield record


def _append(path: str, record: Mapping[str, Any]) -> None:
    """Append a whole line to an answer, to which several processes may append, or raise OSError. Buffer nothing."""
    line, file = f"{json.dumps(record)}\n".encode(), os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        if os.write(file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)


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


def main() -> int:
    """Answer the request of `call`, in the process that it started; return the exit code."""
    from clearspan.common import plugins, terminal

    function, path = sys.argv[1], os.environ[ANSWER]
    request = next(_records(Path(path)))
    expected = tuple(map(plugins.resolve, request["expected"]))
    work = functools.partial(_work, function, request["options"], path)
    return terminal.run(function.rpartition(":")[2], work, expected)


def _work(function: str, options: Sequence[Any], path: str) -> int:
    """Call the function, and write its result to the answer; return the exit code."""
    from clearspan.common import plugins
    from clearspan.common.plain_json import to_json, typed

    called = plugins.load_function(function, "a function")
    hints, names = typing.get_type_hints(called, include_extras=True), inspect.signature(called).parameters
    result = called(*(typed(hints.get(name, Any), value) for name, value in zip(names, options, strict=False)))
    if isinstance(result, int):
        return result
    _append(path, {"result": json.loads(to_json(result))})
    return 0


if __name__ == "__main__":
    from clearspan.common import spawned  # as all other modules know it

    sys.exit(spawned.main())
