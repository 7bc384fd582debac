"""Options in messages. A message names an option by its field in backticks, and a command line prints it as a flag.

    `min_tokens` must be at least 1    in Python, in JSON, and in an exception
    --min-tokens must be at least 1    printed by a command

No other word of a message stands alone in backticks: names of files and columns stand in quotes.
"""

import contextlib
import re
from collections.abc import Iterable, Iterator

NAME = re.compile(r"`([a-z][a-z0-9_]*)`")
_flags: dict[str, str] | None = None
"""Field -> flag, of flags that do not follow from the field's name; None if no command runs in this process."""


def as_printed(message: str) -> str:
    """Return a message as this process prints it: with flags in place of the fields in backticks if a command runs."""
    if _flags is None:
        return message
    known = _flags
    return NAME.sub(lambda match: known.get(match[1]) or f"--{match[1].replace('_', '-')}", message)


def register(flags: Iterable[str]) -> None:
    """Let `as_printed` write flags as they are spelled here, e.g. `--num_gpus`, while a command runs."""
    if _flags is not None:
        _flags.update({flag.removeprefix("--").replace("-", "_"): flag for flag in flags})


@contextlib.contextmanager
def command_line() -> Iterator[None]:
    """Print options as flags within the `with` block."""
    global _flags
    outside, _flags = _flags, {**(_flags or {})}
    try:
        yield
    finally:
        _flags = outside
