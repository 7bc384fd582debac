"""What commands say: text that cannot steer the terminal, and one line for what went wrong.

A command's work gives its exit code; an error that is expected is one line on stderr, never a traceback.
"""

import contextlib
import difflib
import io
import os
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from importlib import metadata
from typing import Literal

GAP = 3
"""Cells between the columns of a table."""
NARROWEST = 8
ALIKE = 0.6
"""Similarity, of 1, from which a name may be a typing error of another one."""


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


def closest(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` was probably meant to be, whatever its case, or None."""
    folded = {each.casefold(): each for each in reversed(list(known))}
    near = difflib.get_close_matches(name.casefold(), folded, 1, ALIKE)
    return folded[near[0]] if near else None


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error about an unknown name: "; did you mean 'x'?", or "" where no known name is alike."""
    near = closest(name, known)
    return f"; did you mean {near!r}?" if near else ""


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


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    right: Container[int] = (),
    indent: int = 2,
) -> str:
    """Texts beside each other under their headings, each wrapped in a column of its own.

    Args:
        width: the cells that a line takes at most, in columns of one width, none of fewer than NARROWEST; None: as many
            as the texts need.
        right: the columns, by number, whose texts stand to the right.
        indent: cells before each line.
    """
    from rich.console import Console  # here, since a pipeline's workers print nothing
    from rich.table import Table

    grid = Table(box=None, header_style="", pad_edge=False, padding=(0, GAP, 0, 0))
    each = (width - indent - GAP * (len(headings) - 1)) // len(headings) if width else None
    for place, heading in enumerate(headings):
        side: Literal["left", "right"] = "right" if place in right else "left"
        grid.add_column(visible(heading), justify=side, overflow="fold", width=each and max(NARROWEST, each))
    for row in rows:
        grid.add_row(*(visible(" ".join(text.split())) for text in row))
    shown = io.StringIO()
    Console(file=shown, width=1 << 16, color_system=None, markup=False, emoji=False).print(grid)
    return "\n".join((" " * indent + line).rstrip() for line in shown.getvalue().splitlines())


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
