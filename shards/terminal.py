"""What commands say: text that cannot steer the terminal, and one line for what went wrong.

A command's work gives its exit code; an error that is expected is one line on stderr, never a traceback.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable
from importlib import metadata


def version() -> str:
    """What `--version` prints."""
    try:
        return f"clearspan {metadata.version('clearspan')}"
    except metadata.PackageNotFoundError:
        return "clearspan, not installed"


def visible(text: str) -> str:
    """The text with control and direction characters written out: a corpus is not to steer the terminal."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def one_line(error: BaseException, limit: int | None = None) -> str:
    """What an error says, in one line that cannot steer the terminal, cut after `limit` characters."""
    text = visible(" ".join(str(error).split())) or type(error).__name__
    return text if limit is None or len(text) <= limit else text[:limit] + " ..."


class OutputClosedError(Exception):
    """Who read standard output has left, having seen enough, as `| head` does."""


def say(text: str) -> None:
    """Prints to standard output, in a form that cannot steer the terminal.

    Raises:
        OutputClosedError: nobody reads it any more.
        OSError: it cannot be written there, e.g. a full disk; it names standard output.
    """
    try:
        print(visible(text), flush=True)
    except OSError as error:
        # Nowhere with what is still in its buffer, or the interpreter would fail on it once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise OutputClosedError from None
        raise OSError(error.errno, error.strerror, "standard output") from None


def notice(text: str) -> None:
    """Says something on the way to the work proper, which goes on whether anybody reads it or not."""
    with contextlib.suppress(OutputClosedError):
        say(text)


def run(name: str, work: Callable[[], int], expected: tuple[type[Exception], ...]) -> int:
    """Does a command's work: its exit code, or 1 and a line on stderr for an error that is expected.

    Characters that the terminal's encoding lacks are written out. A reader of its output that leaves is no error.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        return work()
    except OutputClosedError:
        return 0
    except expected as error:
        print(f"{name}: {one_line(error)}", file=sys.stderr)
        return 1
