"""The answer of a process that `common.spawned` started: its result, and the failures of all processes below it.

    spawned.call ──request──> a file, CLEARSPAN_ANSWER ──> a process and those that it starts
                 <──────────── lines of JSON ───────────── a result, or failures (`report`)

A failure is told once: a process below a `call` hands it up, and `call` raises it; any other process prints it.
"""

import contextlib
import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clearspan.common.terminal import as_printed

ANSWER = "CLEARSPAN_ANSWER"
"""Environment variable of the processes below a `call`: the file for the result and the errors."""
STOPPED = 130
"""The exit code of a command that was stopped before it had done its work: by the user, or by a batch system."""
CONTINUED = "repeat the same command or call to continue"
HINT = " (see --help)"
"""End of a line on a wrong command line."""


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
            return append(path, asdict(failure))
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
    for record in records(path):
        with contextlib.suppress(TypeError, KeyError):
            found.append(Failure(**{**record, "types": tuple(record["types"])}))
    return found


def records(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects in an answer, without lines that a killed process left incomplete."""
    for line in path.read_text("utf-8").splitlines():
        with contextlib.suppress(ValueError):
            if isinstance(record := json.loads(line), dict):
                yield record


def append(path: str, record: Mapping[str, Any]) -> None:
    """Append a whole line to an answer, to which several processes may append, or raise OSError. Buffer nothing."""
    line, file = f"{json.dumps(record)}\n".encode(), os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        if os.write(file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)
