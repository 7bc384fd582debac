"""Progress of a run, which polls for the results of units and so works with any runner.

On a terminal it is a bar. Elsewhere it is one line about the time of the whole run, if that is long.
"""

import threading
import time
from types import TracebackType

from tqdm import tqdm

from clearspan.common.progress import LONG_S, about, counted, duration, tell
from clearspan.pipelines.units.job import STAGED, done_units
from clearspan.pipelines.units.plan import Unit

POLL_S = 0.5


def _units(folder: str) -> set[int]:
    return done_units(folder) | done_units(folder, STAGED)


class Progress:
    """Progress bar of input bytes, updated by a thread; a line if stderr is not a terminal.

    Args:
        at_once: number of units that are processed at the same time. As many finish before the time is estimated.
    """

    def __init__(self, folder: str, units: tuple[Unit, ...], quiet: bool, at_once: int = 1) -> None:
        self.folder, self.at_once = folder, at_once
        self.bytes = {unit.number: unit.bytes for unit in units}
        self.seen = _units(folder)
        self.bar = tqdm(
            total=sum(self.bytes.values()),
            initial=self._done(self.seen),
            unit="B",
            unit_scale=True,
            disable=True if quiet else None,
        )
        self._waits = self.bar.disable and not quiet
        """Return whether the line is still to be printed."""
        self._unknown = False
        self.before, self._start = self.seen, time.perf_counter()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _done(self, units: set[int]) -> int:
        return sum(self.bytes.get(unit, 0) for unit in units)

    def poll(self) -> None:
        """Advance the bar by the units that have finished since the last call, or print the line once it is known."""
        units = _units(self.folder)
        self.bar.update(self._done(units - self.seen))
        self.seen = units
        if self._waits:
            self._estimate(units - self.before)

    def _estimate(self, finished: set[int]) -> None:
        elapsed, left = time.perf_counter() - self._start, self.bytes.keys() - self.before
        work = f"{self._done(left) / 1e6:,.0f} MB in {counted(len(left), 'unit')}"
        if len(finished) >= self.at_once and (done := self._done(finished)):
            self._waits = False
            if (seconds := elapsed / done * self._done(left)) >= LONG_S and finished < left:
                tell(about(seconds, work))
        elif not finished and elapsed >= LONG_S and not self._unknown:
            self._unknown = True
            tell(f"{work}: the first is not finished after {duration(elapsed)}")

    def _watch(self) -> None:
        while (self._waits or not self.bar.disable) and not self._end.wait(POLL_S):
            self.poll()

    def __enter__(self) -> "Progress":
        self._start = time.perf_counter()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.set()
        self._thread.join()
        if not self.bar.disable:
            self.poll()
        self.bar.close()
