"""Stopwatch for the stages of a worker's work.

Times are never written to a dataset's files: they reach the driver as Beam counters.
"""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
FIRST, LAST = ("read",), ("write", "other")
"""Stages that every run times; the stages of its kind are printed between them."""


class Stopwatch:
    """Sum of seconds by stage, since its creation."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        """Add the time of the `with` block to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self._add(stage, time.perf_counter() - start)

    def each(self, stage: str, items: Iterable[T]) -> Iterator[T]:
        """Yield the items, and add the time to produce them to a stage."""
        clock = time.perf_counter
        start = clock()
        for item in items:
            self._add(stage, clock() - start)
            yield item
            start = clock()
        self._add(stage, clock() - start)

    def _add(self, stage: str, seconds: float) -> None:
        self.seconds[stage] = self.seconds.get(stage, 0.0) + seconds

    def stop(self) -> dict[str, float]:
        """Return the seconds of each stage; the rest of the time is "other"."""
        total = time.perf_counter() - self._start
        return {**self.seconds, "other": max(0.0, total - sum(self.seconds.values()))}


def percentages(seconds: dict[str, float]) -> str:
    """Return, e.g., "read 12 %, tokenize 60 %, write 20 %, other 8 %"."""
    total = sum(seconds.values())
    between = [stage for stage in seconds if stage not in (*FIRST, *LAST)]
    timed = [stage for stage in (*FIRST, *between, *LAST) if stage in seconds]
    return ", ".join(f"{stage} {100 * seconds[stage] / total:.0f} %" for stage in timed) if total else ""
