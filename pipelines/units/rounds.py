"""The rounds of a staged run, between its first stage and the commit: decisions that need all documents, then the rest.

    all units staged -> duplicates, by slice -> limit -> held-out groups -> finish, by unit -> commit

Each round deals out its elements, numbers of slices or of units, and begins when the one before has ended.
"""

import dataclasses
from collections.abc import Callable
from functools import partial

from clearspan.pipelines.units import decisions
from clearspan.pipelines.units.curation import Curation
from clearspan.pipelines.units.job import Job, UnitResult, done_units
from clearspan.pipelines.units.unit import finish_unit
from clearspan.shards import storage

Element = tuple[int, int]
"""A slice or a unit, and the number of slices."""


@dataclasses.dataclass(frozen=True)
class Round:
    """A round.

    Attributes:
        name: label of its step in Beam.
        elements: returns what remains to be done.
        work: does an element; a repetition writes the same files.
    """

    name: str
    elements: Callable[[Job], list[Element]]
    work: Callable[[Job, int, int], UnitResult | None]


def rounds(curation: Curation) -> list[Round]:
    """Return the rounds that a curation needs, in order."""
    made = []
    if curation.dedup:
        made.append(Round("Find duplicates", partial(_undecided, decisions.DUPLICATES), decisions.find_duplicates))
    if curation.limit is not None:
        made.append(Round("Limit", partial(_undecided, decisions.LIMIT), decisions.find_limits))
    if curation.is_linked:
        made.append(Round("Hold out", partial(_undecided, decisions.HELD), decisions.find_held_out))
    return [*made, Round("Finish", _unfinished, finish_unit)]


def _undecided(decision: str, job: Job) -> list[Element]:
    """Return the slices that have not decided yet; none if all units have their verdicts."""
    if len(decisions.units_with_verdicts(job)) == job.num_units:
        return []
    slices, decided = decisions.num_slices(job), storage.list_files(job.staged_folder)
    numbers = range(slices if decision in decisions.BY_SLICE else 1)
    return [(each, slices) for each in numbers if job.decision_name(decision, each).rpartition("/")[2] not in decided]


def _unfinished(job: Job) -> list[Element]:
    slices = decisions.num_slices(job)
    return [(unit, slices) for unit in sorted(set(range(job.num_units)) - done_units(job.folder))]
