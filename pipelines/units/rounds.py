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
from clearspan.pipelines.units.job import (
    BANDS,
    CANDIDATES,
    CODES,
    DUPLICATES,
    KEYS,
    LIMIT,
    SHARED,
    SIMILAR,
    TEXTS,
    Job,
)
from clearspan.pipelines.units.keys import KEY, TEXT
from clearspan.pipelines.units.unit import finish_unit
from clearspan.shards import storage

Element = tuple[int, int]
"""A slice or a unit, and the number of slices."""


@dataclasses.dataclass(frozen=True)
class Round:
    """A round.

    Attributes:
        name: label of its step in Beam.
        numbers: returns the numbers of its elements, from the job and the number of slices.
        output: returns the path of the file that an element writes last.
        work: does an element; a repetition writes the same files.
        decides: it is only needed until all units have their verdicts.
    """

    name: str
    numbers: Callable[[Job, int], range]
    output: Callable[[Job, int], str]
    work: Callable[[Job, int, int], None]
    decides: bool = False

    def elements(self, job: Job) -> list[Element]:
        """Return the elements that remain to be done."""
        if self.decides and decisions.have_verdicts(job):
            return []
        slices = decisions.num_slices(job)
        folder, _, _ = self.output(job, 0).rpartition("/")
        done = {f"{folder}/{name}" for name in storage.list_files(folder)}
        return [(number, slices) for number in self.numbers(job, slices) if self.output(job, number) not in done]


def rounds(curation: Curation) -> list[Round]:
    """Return the rounds that a curation needs, in order."""
    is_near = curation.near_dedup is not None
    made = [
        (curation.dedup, _by_key("Find duplicates", KEYS, KEY, decisions.duplicates, DUPLICATES)),
        (is_near, _by_key("Find candidates", BANDS, near.BAND, decisions.candidates, CANDIDATES)),
        (is_near, Round("Look up codes", _units, _path(CODES), decisions.find_codes, decides=True)),
        (is_near, _by_key("Compare", CODES, near.CANDIDATE, decisions.similar, SIMILAR)),
        (curation.separates_texts, _by_key("Find held-out texts", TEXTS, TEXT, decisions.held_out_texts, SHARED)),
        (True, Round("Put together", _units, Job.verdicts_path, decisions.put_together, decides=True)),
        (curation.limit is not None, Round("Limit", _once, _path(LIMIT), decisions.find_limits)),
        (True, Round("Finish", _units, Job.done_path, finish_unit)),
    ]
    return [each for is_needed, each in made if is_needed]


def _by_key(name: str, source: str, dtype: np.dtype, decide: decisions.Decide, decision: str) -> Round:
    """Return a round of slices, which decide on the entries `source` of all units."""
    work = partial(decisions.by_key, source=source, dtype=dtype, decide=decide, decision=decision)
    return Round(name, _slices, _path(decision), work, decides=True)


def _path(decision: str) -> Callable[[Job, int], str]:
    return lambda job, number: job.entries_path(decision, number)


def _slices(_: Job, slices: int) -> range:
    return range(slices)


def _units(job: Job, _: int) -> range:
    return range(job.num_units)


def _once(_: Job, __: int) -> range:
    return range(1)
