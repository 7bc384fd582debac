"""Rounds of a run in two stages: the steps between the first stage of all work units and the commit.

    first stage of all units -> duplicates -> near-duplicates -> held-out groups -> marks of each unit -> limit
                             -> final shards of each unit -> commit

In a round, each work unit, or each slice of the range of hashes (`exchange`), does a part of the work, which is called
an element of the round. Elements are distributed over the workers; the next round begins when all elements are done.
"""

import dataclasses
import itertools
from collections.abc import Callable
from functools import partial

import numpy as np

from clearspan.pipelines.units import decisions, linking, near
from clearspan.pipelines.units.curation import Curation
from clearspan.pipelines.units.job import Entries, Job
from clearspan.pipelines.units.keys import KEY
from clearspan.pipelines.units.unit import finish_unit
from clearspan.shards import storage

ENTRIES = ".rows"
"""Suffix of the files that a continued run verifies here. Marks and results are verified where they are read."""
Element = tuple[int, int]
"""(number of a slice or of a unit, total number of slices)."""


@dataclasses.dataclass(frozen=True)
class Round:
    """A round: a step of a run whose work is divided into elements, one for each work unit, or one for each slice.

    A slice is a part of the range of hashes by which examples are compared (`exchange`).

    Attributes:
        name: the label of the round's step in Beam.
        work: a function that does the work of an element; its arguments are the job, the number of the element (of the
            unit or slice) and the number of slices. If it is repeated, it writes the same files again.
        output: a function that returns the path of the last file that the work on an element writes; its arguments are
            the job and the number of the element. The element is done if this file exists and is not damaged.
        elements_of: a function that returns the number of elements; its arguments are the job and the number of slices.
        decides: whether the round serves only to make the marks of the examples. If so, it is skipped when all units
            have files of marks.
        is_over: a function that returns whether earlier rounds have made this round unnecessary; its argument is the
            job.
    """

    name: str
    work: Callable[[Job, int, int], None]
    output: Callable[[Job, int], str]
    elements_of: Callable[[Job, int], int] = lambda job, _: job.num_units
    decides: bool = True
    is_over: Callable[[Job], bool] = lambda _: False

    def elements(self, job: Job) -> list[Element]:
        """Return the elements that remain to be done, because their output is missing or damaged.

        An element stands for a work unit or a slice, as (number of the unit or slice, total number of slices). The list
        is empty if the round is unnecessary.
        """
        if (self.decides and decisions.have_marks(job)) or self.is_over(job):
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
    """Return the rounds that the options of a curation require, such as the search for duplicates, in order."""
    is_near, is_limited = curation.near_dedup is not None, curation.limit is not None
    made = [
        (curation.dedup, _by_key("Find duplicates", Entries.KEYS, KEY, decisions.duplicates, Entries.DUPLICATES)),
        (is_near, _by_key("Find candidates", Entries.BANDS, near.BAND, decisions.candidates, Entries.CANDIDATES)),
        (is_near, Round("Look up codes", decisions.find_codes, _path(Entries.CODES))),
        (is_near, _by_key("Compare", Entries.CODES, near.CANDIDATE, decisions.similar, Entries.SIMILAR)),
        *((curation.is_linked, each) for each in _held_out_groups()),
        (
            curation.group_field is not None,
            Round("Count rows together", decisions.count_together, _path(Entries.TOGETHER), lambda *_: 1),
        ),
        (True, Round("Put together", decisions.put_together, Job.marks_path)),
        (is_limited, Round("Limit", decisions.find_limits, _path(Entries.LIMIT), lambda *_: 1, decides=False)),
        (True, Round("Finish", finish_unit, Job.result_path, decides=False)),
    ]
    return [each for is_needed, each in made if is_needed]


def _held_out_groups() -> list[Round]:
    """Return the rounds that find groups of rows that share texts (`linking`), and choose the groups to hold out."""
    iterations = itertools.chain.from_iterable(map(_iteration, range(linking.ITERATIONS)))
    return [
        *iterations,
        Round("Count groups", decisions.count_groups, _path(Entries.SIZES)),
        Round("Add up", decisions.add_up, _path(Entries.ROWS), lambda *_: 1),
        Round("Weigh groups", decisions.weigh_groups, _path(Entries.ELIGIBLE), lambda _, slices: slices),
        Round("Hold out", decisions.find_held_out, _path(Entries.GROUPS), lambda _, slices: slices),
    ]


def _iteration(number: int) -> list[Round]:
    """Return the two rounds of an iteration by which the work units give every group of rows a common name (`linking`).

    In the first round, the units send the names that they use for their groups. In the second round, slices reply with
    the smallest names of these groups. The rounds are skipped if the previous iteration had no replies.

    Args:
        number: the number of the iteration, from 0.
    """
    sent, replies = (f"{entries}{number}" for entries in (Entries.SENT, Entries.REPLIES))
    decide = decisions.reply if number else decisions.reply_to_all
    made = [
        Round(f"Send names {number}", partial(decisions.send_names, iteration=number), _path(sent)),
        _by_key(f"Reply {number}", sent, linking.MEMBER, decide, replies),
    ]
    return [dataclasses.replace(each, is_over=partial(decisions.has_converged, iteration=number)) for each in made]


def _by_key(name: str, source: str, dtype: np.dtype, decide: decisions.Decide, decision: str) -> Round:
    """Return a round in which each slice decides on entries of all work units: those with keys in its range of hashes.

    Args:
        name: the label of the round's step in Beam.
        source: the type of the entries to read, a value of `Entries`, such as KEYS.
        dtype: the dtype of the entries to read.
        decide: a function of the entries and the options of curation. It returns the indices of the entries that it has
            decided on, and the decisions, which are sent to the units that these entries come from.
        decision: the type of the decisions to write, a value of `Entries`, such as DUPLICATES.
    """
    work = partial(decisions.by_key, source=source, dtype=dtype, decide=decide, decision=decision)
    return Round(name, work, _path(decision), lambda _, slices: slices)


def _path(decision: str) -> Callable[[Job, int], str]:
    return lambda job, number: job.entries_path(decision, number)
