"""Beam graph of a run. It is the same for every kind of dataset and every runner.

    Create(units not done) | Reshuffle | ParDo(ProcessUnit) -> barrier -> Map(finish)

If examples of different work units are compared, for instance to drop duplicates, the run has two stages
(`units.decisions`). The second stage consists of rounds (`units.rounds`), and each round adds these steps before the
last barrier:

    barrier -> FlatMap(deal) | GroupByKey | Map(work)

The elements of the collections only describe work units and slices (ranges of hashes, `units.exchange`). The data that
units and slices read and write never passes through Beam.

After a barrier, a step begins only when the previous step has ended for all elements. A barrier is a GroupByKey with
one key. A GroupByKey of an empty collection yields nothing, so that the next step would not run; each step therefore
gets one more element, for which nothing has to be done. A barrier made of Count.Globally and Reshuffle would have more
stages, each of which takes time to start.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from clearspan.common.errors import PipelineError
from clearspan.common.terminal import one_line
from clearspan.pipelines.errors import carrying_errors
from clearspan.pipelines.units.commit import commit, remove_late_stage
from clearspan.pipelines.units.job import Job
from clearspan.pipelines.units.plan import Unit
from clearspan.pipelines.units.rounds import Element, Round, rounds
from clearspan.pipelines.units.unit import process_unit
from clearspan.shards import storage

DONE = (0, 0)
"""The output of a step for each element: the key of the barrier, and a value that is not used."""
NO_WORK: Element = (-1, 0)
"""The element without work, which every round gets."""


@contextlib.contextmanager
def _working(job: Job) -> Iterator[None]:
    """Context manager for the work of a Beam worker, which gives it access to the user's object stores.

    An expected error, such as PipelineError, is raised in a form that reaches the driver
    (`pipelines.errors.carrying_errors`).
    """
    with carrying_errors():
        if storage.is_remote(job.folder) or storage.is_remote(job.root):  # not every runner does this
            storage.use_options(job.beam)
        yield


@contextlib.contextmanager
def _tidying(job: Job) -> Iterator[None]:
    """Context manager for a step of the work, which leaves no files if the run has ended without this worker."""
    try:
        yield
    finally:
        remove_late_stage(job)


class ProcessUnit(beam.DoFn):  # type: ignore[misc]  # Beam's types are not followed
    """DoFn that processes work units. It yields DONE for each element.

    DONE is a pair of a key and an unused value. The key is the same for all elements, so that the next step, which
    groups by key, waits for all of them.

    One element is None instead of a work unit, so that the collection is never empty. Nothing is done for it.
    """

    def __init__(self, job: Job) -> None:
        self.job = job

    def setup(self) -> None:
        with _working(self.job):
            self.worker = self.job.worker()

    def process(self, unit: Unit | None) -> Iterator[tuple[int, int]]:
        if unit:
            with carrying_errors():
                self._process(unit)
        yield DONE

    def _process(self, unit: Unit) -> None:
        if storage.exists(self.job.stopped_path):
            raise PipelineError(json.loads(storage.read_bytes(self.job.stopped_path)))
        try:
            with _tidying(self.job):
                counts = process_unit(unit, self.job, self.worker).counts
        except PipelineError as error:
            # A retry cannot help, unlike after a failure of a disk or a network. Stop the other units too.
            with contextlib.suppress(OSError):
                storage.publish_bytes(json.dumps(one_line(error)).encode(), self.job.stopped_path)
            raise
        numbers = {"read": counts.read, "kept": counts.kept, "bad": counts.bad}
        numbers |= {f"filtered_{reason}": number for reason, number in counts.filtered.items()}
        for name, number in numbers.items():
            Metrics.counter("records", name).inc(number)


def deal(_: Any, job: Job, round_: Round) -> Iterator[tuple[Element, None]]:
    """Yield the elements of a round that remain to be done, each as a key with the value None.

    A round is a step of the run whose elements are work units or slices. Beam calls this function when the step before
    has ended, and groups the elements by key to distribute them over the workers. An additional element, NO_WORK, is
    yielded so that there is always one; nothing is done for it.

    Args:
        _: the output of the step before; not used.
        job: the description of the run: its folders, its kind, its options.
        round_: the round.
    """
    with _working(job):
        elements = round_.elements(job)
    for element in (NO_WORK, *elements):
        yield element, None


def work(keyed: tuple[Element, Any], job: Job, round_: Round) -> tuple[int, int]:
    """Do the work of one element of a round, a step of the run whose elements are work units or slices.

    Args:
        keyed: the element, and a value that is not used. Every round has one element NO_WORK, for which nothing is
            done.
        job: the description of the run: its folders, its kind, its options.
        round_: the round.

    Returns:
        DONE: a pair of a key and an unused value. The key is the same for all elements, so that the next step, which
        groups by key, waits for all of them.
    """
    if keyed[0] != NO_WORK:
        with _working(job), _tidying(job):
            round_.work(job, *keyed[0])
    return DONE


def finish(_: Any, job: Job) -> None:
    """Write the manifest of the dataset. Beam calls this function after all other steps of the run."""
    with _working(job):
        commit(job)


def build(pipeline: beam.Pipeline, job: Job, units: list[Unit]) -> None:
    """Add to `pipeline` the steps that process the work units in `units` and write the dataset's manifest."""
    done = (
        pipeline
        | "Units" >> beam.Create([None, *units], reshuffle=False)
        | "Spread" >> beam.Reshuffle()
        | "Process" >> beam.ParDo(ProcessUnit(job))
    )
    for each in rounds(job.curation) if job.curation.is_staged else []:
        done = (
            done
            | f"Barrier before {each.name}" >> beam.GroupByKey()
            | f"Deal out {each.name}" >> beam.FlatMap(deal, job, each)
            | f"Spread {each.name}" >> beam.GroupByKey()
            | each.name >> beam.Map(work, job, each)
        )
    done | "Barrier before Commit" >> beam.GroupByKey() | "Commit" >> beam.Map(finish, job)
