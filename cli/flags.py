"""Flags: the spelling of an option on a command line, also in messages while a command runs.

    `min_tokens` must be at least 1    in Python, in JSON, and in an exception
    --min-tokens must be at least 1    printed by a command

A message names an option by its field in backticks. No other word of a message stands alone in backticks: names of
files and columns stand in quotes.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator

from clearspan.common import terminal
from clearspan.common.options import OptionField

NAME = re.compile(r"`([a-z][a-z0-9_]*)`")
_irregular: dict[str, str] | None = None
"""Field -> flag, for flags that do not follow from the field's name; None if no command runs in this process."""


def flag_of(field: OptionField) -> str:
    """Return the flag of an option, e.g. "--min-tokens"."""
    return field.flag.name or (f"--{field.keyword}" if field.owner.underscores else regular(field.keyword))


def regular(name: str) -> str:
    """Return the flag that follows from the name of a field: "--min-tokens" for `min_tokens`."""
    return f"--{name.replace('_', '-')}"


def in_flags(message: str) -> str:
    """Return a message with flags in place of the fields in backticks."""
    known = _irregular or {}
    return NAME.sub(lambda match: known.get(match[1]) or regular(match[1]), message)


def register(flags: Iterable[str]) -> None:
    """Let `in_flags` write flags as they are spelled here, e.g. `--num_gpus`, while a command runs."""
    if _irregular is not None:
        _irregular.update({flag.removeprefix("--").replace("-", "_"): flag for flag in flags})


@contextlib.contextmanager
def command_line() -> Iterator[None]:
    """Print options as flags within the `with` block."""
    global _irregular
    outside, _irregular = _irregular, {**(_irregular or {})}
    try:
        with terminal.spelling(in_flags):
            yield
    finally:
        _irregular = outside
