"""Beam graph of a run. It is the same for every kind of dataset and every runner.

    Create(units not done) | Reshuffle | ParDo(ProcessUnit) -> barrier -> Map(finish)

A run in two stages (`units.decisions`) has further steps before the last barrier, for each round:

    barrier -> FlatMap(deal) | GroupByKey | Map(work)

The elements of the collections only describe work units and slices (ranges of keys, `units.exchange`). The data that
units and slices read and write never passes through Beam.

After a barrier, a step begins only when the previous step has ended for all elements. A barrier is a GroupByKey with
one key. A GroupByKey of an empty collection yields nothing, so that the next step would not run; each step therefore
gets one more element, without work. A barrier made of Count.Globally and Reshuffle would have more stages, each of
which takes time to start.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from clearspan.common.flags import called_by
from clearspan.common.terminal import one_line
from clearspan.pipelines.errors import PipelineError, carrying
from clearspan.pipelines.units.commit import commit
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
    """Give the code in this context, which runs in a worker, access to the user's object stores. Expected errors are
    raised in a form that the driver recognizes.
    """
    called_by(job.caller)
    with carrying():
        if storage.is_remote(job.folder) or storage.is_remote(job.root):  # not every runner does this
            storage.use_options(job.beam)
        yield


class ProcessUnit(beam.DoFn):  # type: ignore[misc]  # Beam's types are not followed
    """DoFn that processes work units. It ignores None, the element without work."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def setup(self) -> None:
        with _working(self.job):
            self.worker = self.job.worker()

    def process(self, unit: Unit | None) -> Iterator[tuple[int, int]]:
        if unit:
            with carrying():
                self._process(unit)
        yield DONE

    def _process(self, unit: Unit) -> None:
        if storage.exists(self.job.stopped_path):
            raise PipelineError(json.loads(storage.read_bytes(self.job.stopped_path)))
        try:
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
    """Yield the elements (work units or slices) of a round that remain to be done, each as a key with the value None.

    Beam calls this function after a barrier, and groups the elements by key to distribute them over the workers.

    Args:
        round_: the round.
    """
    with _working(job):
        elements = round_.elements(job)
    for element in (NO_WORK, *elements):
        yield element, None


def work(keyed: tuple[Element, Any], job: Job, round_: Round) -> tuple[int, int]:
    """Do the work of one element (a work unit or a slice) of a round. Return DONE, by which the next step's barrier
    sees that the element is done.

    Args:
        keyed: the element, and a value that is not used.
        round_: the round.
    """
    if keyed[0] != NO_WORK:
        with _working(job):
            round_.work(job, *keyed[0])
    return DONE


def finish(_: Any, job: Job) -> None:
    """Write the manifest, after all units of the run are done."""
    with _working(job):
        commit(job)


def build(pipeline: beam.Pipeline, job: Job, units: list[Unit]) -> None:
    """Add the graph that processes `units` and commits the dataset."""
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
