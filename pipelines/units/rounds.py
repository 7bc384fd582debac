"""The rounds of a staged run, between its first stage and the commit: decisions that need all documents, then the rest.

    all units staged -> duplicates -> near-duplicates -> held-out texts -> verdicts, by unit -> limit -> finish, by unit
                     -> commit

Each round deals out its elements, numbers of slices or of units, and begins when the one before has ended.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

import numpy as np

from clearspan.pipelines.units import decisions, near
from clearspan.pipelines.units.curation import Curation
from clearspan.pipelines.units.job import Entries, Job
from clearspan.pipelines.units.keys import KEY, TEXT
from clearspan.pipelines.units.unit import finish_unit
from clearspan.shards import storage

ENTRIES = ".rows"
"""Suffix of files of decisions. The reader of another output checks it: verdicts, the result of a unit."""
Element = tuple[int, int]
"""A slice or a unit, and the number of slices."""


@dataclasses.dataclass(frozen=True)
class Round:
    """A round.

    Attributes:
        name: label of its step in Beam.
        work: does an element; a repetition writes the same files.
        output: returns the path of the file that an element writes last.
        elements_of: returns the number of elements, from the job and the number of slices.
        decides: it is only needed until all units have their verdicts.
    """

    name: str
    work: Callable[[Job, int, int], None]
    output: Callable[[Job, int], str]
    elements_of: Callable[[Job, int], int] = lambda job, _: job.num_units
    decides: bool = True

    def elements(self, job: Job) -> list[Element]:
        """Return the elements that remain to be done: they have no output, or a damaged one."""
        if self.decides and decisions.have_verdicts(job):
            return []
        slices = decisions.num_slices(job)
        folder, _, _ = self.output(job, 0).rpartition("/")
        done = {f"{folder}/{name}" for name in storage.list_files(folder)}
        paths = [self.output(job, number) for number in range(self.elements_of(job, slices))]
        written = [path for path in paths if path in done and path.endswith(ENTRIES)]
        checks = storage.each(folder, decisions.is_whole, written)
        damaged = {path for path, whole in zip(written, checks, strict=True) if not whole}
        return [(number, slices) for number, path in enumerate(paths) if path not in done or path in damaged]


def rounds(curation: Curation) -> list[Round]:
    """Return the rounds that a curation needs, in order."""
    is_near, shares, is_limited = curation.near_dedup is not None, curation.separates_texts, curation.limit is not None
    made = [
        (curation.dedup, _by_key("Find duplicates", Entries.KEYS, KEY, decisions.duplicates, Entries.DUPLICATES)),
        (is_near, _by_key("Find candidates", Entries.BANDS, near.BAND, decisions.candidates, Entries.CANDIDATES)),
        (is_near, Round("Look up codes", decisions.find_codes, _path(Entries.CODES))),
        (is_near, _by_key("Compare", Entries.CODES, near.CANDIDATE, decisions.similar, Entries.SIMILAR)),
        (shares, _by_key("Find held-out texts", Entries.TEXTS, TEXT, decisions.held_out_texts, Entries.SHARED)),
        (True, Round("Put together", decisions.put_together, Job.verdicts_path)),
        (is_limited, Round("Limit", decisions.find_limits, _path(Entries.LIMIT), lambda *_: 1, decides=False)),
        (True, Round("Finish", finish_unit, Job.result_path, decides=False)),
    ]
    return [each for is_needed, each in made if is_needed]


def _by_key(name: str, source: str, dtype: np.dtype, decide: decisions.Decide, decision: str) -> Round:
    """Return a round of slices, which decide on the entries `source` of all units."""
    work = partial(decisions.by_key, source=source, dtype=dtype, decide=decide, decision=decision)
    return Round(name, work, _path(decision), lambda _, slices: slices)


def _path(decision: str) -> Callable[[Job, int], str]:
    return lambda job, number: job.entries_path(decision, number)
