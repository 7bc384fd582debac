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

from clearspan.adapt import __main__ as adapt
from clearspan.adapt import running
from clearspan.common import child_commands
from clearspan.pipelines import __main__ as pipelines
from clearspan.pipelines import run as pipeline
from clearspan.pipelines.run import RunOptions
from clearspan.pipelines.units.commit import commit
from clearspan.pipelines.units.job import Job
from clearspan.pipelines.units.plan import Unit
from clearspan.pipelines.units.rounds import rounds
from clearspan.pipelines.units.unit import process_unit

PIPELINES, HERE = "clearspan.pipelines", "benchmarks.without_beam"


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


def run_module(module: str, line: Sequence[str], quiet: bool = False) -> None:
    """Run a step of `adapt`; one that would use Beam, by this module."""
    child_commands.run_module(HERE if module == PIPELINES else module, line, quiet)


def main(words: Sequence[str]) -> int:
    pipeline._run_beam = process
    if words[:1] == ["adapt"]:
        running.run_module = run_module
        return adapt.main(words[1:])
    return pipelines.main(words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
