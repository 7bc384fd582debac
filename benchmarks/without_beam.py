"""Commands that make datasets, on a machine without Apache Beam: this process does the work units, one after the other;
with --workers, so many processes do.

    python -m benchmarks.without_beam documents --input ...        as `clearspan documents --input ...`
    python -m benchmarks.without_beam adapt --input ...            as `clearspan adapt --input ...`

For borrowed machines: the files are those of the pipeline, its speed and its recovery are not.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

from clearspan.adapt import __main__ as adapt
from clearspan.adapt import stages
from clearspan.common import spawned
from clearspan.pipelines import __main__ as pipelines
from clearspan.pipelines import dataset_command
from clearspan.pipelines import run as pipeline
from clearspan.pipelines.builders import Builder
from clearspan.pipelines.run import RunOptions
from clearspan.pipelines.units.commit import commit
from clearspan.pipelines.units.job import Job
from clearspan.pipelines.units.plan import Unit
from clearspan.pipelines.units.rounds import rounds
from clearspan.pipelines.units.unit import process_unit


def process_units(job: Job, units: list[Unit]) -> None:
    worker = job.worker()
    for unit in units:
        process_unit(unit, job, worker)


def process(job: Job, units: list[Unit], options: RunOptions) -> bool:
    """Process all units, in place of `clearspan.pipelines.run._run_beam`."""
    workers = options.workers or 1
    with job.builder.shared_by(workers):
        if workers == 1:
            process_units(job, units)
        else:
            shares = [units[at::workers] for at in range(workers)]
            with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
                list(pool.map(process_units, [job] * workers, shares))
    for each in rounds(job.curation) if job.curation.is_staged else []:
        for element in each.elements(job):
            each.work(job, *element)
    commit(job)
    return True


def make(builder: Builder, options: RunOptions) -> int:
    """Make a dataset for a stage of `adapt`; return the exit code."""
    pipeline._run_beam = process
    return dataset_command.make(builder, options)


def call(function: str, *options: Any, **given: Any) -> Any:
    """Call a function for a stage of `adapt`; one that would use Beam, by this module."""
    return spawned.call("benchmarks.without_beam:make" if function.endswith(":make") else function, *options, **given)


def main(words: Sequence[str]) -> int:
    pipeline._run_beam = process
    if words[:1] == ["adapt"]:
        stages.call = call
        return adapt.main(words[1:])
    return pipelines.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
