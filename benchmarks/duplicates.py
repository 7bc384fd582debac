"""Decisions on duplicates of synthetic keys: time and memory of workers, beside Beam's shuffle.

    python -m benchmarks.duplicates --keys 10000000 100000000 300000000

A tenth of the keys repeats earlier ones. Rows: `slices` are decided as a run of `--dedup` does, by two processes;
`one worker` decides on the same slices one after the other; `shuffle` is Beam's GroupByKey on
the local runner, up to --shuffle keys, since it keeps all elements in memory. Memory is the peak of the largest
process, less what it had before.
"""

import argparse
import multiprocessing
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.report import columns, command, finish, machine, option
from clearspan.pipelines.execution.quiet import quiet_beam
from clearspan.pipelines.kinds.documents import Documents
from clearspan.pipelines.records import Reading
from clearspan.pipelines.units import decisions
from clearspan.pipelines.units.curation import Curation
from clearspan.pipelines.units.exchange import BUCKETS, gather
from clearspan.pipelines.units.job import KEYS, Job
from clearspan.pipelines.units.keys import KEY, pack_keys
from clearspan.shards import keyed, storage

UNIT_KEYS = 1_000_000
REPEATED = 0.1


def staged(folder: Path, num_keys: int) -> Job:
    """Write the keys of units of a million documents; return their job."""
    num_units = -(-num_keys // UNIT_KEYS)
    job = Job(str(folder), "", "", Documents(), {}, num_units, Reading(), 0, curation=Curation(dedup=True))
    for unit in range(num_units):
        number = min(UNIT_KEYS, num_keys - unit * UNIT_KEYS)
        originals = np.arange(unit * UNIT_KEYS, unit * UNIT_KEYS + number)
        repeats = (keyed.draw(originals, np.array([1])).view(np.uint64) >> np.uint64(32)) < int(REPEATED * (1 << 32))
        documents = np.where(repeats, originals // 2, originals)
        entries = np.empty(number, KEY)
        entries["id"] = keyed.finalize(documents + 1).view(np.uint64) >> np.uint64(1)
        entries["content"], entries["row"] = entries["id"], np.arange(number)
        storage.publish_bytes(pack_keys([entries]), job.path(job.entries_name(KEYS, unit)))
    return job


def _decide(job: Job, number: int, slices: int) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    decisions.find_duplicates(job, number, slices)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def dealt_out(job: Job, processes: int) -> dict[str, Any]:
    """Decide on all slices with some processes; return seconds, and the memory of the largest process in MB."""
    slices, context = decisions.num_slices(job), multiprocessing.get_context("forkserver")
    start = time.perf_counter()
    with ProcessPoolExecutor(processes, context) as pool:
        grown = list(pool.map(_decide, [job] * slices, range(slices), [slices] * slices))
    return {"seconds": time.perf_counter() - start, "mb": max(grown) / 1024, "slices": slices}


def shuffled(job: Job) -> dict[str, Any]:
    """Decide with Beam's GroupByKey on the local runner; return seconds, and the memory of this process in MB."""
    import apache_beam as beam

    def entries(unit: int) -> list[tuple[int, tuple[int, int]]]:
        found = gather([job.path(job.entries_name(KEYS, unit))], BUCKETS, 0, BUCKETS, KEY)[0]
        return [(int(key), (unit, int(row))) for key, row in zip(found["id"], found["row"], strict=True)]

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    with quiet_beam(), beam.Pipeline("FnApiRunner") as pipeline:
        _ = (
            pipeline
            | beam.Create(list(range(job.num_units)))
            | beam.FlatMap(entries)
            | beam.GroupByKey()
            | beam.FlatMap(lambda group: sorted(group[1])[1:])
            | beam.combiners.Count.Globally()
        )
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": time.perf_counter() - start, "mb": grown / 1024}


def alone(work: Callable[..., dict[str, Any]], *given: Any) -> dict[str, Any]:
    """Run a measurement in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for num_keys in arguments.keys:
        folder = Path(tempfile.mkdtemp(dir=arguments.folder))
        try:
            job = staged(folder, num_keys)
            row: dict[str, Any] = {"keys": num_keys, "slices": alone(dealt_out, job, arguments.processes)}
            decided = {path.name: path.read_bytes() for path in (folder / "_staged").glob("duplicates-*")}
            row["one worker"] = alone(dealt_out, job, 1)
            again = {path.name: path.read_bytes() for path in (folder / "_staged").glob("duplicates-*")}
            if decided != again:
                raise SystemExit("benchmark: one worker and several decide differently")
            if num_keys <= arguments.shuffle:
                row["shuffle"] = alone(shuffled, job)
            rows.append(row)
        finally:
            shutil.rmtree(folder)
    return {"machine": machine(), "processes": arguments.processes, "rows": rows}


def table(result: dict[str, Any]) -> str:
    ways = ("slices", "one worker", "shuffle")
    lines = [
        [f"{row['keys']:,}", str(row["slices"]["slices"])]
        + [f"{row[way]['seconds']:.1f} s, {row[way]['mb']:,.0f} MB" if way in row else "" for way in ways]
        for row in result["rows"]
    ]
    return columns(["keys", "number of slices", f"slices, {result['processes']} processes", *ways[1:]], lines)


def main() -> None:
    parser = command(__doc__, "duplicates")
    keys = "numbers of keys (default 10 million)"
    parser.add_argument("--keys", type=int, nargs="+", default=[10_000_000], metavar="N", help=keys)
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the keys lie meanwhile, 20 bytes each")
    option(parser, "processes", 2, "processes that decide")
    option(parser, "shuffle", 1_000_000, "most keys for Beam's shuffle")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
