"""Progress bar of a run, which polls for the results of units and so works with any runner."""

import threading
from types import TracebackType

from tqdm import tqdm

from clearspan.pipelines.units.job import STAGED, done_units
from clearspan.pipelines.units.plan import Unit

POLL_S = 0.5


def _units(folder: str) -> set[int]:
    return done_units(folder) | done_units(folder, STAGED)


class Progress:
    """Progress bar of input bytes, updated by a thread; silent if stderr is not a terminal."""

    def __init__(self, folder: str, units: tuple[Unit, ...], quiet: bool) -> None:
        self.folder = folder
        self.bytes = {unit.number: unit.bytes for unit in units}
        self.seen = _units(folder)
        self.bar = tqdm(
            total=sum(self.bytes.values()),
            initial=self._done(self.seen),
            unit="B",
            unit_scale=True,
            disable=True if quiet else None,
        )
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _done(self, units: set[int]) -> int:
        return sum(self.bytes.get(unit, 0) for unit in units)

    def poll(self) -> None:
        """Advance the bar by the units that have finished since the last call."""
        units = _units(self.folder)
        self.bar.update(self._done(units - self.seen))
        self.seen = units

    def _watch(self) -> None:
        while not self._end.wait(POLL_S):
            self.poll()

    def __enter__(self) -> "Progress":
        if not self.bar.disable:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end.set()
        if not self.bar.disable:
            self._thread.join()
            self.poll()
        self.bar.close()
