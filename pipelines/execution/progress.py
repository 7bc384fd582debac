"""Progress bar of a run. It looks for result files of units in the output folder, and so works with any runner."""

import threading

from clearspan.common.progress import ProgressBar, counted
from clearspan.pipelines.units.job import STAGED, done_units
from clearspan.pipelines.units.plan import Unit

POLL_S = 0.5


def _finished(folder: str) -> set[int]:
    return done_units(folder) | done_units(folder, STAGED)


class Progress(ProgressBar):
    """Progress bar of a run, in bytes of input.

    It covers the work units that are not finished when the bar is created. A thread advances it whenever a unit is
    finished.
    """

    def __init__(self, folder: str, units: tuple[Unit, ...], quiet: bool) -> None:
        self._end, self.disable = threading.Event(), True  # so that `close` works if a line below fails
        self._thread = threading.Thread(target=self._watch, daemon=True)
        finished = _finished(folder)
        self.folder = folder
        self.left = {unit.number: unit.bytes for unit in units if unit.number not in finished}
        super().__init__(sum(self.left.values()), counted(len(self.left), "unit"), quiet, unit="B", unit_scale=True)

    def poll(self) -> None:
        """Advance the bar by the bytes of the units that have finished since the last call."""
        for unit in _finished(self.folder) & self.left.keys():
            self.update(self.left.pop(unit))

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
