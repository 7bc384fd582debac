"""The one Beam graph, for every kind of dataset and every runner.

    Create(units not done) | Reshuffle | ParDo(process) -> Count -> ParDo(commit)

Only descriptions of units and counts are elements: what a unit reads and writes never passes through Beam.
"""

import contextlib
import json
from collections.abc import Iterator

import apache_beam as beam
from apache_beam.metrics import Metrics

from pipelines.commit import commit
from pipelines.errors import PipelineError, carrying, one_line
from pipelines.job import Job
from pipelines.plan import Unit
from pipelines.tokenization import MAIN, Encoder
from pipelines.unit import process_unit
from shards import storage
from shards.reader import TOKENIZER_FOLDER


class ProcessUnit(beam.DoFn):
    """Does units, one after another; yields their numbers."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def setup(self) -> None:
        job = self.job
        with carrying():
            tokenizer = storage.read_bytes(storage.join(job.folder, TOKENIZER_FOLDER, MAIN))
            self.encoder = Encoder(tokenizer, job.fingerprint["tokenizer"]["vocab_size"], job.encoder)

    def process(self, unit: Unit) -> Iterator[int]:
        with carrying():
            self._stop_if_stopped()
            try:
                done = process_unit(unit, self.job, self.encoder)
            except PipelineError as error:
                # Final, unlike a disk's or a network's errors, which a runner may try again: the others need not go on.
                with contextlib.suppress(OSError):
                    storage.publish_bytes(json.dumps(one_line(error)).encode(), self.job.stopped_path)
                raise
        counts = done.counts
        for name, number in (("read", counts.read), ("kept", counts.kept), ("bad", counts.bad)):
            Metrics.counter("records", name).inc(number)
        for reason, number in counts.filtered.items():
            Metrics.counter("records", f"filtered_{reason}").inc(number)
        yield unit.number

    def _stop_if_stopped(self) -> None:
        if storage.exists(self.job.stopped_path):
            raise PipelineError(json.loads(storage.read_bytes(self.job.stopped_path)))


class Commit(beam.DoFn):
    """Writes the manifest, once every unit of the run is done."""

    def __init__(self, job: Job) -> None:
        self.job = job

    def process(self, num_units: int) -> None:
        with carrying():
            commit(self.job)


def build(pipeline: beam.Pipeline, job: Job, units: list[Unit]) -> None:
    """Adds the graph that does `units` and commits."""
    (
        pipeline
        | "Units" >> beam.Create(units, reshuffle=False)
        | "Spread" >> beam.Reshuffle()
        | "Process" >> beam.ParDo(ProcessUnit(job))
        | "All done" >> beam.combiners.Count.Globally()
        | "Commit" >> beam.ParDo(Commit(job))
    )
