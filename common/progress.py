"""Progress of long work: a bar on a terminal, elsewhere one line that says how long the work takes.

    Bar      tqdm's bar; without a terminal, "about 6.2 min for 50,000 texts" once that is known, if it is long
    stage    the name of a part of a command's work, in front of these lines, e.g. "task 3 of 17, MR"

Lines go to stderr. Nothing is printed for short work, nor with `--quiet`.
"""

import contextlib
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from tqdm import tqdm

from clearspan.common.terminal import visible

Item = TypeVar("Item")

LONG_S = 30.0
"""Work that takes longer than this says how long it takes."""
SAMPLE_S = 5.0
"""Seconds of work, without its start-up, after which the time of the rest is estimated."""
UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("h", 3600.0), ("min", 60.0))
_stages: list[str] = []
"""Names of the stages that run, outermost first. Bars in other threads tell them too."""
_last_line = [0.0]
"""When the last line about a stage was printed, or the first stage began."""


def duration(seconds: float) -> str:
    """Return a time as text, in the largest unit of which it has at least two, e.g. `238 days`."""
    for name, size in UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:,.1f} {name}" if seconds < 10 * size else f"{seconds / size:,.0f} {name}"
    return f"{seconds:.3g} s"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, e.g. `1 run` or `1,200 runs`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def about(seconds: float, work: str) -> str:
    """Return the line about the time of a piece of work, e.g. `about 6.2 min for 160 steps`."""
    return f"about {duration(seconds)} for {work}"


def tell(line: str = "") -> None:
    """Print a line on stderr, after the names of the stages; above a bar, if one is shown."""
    with tqdm.external_write_mode(file=sys.stderr):
        print(visible(": ".join(filter(None, [*_stages, line]))), file=sys.stderr, flush=True)
    _last_line[0] = time.perf_counter()


@contextlib.contextmanager
def stage(name: str, quiet: bool = False) -> Iterator[None]:
    """Name a part of a command's work, for the lines of the work inside. Inside another stage, its name is printed if
    nothing was printed for LONG_S, so that many short parts of long work show too.
    """
    outermost = not _stages
    _stages.append(name)
    try:
        if outermost:
            _last_line[0] = time.perf_counter()
        elif not quiet and time.perf_counter() - _last_line[0] > LONG_S:
            tell()
        yield
    finally:
        _stages.pop()


class Bar(tqdm):  # type: ignore[type-arg, unused-ignore]  # a generic class in its stubs only
    """A progress bar; without a terminal, one line about the time of the whole work if that is long.

    The time before the first update counts as start-up, and does not enter the rate of the rest.

    Args:
        total: number of items.
        work: the work as the line names it, e.g. `embedding 50,000 texts`.
        quiet: show neither bar nor line.
        cost: total cost of the items, of which each update says its part; None: each item costs the same.
    """

    def __init__(self, total: float, work: str, quiet: bool = False, cost: float | None = None, **options: Any) -> None:
        super().__init__(total=total, disable=True if quiet else None, **options)
        self.work, self.cost = work, total if cost is None else cost
        self._waits = self.disable and not quiet
        self._done = 0.0
        self._start = time.perf_counter()
        self._first: tuple[float, float] | None = None
        """(time, cost done) at the first update."""

    def update(self, n: float | None = 1, cost: float | None = None) -> bool | None:
        """Advance the bar; without a terminal, print the line as soon as the time is known and long."""
        if self._waits:
            now, self._done = time.perf_counter(), self._done + ((n or 0) if cost is None else cost)
            if self._first is None:
                self._first = now, self._done
            elif now - self._first[0] >= SAMPLE_S and self._done > self._first[1]:
                rate = (self._done - self._first[1]) / (now - self._first[0])
                seconds = self._first[0] - self._start + (self.cost - self._first[1]) / rate
                if seconds >= LONG_S:
                    self._waits = False
                    tell(about(seconds, self.work))
        shown: bool | None = super().update(n)
        return shown

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """Yield items, and count each when the next one is asked for; close the bar at the end."""
        with self:
            for item in items:
                yield item
                self.update()
