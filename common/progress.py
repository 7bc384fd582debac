"""Progress of long work, on stderr: tqdm's bar on a terminal, otherwise a line every half minute."""

import sys
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

Item = TypeVar("Item")

LONG_S = 30.0
"""Seconds before the first line, and between two lines, if stderr is not a terminal."""
UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0))


def duration(seconds: float) -> str:
    """Return a time as text, in the largest unit in which it is at least 2, e.g. `238 days`."""
    for name, size in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}" if seconds < 10 * size else f"{seconds / size:,.0f} {name}"
    return f"{seconds:.3g} s"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, e.g. `1 run` or `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


class ProgressBar(tqdm):  # type: ignore[type-arg, unused-ignore]  # a generic class in its stubs only
    """A tqdm progress bar that stays on the screen when it is closed, unless it is inside another bar.

    If stderr is not a terminal, the bar is printed as a line every 30 seconds. Work that ends sooner prints no line.

    Args:
        total: the number of items; None if it is not known.
        work: a description of the work, e.g. `embedding 50,000 texts`.
        quiet: True to show nothing.
        options: further arguments of `tqdm`.
    """

    def __init__(self, total: float | None, work: str, quiet: bool = False, **options: Any) -> None:
        seldom = {} if sys.stderr.isatty() else dict.fromkeys(("delay", "mininterval", "maxinterval"), LONG_S)
        super().__init__(total=total, desc=work, disable=quiet, leave=None, **{**seldom, **options})

    def display(self, msg: str | None = None, pos: int | None = None) -> None:
        """Draw the bar on a terminal; if stderr is not a terminal, print the bar as a line.

        tqdm calls this method.

        Args:
            msg: the text to draw on a terminal; None to draw the bar. If stderr is not a terminal, "" prints nothing,
                and any other value prints the bar.
            pos: the bar's line on the terminal, counted from the cursor's line; None for tqdm's choice.
        """
        if sys.stderr.isatty():
            super().display(msg, pos)
        elif msg != "":
            self.fp.write(f"{self}\n")

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items, advance the bar when the next item is requested, and close the bar at the end."""
        with self:
            for item in items:
                yield item
                self.update()
