"""Output of messages and tables that cannot steer the terminal; an error is one line, never a traceback."""

import contextlib
import io
import os
import shutil
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.table import Table

GAP = 3
"""Number of cells between the columns of a table."""
CUT = " ..."
"""End of a text that was cut."""
MIN_WIDTH = 40
"""Number of cells of a line below which paragraphs beside labels are wrapped no more."""
LONG_WORD = 24
"""Number of characters by which a text is cut before its limit at most, so that it ends with a word."""
MAX_SAID = 300
"""Limit in characters for a library's message, which may take pages, at the end of a message of ours."""


def printable(text: str, keep: str = "") -> str:
    """Return a text with unprintable characters escaped, e.g. control characters, so that it cannot steer the terminal.

    Args:
        keep: the unprintable characters that are not escaped.
    """
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def visible(text: str) -> str:
    """Return a text with all unprintable characters escaped except newlines and tabs."""
    return printable(text, keep="\n\t")


def one_line(error: BaseException, limit: int | None = None) -> str:
    """Return an error's message as one line with unprintable characters escaped.

    The result is the error's type if the message is empty, or if the error's own code fails to make it.

    Args:
        limit: number of characters after which the line is cut; None for no limit.
    """
    try:
        message = str(error)
    except Exception:  # the error may be of a class of the user's own
        message = ""
    text = visible(" ".join(message.split())) or type(error).__name__
    return text if limit is None or len(text) <= limit else text[:limit] + " ..."


class UsageError(ValueError):
    """An option is unknown, missing or has a value that cannot work. The message is one line for the user."""


_spell: Callable[[str], str] = str
"""Function that returns a message as this process prints it."""


def as_printed(message: str) -> str:
    """Return a message as this process prints it: with flags in place of fields in backticks if a command runs."""
    return _spell(message)


def is_command() -> bool:
    """Return whether a command runs in this process, so that messages name options by their flags."""
    return _spell is not str


@contextlib.contextmanager
def spelling(spell: Callable[[str], str]) -> Iterator[None]:
    """Let `as_printed` return `spell(message)` within the `with` block; `cli.flags` spells options as flags."""
    global _spell
    outside, _spell = _spell, spell
    try:
        yield
    finally:
        _spell = outside


class OutputClosedError(Exception):
    """The process that reads our stdout has closed it, as `head` does in `command | head`."""


def say(text: str, end: str = "\n") -> None:
    """Print a text to stdout, with all unprintable characters escaped except newlines and tabs.

    Raises:
        OutputClosedError: the process that reads our stdout has closed it.
        OSError: stdout cannot be written, e.g. to a full disk; the error names standard output.
    """
    try:
        print(visible(text), end=end, flush=True)
    except OSError as error:
        # The interpreter flushes the rest of the buffer at exit: to /dev/null, or it would fail once more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            raise OutputClosedError from None
        raise OSError(error.errno, error.strerror, "standard output") from None


def table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Container[int] = (), indent: int = 2) -> str:
    """Return a table as text, each column as wide as its longest text.

    Args:
        rows: the texts of each row, one for each column.
        right: indices of the right-aligned columns.
        indent: number of spaces before each line.
    """
    from rich.table import Table  # imported here because a pipeline's workers print no tables

    grid = Table(box=None, header_style="", pad_edge=False, padding=(0, GAP, 0, 0))
    for column, heading in enumerate(headings):
        side: Literal["left", "right"] = "right" if column in right else "left"
        grid.add_column(visible(heading), justify=side)
    for row in rows:
        grid.add_row(*map(_in_a_line, row))
    return _rendered(grid, 1 << 16, indent)


def hanging(rows: Iterable[tuple[str, Iterable[str]]], width: int, indent: int = 2) -> str:
    """Return rows as text: a label, right-aligned, and beside it paragraphs that are wrapped between words.

    Args:
        rows: the label and the paragraphs of each row.
        width: the maximum number of cells of a line, at least 40 (`MIN_WIDTH`); a letter of Chinese takes two.
        indent: number of spaces before each line.
    """
    from rich.table import Table

    grid = Table.grid(padding=(0, GAP, 0, 0), pad_edge=False)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, paragraphs in rows:
        grid.add_row(_in_a_line(label), "\n".join(map(_in_a_line, paragraphs)))
    return _rendered(grid, max(width, MIN_WIDTH) - indent, indent)


def width() -> int:
    """Return the number of cells of a line of the terminal; 100 if stdout is no terminal."""
    return shutil.get_terminal_size((100, 24)).columns


def shortened(text: str, length: int) -> str:
    """Return a text in one line, cut to at most `length` characters, and after a word if one ends near there."""
    line = " ".join(text.split())
    if len(line) <= length:
        return line
    end = length - len(CUT)
    space = line.rfind(" ", max(0, end - LONG_WORD), end + 1)
    return line[: end if space < 1 else space] + CUT


def _in_a_line(text: str) -> str:
    return visible(" ".join(text.split()))


def _rendered(grid: "Table", width: int, indent: int) -> str:
    from rich.console import Console

    output = io.StringIO()
    Console(file=output, width=width, color_system=None, markup=False, emoji=False).print(grid)
    return "\n".join((" " * indent + line).rstrip() for line in output.getvalue().splitlines())


def notice(text: str) -> None:
    """Print a message about the progress to stdout; do nothing if the process that reads our stdout has closed it."""
    with contextlib.suppress(OutputClosedError):
        say(as_printed(text))


def warn(text: str) -> None:
    """Print a text to stderr, with all unprintable characters escaped except newlines and tabs."""
    print(visible(as_printed(text)), file=sys.stderr)
