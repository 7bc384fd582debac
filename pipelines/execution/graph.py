"""The Beam graph, the same for every kind of dataset and every runner.

    Create(units not done) | Reshuffle | ParDo(process) -> barrier -> ParDo(commit)
                          staged, each round: barrier -> ParDo(deal) | GroupByKey | ParDo(work) -> barrier

The elements are only descriptions of units and slices: what they read and write never passes through Beam. A barrier is
a GroupByKey with one key. GroupByKey of nothing yields nothing, so each step also gets an element without work.
Count.Globally and Reshuffle would do the same in more stages, each of which takes time to start.
"""

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics

from clearspan.common.terminal import one_line
from clearspan.pipelines.errors import PipelineError, carrying
from clearspan.pipelines.units.commit import commit
from clearspan.pipelines.units.job import Job
from clearspan.pipelines.units.plan import Unit
from clearspan.pipelines.units.rounds import Element, Round, rounds
from clearspan.pipelines.units.unit import process_unit
from clearspan.shards import storage

DONE = (0, 0)
"""The result of a step for an element that is done: the barrier's key, and a value that is not read."""
NO_WORK: Element = (-1, 0)
"""An element of every round, in which there may be no other."""


class _Step(beam.DoFn):  # type: ignore[misc]  # Beam's types are not followed
    """Step of a run."""

    def __init__(self, job: Job) -> None:
        self.job = job


class ProcessUnit(_Step):
    """Process units one after another; None is no unit."""

    def setup(self) -> None:
        with carrying():
            self.job.reach_stores()
            self.worker = self.job.worker()

    def process(self, unit: Unit | None) -> Iterator[tuple[int, int]]:
        if unit:
            self._process(unit)
        yield DONE

    def _process(self, unit: Unit) -> None:
        with carrying():
            self._stop_if_stopped()
            try:
                done = process_unit(unit, self.job, self.worker)
            except PipelineError as error:
                # A retry cannot help, unlike after an error of a disk or a network: stop the other units too.
                with contextlib.suppress(OSError):
                    storage.publish_bytes(json.dumps(one_line(error)).encode(), self.job.stopped_path)
                raise
        counts = done.counts
        for name, number in (("read", counts.read), ("kept", counts.kept), ("bad", counts.bad)):
            Metrics.counter("records", name).inc(number)
        for reason, number in counts.filtered.items():
            Metrics.counter("records", f"filtered_{reason}").inc(number)

    def _stop_if_stopped(self) -> None:
        if storage.exists(self.job.stopped_path):
            raise PipelineError(json.loads(storage.read_bytes(self.job.stopped_path)))


class _RoundStep(_Step):
    """Step of a round."""

    def __init__(self, job: Job, of: Round) -> None:
        super().__init__(job)
        self.round = of


class Deal(_RoundStep):
    """Yield the elements of a round as keys, once the step before has ended."""

    def process(self, _: Any) -> Iterator[tuple[Element, None]]:
        with carrying():
            self.job.reach_stores()
            elements = self.round.elements(self.job)
        for element in (NO_WORK, *elements):
            yield element, None


class Work(_RoundStep):
    """Do the elements of a round."""

    def process(self, keyed: tuple[Element, Any]) -> Iterator[tuple[int, int]]:
        element, _ = keyed
        if element != NO_WORK:
            with carrying():
                self.job.reach_stores()
                self.round.work(self.job, *element)
        yield DONE


class Commit(_Step):
    """Write the manifest once every unit of the run is done."""

    def process(self, _: Any) -> None:
        with carrying():
            self.job.reach_stores()
            commit(self.job)


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
            | f"Deal out {each.name}" >> beam.ParDo(Deal(job, each))
            | f"Spread {each.name}" >> beam.GroupByKey()
            | each.name >> beam.ParDo(Work(job, each))
        )
    done | "Barrier before Commit" >> beam.GroupByKey() | "Commit" >> beam.ParDo(Commit(job))
