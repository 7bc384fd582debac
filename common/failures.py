"""Failures of commands: printed to stderr or, if `run_module` started the command, handed to its caller in a file.

    child_commands.run_module ──CLEARSPAN_FAILURES=FILE──> a command and its processes ──`report`──> a line of JSON each
                              <───────────────────────────── `Channel.read` ──────────────────────── FILE

`run_module` raises one exception with the messages of all failures in the file. It has the type of the exception that
ended the command if the caller of `run_module` asks for that type (`raises`), otherwise a default type. So the message
is printed once, by the command that the user called. If a process ends without a report, only its exit code is known.
"""

import contextlib
import errno
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from clearspan.common.flags import as_printed

VARIABLE = "CLEARSPAN_FAILURES"
"""Environment variable with the file that failures are written to; each `run_module` sets its own."""
STOPPED = 130
"""The exit code of a command that was stopped before it had done its work: by the user, or by a batch system."""
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


def report(failure: Failure) -> None:
    """Hand a failure to the command that started this process, or else print it to stderr.

    It is printed if no command started this process, or if that command cannot be reached.
    """
    if not try_to_hand_over(failure):
        print(failure.line, file=sys.stderr)


def report_in_handler(failure: Failure) -> None:
    """Hand a failure to the command that started this process, or else write it to stderr; for signal handlers.

    `report` does the same with `print`, which a handler must not call, since the signal may have interrupted it.
    """
    if not try_to_hand_over(failure):
        os.write(2, f"\n{failure.line}\n".encode())


def try_to_hand_over(failure: Failure) -> bool:
    """Hand a failure to the command that started this process; return False if there is none or it cannot be reached.

    A signal handler may call this function: nothing is buffered.
    """
    if path := os.environ.get(VARIABLE):
        with contextlib.suppress(OSError):  # the caller has ended, or runs on another machine
            _append(path, f"{json.dumps(asdict(failure))}\n".encode())
            return True
    return False


def _append(path: str, line: bytes) -> None:
    """Append a whole line to an existing file, to which several processes may append, or raise OSError."""
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        if os.write(file, line) < len(line):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
    finally:
        os.close(file)


@dataclass(frozen=True)
class Channel:
    """A file through which a command and its processes hand their failures to the process that started the command."""

    path: Path

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables to set for a command, so that its processes write their failures to this file."""
        return {VARIABLE: str(self.path)}

    def read(self) -> list[Failure]:
        """Return the failures reported so far, in order, without lines that a killed process left incomplete."""
        failures = []
        for line in self.path.read_text("utf-8").splitlines():
            with contextlib.suppress(ValueError, TypeError, KeyError):
                record = json.loads(line)
                failures.append(Failure(**{**record, "types": tuple(record["types"])}))
        return failures


@contextlib.contextmanager
def channel() -> Iterator[Channel]:
    """Create a file to which a command writes its failures; delete it after the `with` block.

    Other users can neither read nor write the file.
    """
    number, name = tempfile.mkstemp(prefix="clearspan-failures-")
    os.close(number)
    try:
        yield Channel(Path(name))
    finally:
        Path(name).unlink(missing_ok=True)
