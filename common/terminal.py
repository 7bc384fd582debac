"""Command lines: strict option parsing, output that cannot steer the terminal, one-line errors.

`run` turns a command's work into its exit code: an expected error is one line on stderr, never a traceback.
"""

import argparse
import contextlib
import io
import os
import sys
from collections.abc import Callable, Container, Iterable, Sequence
from importlib import metadata
from typing import Any, Literal, NoReturn

from clearspan.common.cores import share_cores
from clearspan.common.parsing import did_you_mean, finite_number, whole_number

GAP = 3
"""Number of cells between the columns of a table."""
MIN_WIDTH = 8
"""Least width of a table's column, in cells."""
MOST_SAID = 300
"""Limit in characters for a library's message, which may take pages, at the end of a message of ours."""

DEPRECATED = "deprecated: "
"""Beginning of a line on an option that the next version does not take."""


def version() -> str:
    """Return the text that `--version` prints."""
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
    """Return an error's message in one line that cannot steer the terminal, cut after `limit` characters."""
    text = visible(" ".join(str(error).split())) or type(error).__name__
    return text if limit is None or len(text) <= limit else text[:limit] + " ..."


class Parser(argparse.ArgumentParser):
    """Argument parser of a command: an error is one line and suggests the option or choice most similar to a typo.

    `whole_number` parses `type=int` and `finite_number` parses `type=float`. Options cannot be abbreviated, since a new
    option would change what an abbreviation means. Description and epilog are shown as written.
    """

    def __init__(self, **options: Any) -> None:
        self._words: list[str] = []
        self.old_names: dict[str, str] = {}
        """Present name of an option, by the name that it had."""
        super().__init__(**{"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options})
        self.register("type", int, whole_number)
        self.register("type", float, finite_number)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `ArgumentParser` does; keep the words for `error`, with options by their present names."""
        self._words = self._present(list(sys.argv[1:] if args is None else args))
        return super().parse_known_args(self._words, namespace)

    def renamed(self, old: str, new: str) -> None:
        """Accept the option `new` by its old name too, for one version: a line says that the name has changed."""
        self.old_names[old] = new

    def _present(self, words: list[str]) -> list[str]:
        """Return the words with each option by its present name."""
        end = words.index("--") if "--" in words else len(words)
        for place, word in enumerate(words[:end]):
            old, equals, value = word.partition("=")
            if new := self.old_names.get(old):
                self.deprecate(f"{old} is now called {new}: the next version does not know {old} here")
                words[place] = f"{new}{equals}{value}"
        return words

    def deprecate(self, message: str) -> None:
        """Print a line on an option that the next version does not take."""
        print(f"{DEPRECATED}{message}", file=sys.stderr)

    def parse_intermixed_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse positional arguments before, between and after options; an unknown option is an error."""
        self._words = self._present(list(sys.argv[1:] if args is None else args))
        parsed, rest = self.parse_known_intermixed_args(self._words, namespace)
        if rest:
            self.error(self.unknown(rest))
        return parsed

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse as `ArgumentParser` does; an unknown argument is an error."""
        parsed, rest = self.parse_known_args(args, namespace)
        if rest:
            self.error(self.unknown(rest))
        return parsed

    def unknown(self, words: Sequence[str], others: Iterable[str] = ()) -> str:
        """Return the error message for one or more unknown words.

        Args:
            others: known options besides those of this parser, for suggestions.
        """
        name = next((word for word in words if word.startswith("-")), words[0]).split("=", 1)[0]
        if not name.startswith("-"):
            return f"unexpected argument: {name}"
        known = [*self._option_string_actions, *others]
        if name in known:  # the option stands before the subcommand
            return f"{name} must come after {self.prog.rpartition(' ')[2]!r}"
        return f"no such option: {name}{did_you_mean(name, known)}"

    def error(self, message: str) -> NoReturn:
        """Print the message in one line and exit with code 2.

        argparse reports a mistyped required option only as missing: the message then names the mistyped word too.
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
            error.message += did_you_mean(str(value), map(str, action.choices or ()))
            raise


class OutputClosedError(Exception):
    """The reader closed stdout, as `| head` does."""


def say(text: str, end: str = "\n") -> None:
    """Print `visible` text to stdout.

    Raises:
        OutputClosedError: the reader closed stdout.
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


def table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    right: Container[int] = (),
    indent: int = 2,
) -> str:
    """Return a text table with wrapped cells.

    Args:
        width: largest line width in cells, for columns of equal width, at least MIN_WIDTH each; None makes each column
            as wide as its longest text.
        right: indices of the right-aligned columns.
        indent: number of cells before each line.
    """
    from rich.console import Console  # imported here because a pipeline's workers print no tables
    from rich.table import Table

    grid = Table(box=None, header_style="", pad_edge=False, padding=(0, GAP, 0, 0))
    column_width = (width - indent - GAP * (len(headings) - 1)) // len(headings) if width else None
    for column, heading in enumerate(headings):
        side: Literal["left", "right"] = "right" if column in right else "left"
        grid.add_column(
            visible(heading), justify=side, overflow="fold", width=column_width and max(MIN_WIDTH, column_width)
        )
    for row in rows:
        grid.add_row(*(visible(" ".join(text.split())) for text in row))
    output = io.StringIO()
    Console(file=output, width=1 << 16, color_system=None, markup=False, emoji=False).print(grid)
    return "\n".join((" " * indent + line).rstrip() for line in output.getvalue().splitlines())


def notice(text: str) -> None:
    """Print a message that is not the command's result: work continues if the reader closed stdout."""
    with contextlib.suppress(OutputClosedError):
        say(text)


def run(name: str, work: Callable[[], int], expected: tuple[type[Exception], ...]) -> int:
    """Run a command's work and return its exit code; an expected error prints one line on stderr and returns 1.

    Characters that the terminal's encoding lacks are escaped. A reader that closes stdout is no error. Sets
    OMP_WAIT_POLICY (`share_cores`), so `work` is what imports torch.
    """
    share_cores()
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
