"""Progress bar of a run. It looks for result files of units in the output folder, and so works with any runner."""

import threading
import time

from clearspan.common.progress import ProgressBar, counted, duration
from clearspan.common.terminal import warn
from clearspan.pipelines.units.job import STAGED, done_units
from clearspan.pipelines.units.plan import Unit
from clearspan.shards.command import PREFIX

POLL_S = 0.5
STALLED_S = 600.0
"""Seconds without a finished unit after which a line says so, if workers run elsewhere."""


class Progress(ProgressBar):
    """Progress bar of a run, in bytes of input.

    It covers the work units that are not finished when the bar is created. A thread advances it whenever a unit is
    finished.

    Args:
        folder: the output folder.
        units: all work units of the run.
        quiet: show no bar.
        elsewhere: whether workers run on other machines. If no unit finishes for 10 minutes, a line says so: some
            runners wait forever for a worker whose machine is gone.
    """

    def __init__(self, folder: str, units: tuple[Unit, ...], quiet: bool, elsewhere: bool = False) -> None:
        self._end, self.disable = threading.Event(), True  # so that `close` works if a line below fails
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.folder, self.elsewhere = folder, elsewhere
        self._numbers, self._since = (0, 0), time.monotonic()
        finished = self._finished()
        self.left = {unit.number: unit.bytes for unit in units if unit.number not in finished}
        super().__init__(sum(self.left.values()), counted(len(self.left), "unit"), quiet, unit="B", unit_scale=True)

    def poll(self) -> None:
        """Advance the bar by the bytes of the units that have finished since the last call."""
        for unit in self._finished() & self.left.keys():
            self.update(self.left.pop(unit))

    def _finished(self) -> set[int]:
        """Return the numbers of the units that have finished a stage; print a line if that was long ago."""
        done, staged = done_units(self.folder), done_units(self.folder, STAGED)
        numbers, now = (len(done), len(staged)), time.monotonic()
        if numbers != self._numbers:
            self._numbers, self._since = numbers, now
        elif self.elsewhere and now - self._since >= STALLED_S:
            self._since = now
            warn(
                f"{PREFIX}: no work unit has finished for {duration(STALLED_S)}: if a worker's host is gone, stop this "
                f"command and run it again to continue"
            )
        return done | staged

    def _watch(self) -> None:
        while not self._end.wait(POLL_S):
            self.poll()

    def __enter__(self) -> "Progress":
        self._thread.start()
        return self

    def close(self) -> None:
        self._end.set()
        if self._thread.is_alive():
            self._thread.join()
        if not self.disable:
            self.poll()
        super().close()
