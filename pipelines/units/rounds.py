"""The rounds of a staged run, between its first stage and the commit: decisions that need all documents, then the rest.

    all units staged -> duplicates -> near-duplicates -> limit -> held-out groups -> finish, by unit -> commit

Each round deals out its elements, numbers of slices or of units, and begins when the one before has ended.
"""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial

from clearspan.pipelines.units import decisions, linking
from clearspan.pipelines.units.curation import Curation
from clearspan.pipelines.units.job import (
    CANDIDATES,
    CODES,
    DUPLICATES,
    ELIGIBLE,
    HELD,
    LIMIT,
    NEAR,
    REPLIES,
    SENT,
    SIMILAR,
    SIZES,
    Job,
    UnitResult,
    done_units,
)
from clearspan.pipelines.units.unit import finish_unit
from clearspan.shards import storage

Element = tuple[int, int]
"""A slice or a unit, and the number of slices."""


_BY_SLICE, _BY_UNIT, _ONCE = "slice", "unit", "once"


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
    near = curation.near_dedup is not None
    made = [
        (curation.dedup, "Find duplicates", DUPLICATES, _BY_SLICE, decisions.find_duplicates),
        (near, "Find candidates", CANDIDATES, _BY_SLICE, decisions.find_candidates),
        (near, "Look up codes", CODES, _BY_UNIT, decisions.find_codes),
        (near, "Compare", SIMILAR, _BY_SLICE, decisions.find_similar),
        (near, "Put together", NEAR, _BY_UNIT, decisions.find_near),
        (curation.limit is not None, "Limit", LIMIT, _ONCE, decisions.find_limits),
    ]
    deciding = [Round(name, partial(_undecided, of, by), work) for needed, name, of, by, work in made if needed]
    if curation.is_linked:
        iterations = itertools.chain.from_iterable(map(_iteration, range(linking.ITERATIONS)))
        chosen = [
            ("Count groups", SIZES, _BY_UNIT, decisions.count_groups),
            ("Weigh groups", ELIGIBLE, _BY_SLICE, decisions.weigh_groups),
            ("Hold out", HELD, _BY_SLICE, decisions.find_held_out),
        ]
        deciding += [*iterations, *(Round(name, partial(_undecided, of, by), work) for name, of, by, work in chosen)]
    return [*deciding, Round("Finish", _unfinished, finish_unit)]


def _iteration(number: int) -> list[Round]:
    """Return the rounds in which units and slices exchange names of groups of rows that share texts."""
    made = [("Send names", SENT, _BY_UNIT, decisions.send_names), ("Reply", REPLIES, _BY_SLICE, decisions.reply)]
    return [
        Round(f"{name} {number}", partial(_unnamed, number, f"{of}{number}", by), partial(work, iteration=number))
        for name, of, by, work in made
    ]


def _undecided(decision: str, by: str, job: Job) -> list[Element]:
    """Return the slices or units that have not decided yet; none if all units have their verdicts."""
    if len(decisions.units_with_verdicts(job)) == job.num_units:
        return []
    slices = decisions.num_slices(job)
    folder, _, _ = job.decision_name(decision, 0).rpartition("/")
    decided = {f"{folder}/{name}" for name in storage.list_files(job.path(folder))}
    numbers = range({_BY_SLICE: slices, _BY_UNIT: job.num_units, _ONCE: 1}[by])
    return [(number, slices) for number in numbers if job.decision_name(decision, number) not in decided]


def _unnamed(iteration: int, decision: str, by: str, job: Job) -> list[Element]:
    """Return what is undecided in an iteration; none if the one before had no replies."""
    return [] if decisions.has_converged(job, iteration) else _undecided(decision, by, job)


def _unfinished(job: Job) -> list[Element]:
    slices = decisions.num_slices(job)
    return [(unit, slices) for unit in sorted(set(range(job.num_units)) - done_units(job.folder))]
