"""Command lines: strict option parsing, output that cannot steer the terminal, one-line errors.

`run` turns a command's work into its exit code: an expected error is one line on stderr, never a traceback.
"""

import argparse
import contextlib
import functools
import io
import os
import shutil
import signal
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from importlib import metadata
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal, NoReturn

from clearspan.common.answers import STOPPED, Failure, report, types_of
from clearspan.common.flags import as_printed, command_line, register
from clearspan.common.former import advice
from clearspan.common.parsing import NUMBERS, did_you_mean
from clearspan.common.working_folder import exclude_working_folder

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

UNRECOGNIZED = "unrecognized arguments: "
"""Beginning of argparse's message on unknown words."""
REQUIRED = "the following arguments are required: "
"""Beginning of argparse's message on missing options."""


@functools.cache
def version() -> str:
    """Return the text that `--version` prints."""
    try:
        return f"clearspan {metadata.version('clearspan')}"
    except metadata.PackageNotFoundError:
        return "clearspan, not installed"


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


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Formatter of a command's help. A `%` in the usage, or in the text above or below the options, stands for itself.

    argparse would replace `%(prog)s` there, and fail at another `%`, even at one in a metavar or in a choice, since
    `parse_known_intermixed_args` makes a usage of them.
    """

    def add_usage(self, usage: str | None, *arguments: Any, **options: Any) -> None:
        super().add_usage(usage and usage.replace("%", "%%"), *arguments, **options)

    def add_text(self, text: str | None) -> None:
        super().add_text(text.replace("%", "%%") if text is not None and "%(prog)" in text else text)


class Parser(argparse.ArgumentParser):
    """Argument parser of a command. An error is one line; for a typo it suggests the most similar option or choice.

    An option of `type=int` or `type=float` rejects `1_0`, `nan` and `inf`. Options cannot be abbreviated, since a new
    option would change what an abbreviation means. Description and epilog are shown as written.

    Args:
        raises: True to raise UsageError for a wrong command line; False to print an error and exit with code 2.
    """

    def __init__(self, raises: bool = False, **options: Any) -> None:
        self._words: list[str] = []
        self._raises = raises
        defaults = {
            "formatter_class": _HelpFormatter,
            "allow_abbrev": False,
            "exit_on_error": False,  # `parse_known_args` names the option and calls `error`
        }
        super().__init__(**{**defaults, **options})
        for kind, read in NUMBERS.items():
            self.register("type", kind, read)
        self.add_argument("--version", action="version", version=version(), help="print the version and exit")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as `ArgumentParser` does, and store the words of the command line for the messages of `error`."""
        self._words = list(sys.argv[1:] if args is None else args)
        register(self._option_string_actions)
        try:
            return super().parse_known_args(self._words, namespace)
        except argparse.ArgumentError as error:
            if error.argument_name:
                error.argument_name = error.argument_name.partition("/")[0]
            self.error(str(error))

    def unknown(self, words: Sequence[str], known_options: Iterable[str] = ()) -> str:
        """Return an error message about unknown words of a command line. It names one of them, preferably an option.

        Args:
            words: the words that this parser does not know; at least one.
            known_options: options of other parsers; the message may suggest one of them for a mistyped option.
        """
        name = next((word for word in words if word.startswith("-")), words[0]).split("=", 1)[0]
        if not name.startswith("-"):
            return f"unexpected argument: {name}"
        known = [*self._option_string_actions, *known_options]
        if name in known:  # the option stands before the subcommand
            return f"{name} must come after {self.prog.rpartition(' ')[2]!r}"
        return f"no such option: {name}{advice(name) or did_you_mean(name, known)}"

    def error(self, message: str) -> NoReturn:
        """Print the message in one line and exit with code 2, or raise UsageError if the parser was made with `raises`.

        If a required option is mistyped, argparse's message only says that this option is missing. The printed line
        also names the mistyped word.
        """
        if message.startswith(UNRECOGNIZED):
            message = self.unknown(message.removeprefix(UNRECOGNIZED).split())
        mistyped = [
            word
            for word in self._words
            if word.startswith("--") and word.split("=", 1)[0] not in self._option_string_actions
        ]
        if message.startswith(REQUIRED):
            message = "; ".join([message, *([self.unknown(mistyped)] if mistyped else [])])
        if self._raises:
            raise UsageError(message)
        error = UsageError(message)
        report(Failure(self.prog, one_line(error), 2, is_refused=True, types=types_of(error)))
        self.exit(2)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Print the help or the version to `file`; on stdout, unprintable characters are escaped."""
        if file is sys.stdout:
            say(message, end="")
        else:
            super()._print_message(message, file)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if value == []:  # no word of a positional option with several values
            return
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError as error:
            option = action.option_strings[0] if action.option_strings else ""
            error.message += advice(f"{option} {value}") or did_you_mean(str(value), map(str, action.choices or ()))
            raise


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


SIGNALS = {signal.SIGINT, signal.SIGTERM}


@contextlib.contextmanager
def ending_at_once(name: str, remedy: str) -> Iterator[None]:
    """Let SIGINT and SIGTERM end the process at once within the `with` block.

    The process first reports a line: `NAME: stopped by SIGTERM: REMEDY`. In a training with several processes, only
    rank 0 reports the line. No exception is raised, since other code might catch it.

    Args:
        name: the beginning of the line, NAME.
        remedy: the end of the line, REMEDY: advice for the user.
    """

    def end(number: int, frame: FrameType | None) -> None:
        end_process(number, name, remedy)

    handlers = {number: signal.signal(number, end) for number in SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)  # `clearspan train` starts processes with both blocked
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def end_process(number: int, name: str, remedy: str) -> NoReturn:
    """Report in one line which signal has stopped the process, and end the process with exit code 130.

    In a training with several processes, only rank 0 reports the line.

    Args:
        number: the number of the signal, which the line names.
        name: the beginning of the line.
        remedy: the end of the line: advice for the user.
    """
    if os.environ.get("RANK", "0") == "0":
        report(Failure(name, f"stopped by {signal.Signals(number).name}: {remedy}", STOPPED), in_handler=True)
    os._exit(STOPPED)


def run(
    name: str,
    work: Callable[[], int],
    expected: tuple[type[Exception], ...] = (),
    remedy: str = "",
) -> int:
    """Run the work of a command; return its exit code.

    An expected exception becomes one line on stderr. The exit code is 2 for wrong usage, 130 for Ctrl-C, and 1 for all
    other expected exceptions. Any other exception is raised. The exit code is 0 if the process that reads our stdout
    closes it, as `head` does. Characters that the terminal's encoding lacks are escaped.

    If the user has not set OMP_WAIT_POLICY, it is set so that OpenMP threads sleep while they wait: by default torch's
    threads spin at the end of every parallel operation, on cores that other processes need. libgomp reads the variable
    when torch is imported, so torch must not be imported before `work` is called.

    Messages that are printed write options as flags (`flags.as_printed`).

    Processes that `work` starts import nothing from the working folder, where the user's data may lie.

    Args:
        name: the beginning of error lines.
        work: parses the command line, does the work, prints the result, and returns the exit code.
        expected: types of exceptions that mean that the work failed.
        remedy: advice for a user who stops the command: SIGINT and SIGTERM then print it in one line and end the
            process at once. "": the signals have their usual effects.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        exclude_working_folder(os.environ)
    except FileNotFoundError as error:
        report(Failure(name, one_line(error), types=types_of(error)))
        return 1
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    with command_line():
        return _exit_code(name, work, expected, remedy)


def _exit_code(name: str, work: Callable[[], int], expected: tuple[type[Exception], ...], remedy: str) -> int:
    """Call `work`, which does the work of a command, and return the exit code of the command.

    UsageError, an exception of a type in `expected` or Ctrl-C is reported in one line; any other exception is raised.

    Args:
        work: function that does the work, and returns the exit code if it raises no exception.
        name: the beginning of the line.
        expected: types of exceptions that mean that the work failed.
        remedy: advice for a user who stops the command: SIGINT and SIGTERM then print it in one line and end the
            process at once. "": the signals have their usual effects.

    Returns:
        The result of `work`; 2 for a UsageError, 1 for an expected exception, 130 for Ctrl-C, and 0 if the process that
        reads our stdout has closed it.
    """
    try:
        with ending_at_once(name, remedy) if remedy else contextlib.nullcontext():
            return work()
    except OutputClosedError:
        return 0
    except UsageError as error:
        report(Failure(name, one_line(error), 2, types=types_of(error)))
        return 2
    except expected as error:
        report(Failure(name, one_line(error), types=types_of(error)))
        return 1
    except KeyboardInterrupt:
        report(Failure(name, "stopped: run the same command again to continue", STOPPED))
        return STOPPED
