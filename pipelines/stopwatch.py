"""Where a worker's time goes. Times never enter a dataset's files: they reach the driver as Beam's counters."""

import contextlib
import time
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")
STAGES = ("read", "tokenize", "write", "other")


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self._start = time.perf_counter()

    @contextlib.contextmanager
    def timing(self, stage: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] += time.perf_counter() - start

    def each(self, stage: str, items: Iterable[T]) -> Iterator[T]:
        """The items, with the time that each takes to come."""
        clock, seconds = time.perf_counter, self.seconds
        start = clock()
        for item in items:
            seconds[stage] += clock() - start
            yield item
            start = clock()
        seconds[stage] += clock() - start

    def stop(self) -> dict[str, float]:
        """Every stage's seconds; what none of them took is "other"."""
        total = time.perf_counter() - self._start
        self.seconds["other"] = max(0.0, total - sum(self.seconds[stage] for stage in STAGES if stage != "other"))
        return self.seconds


def shares(seconds: dict[str, float]) -> str:
    """e.g. "read 12 %, tokenize 60 %, write 20 %, other 8 %"."""
    total = sum(seconds.values())
    return ", ".join(f"{stage} {100 * seconds.get(stage, 0.0) / total:.0f} %" for stage in STAGES) if total else ""
