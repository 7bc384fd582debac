"""Write options in messages as the user writes them, on a command line or in Python.

    flag("--min-tokens")  ->  --min-tokens    from a command line
                              min_tokens      from Python, where the option is a keyword argument

A process that runs a command (`terminal.run`) was called from a command line, any other process from Python. The
environment variable CLEARSPAN_CALLER says which, so that it is the same in all threads of a process and in all
processes that the process starts: the workers of Beam, the ranks of a training, and the commands that Python starts
(`run_module`). Beam's workers on other machines are told with their job.
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
    """Return from where this process was called: COMMAND_LINE or PYTHON."""
    return os.environ.get(VARIABLE, PYTHON)


def variables() -> dict[str, str]:
    """Return the environment variables to set for a child process, so that it writes options as this process does.

    In messages, an option is written as on a command line (`--min-tokens`) or as in Python (`min_tokens`).
    """
    return {VARIABLE: caller()}


def set_caller(caller: str) -> None:
    """Make this process, a worker of Beam, write options in messages as the process that started the Beam job does.

    Args:
        caller: the value of `caller()` in that process, which may be on another machine.
    """
    if caller == COMMAND_LINE:
        os.environ.setdefault(VARIABLE, COMMAND_LINE)


@contextlib.contextmanager
def command_line() -> Iterator[None]:
    """Write options in messages as on a command line (`--min-tokens`) within the `with` block.

    If another process has already set how this process writes them, that is left as it is: a command that was started
    from Python writes `min_tokens`.
    """
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
    """Write options in messages as keys (`min_tokens`) within the `with` block, even on a command line.

    They are the keys of a recipe, or of a request to the server.
    """
    token = _is_key.set(True)
    try:
        yield
    finally:
        _is_key.reset(token)
