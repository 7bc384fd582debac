"""Keyword arguments of a Python function as the options of a command: one definition and one check for both.

    min_tokens=512, dedup=True, exclude=["a.txt"]  ->  --min-tokens=512 --dedup --exclude=a.txt

`RaisingParser` then raises `UsageError` where the command would print the same line and exit.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NoReturn

from clearspan.common.terminal import Parser

Option = str | int | float | bool | Path | Sequence[str | Path] | None
"""Value of an option: True for an option without a value, a sequence for one that may be repeated, None or False to
leave it out."""


class UsageError(ValueError):
    """An option is unknown, missing or has a value that cannot work. The message is one line for the user."""


class RaisingParser(Parser):
    """Argument parser that raises UsageError instead of exiting."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """Raise the message of an error, without the command's name and the pointer to its help."""
        raise UsageError((message or "").strip().removeprefix(f"{self.prog}: ").removesuffix(" (see --help)"))


def words(options: Mapping[str, Option]) -> list[str]:
    """Return the words of a command line that set the options."""
    line = []
    for name, value in options.items():
        flag = f"--{name.replace('_', '-')}"
        if value is True:
            line.append(flag)
        elif isinstance(value, str | int | float | Path) and value is not False:
            line.append(f"{flag}={value}")
        elif value:
            line += [f"{flag}={item}" for item in value]
    return line
