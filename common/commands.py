"""Commands of this project run from Python: keyword arguments as options, one-line errors as exceptions.

    min_tokens=512, dedup=True, exclude=["a.txt"]  ->  --min-tokens=512 --dedup --exclude=a.txt

`run_module` runs a command in a process of its own and prints its output as it comes. `RaisingParser` checks options
in this process, for a command whose work is done here. Messages name the keyword arguments in place of the options:

    --min-tokens must be at least 1; add --no-dedup  ->  min_tokens must be at least 1; add no_dedup=True
"""

import contextlib
import functools
import numbers
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

from clearspan.common.terminal import DEPRECATED, Parser

P = ParamSpec("P")
T = TypeVar("T")

Option = str | int | float | bool | Path | Sequence[str | Path] | None
"""Value of an option: True for one without a value, a sequence for one that may be repeated, None or False to leave it
out."""
HINT = " (see --help)"
OPTION = re.compile(r"""(?<!did you mean )(?<!\w)(?:'[^']*'|"[^"]*"|`[^`]*`)|(?<![\w/=.-])(--[A-Za-z][\w-]*)""")
"""An option's word in a message, as a group; or a quoted text, which is not searched, unless it is a suggestion."""
NOT_KEYWORDS = ("--help", "--version", "--list")


class UsageError(ValueError):
    """An option is unknown, missing or has a value that cannot work. The message is one line for the user."""


class CommandError(RuntimeError):
    """A command failed. The message is its own, in one line.

    Attributes:
        code: the exit code.
    """

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class RaisingParser(Parser):
    """Argument parser that raises UsageError instead of exiting."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise the message of an error, without the command's name and the pointer to its help."""
        raise UsageError((message or "").strip().removeprefix(f"{self.prog}: ").removesuffix(HINT))

    def deprecate(self, message: str) -> None:
        """Issue a FutureWarning that names keyword arguments."""
        warn(as_keywords(message, keywords(self)))


def warn(message: str) -> None:
    """Issue a FutureWarning at the line outside of this package that called it."""
    frame, level = sys._getframe(), 1
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("clearspan."):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, FutureWarning, stacklevel=level)


def renamed(**names: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Decorate a function so that it takes keyword arguments by their old names too, for one version: {old: new}."""

    def decorate(function: Callable[P, T]) -> Callable[P, T]:
        @functools.wraps(function)
        def call(*args: P.args, **options: P.kwargs) -> T:
            given: dict[str, Any] = dict(options)
            for old in names.keys() & given.keys():
                warn(f"{old} is now called {names[old]}: the next version does not know {old} here")
                given[names[old]] = given.pop(old)
            return function(*args, **given)

        return call

    return decorate


def keywords(*parsers: Parser, given: Iterable[str] = (), **others: str) -> dict[str, str]:
    """Return option -> the keyword argument that sets it, for the options of parsers and the keywords that were given.

    Args:
        others: keyword arguments that are not called like their option, as {option without dashes: keyword}.
    """
    names = {option_of(name, underscores): name for name in given for underscores in (False, True)}
    for parser in parsers:
        switches = {option: action.nargs == 0 for action in parser._actions for option in action.option_strings}
        for option, is_switch in {**dict.fromkeys(parser.old_names, False), **switches}.items():
            if option.startswith("--") and option not in NOT_KEYWORDS:
                name = option.removeprefix("--").replace("-", "_")
                names[option] = f"{name}=True" if is_switch else name
    return names | {option_of(option): keyword for option, keyword in others.items()}


def as_keywords(message: str, names: Mapping[str, str]) -> str:
    """Return a message with the keyword arguments in place of the options that set them."""
    return OPTION.sub(lambda match: names.get(match[1], match[0]), message)


@contextlib.contextmanager
def naming_keywords(names: Mapping[str, str]) -> Iterator[None]:
    """Name keyword arguments in place of options in the message of an exception that passes."""
    try:
        yield
    except Exception as error:
        error.args = tuple(as_keywords(arg, names) if isinstance(arg, str) else arg for arg in error.args)
        raise


def option_of(name: str, underscores: bool = False) -> str:
    """Return the option that a keyword argument sets: `min_tokens` -> "--min-tokens"."""
    return f"--{name if underscores else name.replace('_', '-')}"


def words(options: Mapping[str, Option], underscores: bool = False) -> list[str]:
    """Return the words of a command line that set the options.

    Args:
        underscores: whether the command writes its options with underscores, as DeepSpeed's launcher does.
    """
    line = []
    for name, value in options.items():
        flag = option_of(name, underscores)
        if value is True:
            line.append(flag)
        elif value is False:
            continue
        elif isinstance(value, str | int | float | Path | numbers.Real):  # numpy's integers are Real, but not int
            line.append(f"{flag}={value}")
        elif value:
            line += [f"{flag}={item}" for item in value]
    return line


def run_module(
    module: str, line: Sequence[str], name: str, quiet: bool = False, names: Callable[[], Mapping[str, str]] = dict
) -> None:
    """Run `python -m MODULE LINE` to its end; print its output as it comes.

    An interrupt is passed on to the process, which saves what it does, before KeyboardInterrupt is raised.

    Args:
        name: what the command begins its error lines with.
        quiet: print nothing.
        names: function that returns the keyword arguments that errors and warnings name in place of options; called
            only for one.

    Raises:
        UsageError: the command refused an option.
        CommandError: the command failed.
    """
    usage, problems = [], []
    command = [sys.executable, "-m", module, *line]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="backslashreplace"
    ) as process:
        assert process.stdout is not None
        try:
            for text in process.stdout:
                if text.startswith(f"{name}: "):
                    problems.append(text.removeprefix(f"{name}: ").strip())
                elif text.endswith(f"{HINT}\n"):
                    usage.append(text.partition(": ")[2].strip().removesuffix(HINT))
                elif text.startswith(DEPRECATED):
                    warn(as_keywords(text.removeprefix(DEPRECATED).strip(), names()))
                elif not quiet:
                    print(text, end="")
        except KeyboardInterrupt:
            process.send_signal(signal.SIGINT)
            for text in process.stdout:
                if not quiet:
                    print(text, end="")
            raise
    if process.returncode and usage:
        raise UsageError(as_keywords(usage[-1], names()))
    if process.returncode:
        message = "; ".join(dict.fromkeys(problems)) or f"{module} ended with exit code {process.returncode}"
        raise CommandError(as_keywords(message, names()), process.returncode)
