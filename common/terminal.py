"""Command lines: options and numbers that are read strictly, text that cannot steer the terminal, one-line errors.

A command's work gives its exit code; an error that is expected is one line on stderr, never a traceback.
"""

import argparse
import contextlib
import difflib
import io
import math
import os
import re
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from importlib import metadata
from typing import Any, Literal, NoReturn

GAP = 3
"""Cells between the columns of a table."""
NARROWEST = 8
ALIKE = 0.6
"""Least similarity, from 0 to 1, at which a name is taken for another one mistyped."""
MOST_SAID = 300
"""Limit in characters for a library's message, which may take pages, at the end of a message of ours."""


def version() -> str:
    """What `--version` prints."""
    try:
        return f"clearspan {metadata.version('clearspan')}"
    except metadata.PackageNotFoundError:
        return "clearspan, not installed"


def printable(text: str, keep: str = "") -> str:
    """Escape control and direction characters, so that data cannot steer the terminal; those in `keep` stay."""
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in text)


def visible(text: str) -> str:
    """Return `printable` text of several lines: newlines and tabs stay."""
    return printable(text, keep="\n\t")


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


def whole_number(text: str) -> int:
    """Return the integer that ASCII digits write; unlike `int`, refuse 1_0.

    Raises:
        ValueError: the text is something else.
    """
    if not re.fullmatch(r"[+-]?[0-9]{1,1000}", text.strip()):
        raise ValueError(f"not a whole number: {text!r}")
    return int(text)


def finite_number(text: str) -> float:
    """Return the number that a decimal or scientific notation writes; unlike `float`, refuse 1_0, nan and inf.

    Raises:
        ValueError: the text is something else, or the number is too large for a float.
    """
    value = float(text) if re.fullmatch(r"[0-9.eE+-]+", text.strip()) else math.nan
    if not math.isfinite(value):
        raise ValueError(f"not a finite number: {text!r}")
    return value


class Parser(argparse.ArgumentParser):
    """Argument parser of a command: an error is one line, and names the option or choice nearest to a mistyped one.

    Numbers of `type=int` and `type=float` are read by `whole_number` and `finite_number`. Options are not abbreviated:
    a new option would change what an abbreviation means. Description and epilog are shown as written.
    """

    def __init__(self, **options: Any) -> None:
        self._words: list[str] = []
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options})
        self.register("type", int, whole_number)
        self.register("type", float, finite_number)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `ArgumentParser` does, and remember the words for `error`."""
        self._words = list(sys.argv[1:] if args is None else args)
        return super().parse_known_args(args, namespace)

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse words that stand before, between and after options; an option that is left over is an error."""
        parsed, rest = self.parse_known_intermixed_args(args, namespace)
        if rest:
            self.error(self.unknown(rest))
        return parsed

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as `ArgumentParser` does; a word that is left over is an error."""
        parsed, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(self.unknown(rest))
        return parsed

    def unknown(self, words: Sequence[str], others: Iterable[str] = ()) -> str:
        """Return the error for words that are left over; at least one.

        Args:
            others: options that are known besides the parser's own.
        """
        name = next((word for word in words if word.startswith("-")), words[0]).split("=", 1)[0]
        if not name.startswith("-"):
            return f"unexpected argument: {name}"
        known = [*self._option_string_actions, *others]
        if name in known:  # it stood before the word that names the command
            return f"{name} must come after {self.prog.rpartition(' ')[2]!r}"
        return f"no such option: {name}{nearest(name, known)}"

    def error(self, message: str) -> NoReturn:
        """Print the message in one line and exit with 2.

        An option that is required and mistyped is missing first of all: the message then names it too.
        """
        mistyped = [
            word
            for word in self._words
            if word.startswith("--") and word.split("=", 1)[0] not in self._option_string_actions
        ]
        if message.startswith("the following arguments are required") and mistyped:
            message = f"{message}; {self.unknown(mistyped)}"
        self.exit(2, f"{self.prog}: {one_line(ValueError(message))} (see --help)\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            error.message += nearest(str(value), map(str, action.choices or ()))
            raise


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
