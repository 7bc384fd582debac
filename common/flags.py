"""Names of options in messages: as the user writes them, on a command line or in Python.

    flag("--min-tokens")  ->  --min-tokens    from a command line
                              min_tokens      from Python, where the option is a keyword argument

A process that runs a command (`terminal.run`) was called from a command line, any other process from Python. The
environment variable CLEARSPAN_CALLER holds the caller, so that it is the same in all threads and in all processes that
this process starts: the workers of Beam, the ranks of a training, and the commands that Python starts (`run_module`).
Workers of Beam on other machines get the caller with their job.
"""

import contextlib
import os
from collections.abc import Iterator
from contextvars import ContextVar

VARIABLE = "CLEARSPAN_CALLER"
COMMAND_LINE, PYTHON = "command line", "python"
_is_key = ContextVar("_is_key", default=False)


def flag(option: str) -> str:
    """Return an option as the user writes it: `--no-dedup` on a command line, `no_dedup` in Python.

    Args:
        option: the option as on a command line; a name without dashes, such as a recipe key, is returned unchanged.
    """
    if not option.startswith("--") or (caller() == COMMAND_LINE and not _is_key.get()):
        return option
    return option.removeprefix("--").replace("-", "_")


def caller() -> str:
    """Return who called this process: COMMAND_LINE or PYTHON."""
    return os.environ.get(VARIABLE, PYTHON)


def variables() -> dict[str, str]:
    """Return the environment variables of a child process, so that its messages write options as this process does."""
    return {VARIABLE: caller()}


def called_by(caller: str) -> None:
    """Name options in this process, a worker, as the process that started the job does.

    Args:
        caller: what `caller()` returned in that process, which may be on another machine.
    """
    if caller == COMMAND_LINE:
        os.environ.setdefault(VARIABLE, COMMAND_LINE)


@contextlib.contextmanager
def command_line() -> Iterator[None]:
    """Name options as on a command line within the `with` block, unless Python started this process."""
    if VARIABLE in os.environ:
        yield
        return
    os.environ[VARIABLE] = COMMAND_LINE
    try:
        yield
    finally:
        del os.environ[VARIABLE]


@contextlib.contextmanager
def as_keys() -> Iterator[None]:
    """Name options as keys within the `with` block: the keys of a recipe, or of a request to the server."""
    token = _is_key.set(True)
    try:
        yield
    finally:
        _is_key.reset(token)
