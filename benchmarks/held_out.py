"""Held-out groups of synthetic triplets that share texts: time and memory, beside SciPy's connected components.

    python -m benchmarks.held_out --triplets 1000000 10000000

Three triplets in a row have one premise, and a tenth of the negatives are among common ones. `rounds` choose as a run
of `triplets --holdout-fraction` does, by two processes; `scipy` finds the groups of all rows in one process, from the
same files. Memory is the peak of the largest process, less what it had before. Both choose the same rows, or the
command fails.
"""

import argparse
import multiprocessing
import resource
import shutil
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.duplicates import alone
from benchmarks.report import columns, command, finish, machine, option
from clearspan.pipelines.kinds.triplets import Triplets
from clearspan.pipelines.records import Reading
from clearspan.pipelines.tally import Counts
from clearspan.pipelines.units import decisions, linking
from clearspan.pipelines.units.curation import HELD_OUT, Curation
from clearspan.pipelines.units.exchange import BUCKETS, gather
from clearspan.pipelines.units.job import LINKS, Job, UnitResult
from clearspan.pipelines.units.keys import KEY, pack_keys
from clearspan.pipelines.units.rounds import Round, rounds
from clearspan.shards import keyed, storage

UNIT_ROWS = 250_000
FRACTION = 0.01
PREMISE, POSITIVE, NEGATIVE, COMMON = range(4)


def staged(folder: Path, num_rows: int) -> Job:
    """Write the texts of units of triplets; return their job."""
    num_units = -(-num_rows // UNIT_ROWS)
    curation = Curation(holdout_fraction=FRACTION, shared_texts=True)
    job = Job(str(folder), "", "", Triplets(), {}, num_units, Reading(), 0, curation=curation)
    for unit in range(num_units):
        rows = np.arange(unit * UNIT_ROWS, min(num_rows, (unit + 1) * UNIT_ROWS))
        draws = keyed.draw(rows, np.array([1])).view(np.uint64) >> np.uint64(11)
        is_common = draws % np.uint64(10) == 0
        common = (draws % np.uint64(max(1, num_rows // 10))).astype(np.int64)
        negatives = np.where(is_common, 4 * common + COMMON, 4 * rows + NEGATIVE)
        texts = np.concatenate([4 * (rows // 3) + PREMISE, 4 * rows + POSITIVE, negatives])
        entries = np.zeros(len(texts), KEY)
        entries["id"] = keyed.finalize(texts + 1).view(np.uint64) >> np.uint64(1)
        entries["row"] = np.tile(np.arange(len(rows)), 3)
        storage.publish_bytes(pack_keys([entries]), job.path(job.entries_name(LINKS, unit)))
        storage.publish_bytes(UnitResult([], Counts(kept=len(rows))).to_json("", unit), job.staged_path(unit))
    return job


def _work(job: Job, of: Round, element: tuple[int, int]) -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    of.work(job, *element)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before


def in_rounds(job: Job, processes: int) -> dict[str, Any]:
    """Choose with some processes; return seconds, the iterations, and the memory of the largest process in MB."""
    grown, iterations, start = [0], 0, time.perf_counter()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("forkserver")) as pool:
        for each in rounds(job.curation)[:-1]:
            elements = each.elements(job)
            iterations += bool(elements) and "Reply" in each.name
            grown += pool.map(_work, [job] * len(elements), [each] * len(elements), elements)
    return {"seconds": time.perf_counter() - start, "mb": max(grown) / 1024, "iterations": iterations}


def by_scipy(job: Job, chosen: str) -> dict[str, Any]:
    """Choose with all rows in memory; return seconds and memory in MB, and write the mask of held-out rows."""
    from scipy.sparse import coo_matrix
    from scipy.sparse.csgraph import connected_components

    before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.perf_counter()
    entries, files = gather(job.entries_paths(LINKS), BUCKETS, 0, BUCKETS, KEY)
    rows = entries["row"] + np.repeat(np.arange(len(files) - 1) * UNIT_ROWS, np.diff(files))
    texts, columns = np.unique(entries["id"], return_inverse=True)
    num_rows = int(rows.max()) + 1
    nodes = num_rows + len(texts)
    graph = coo_matrix((np.ones(len(rows), bool), (rows, num_rows + columns)), shape=(nodes, nodes))
    _, labels = connected_components(graph, directed=False)
    names = np.full(nodes, np.iinfo(np.uint64).max)
    np.minimum.at(names, labels[num_rows:], texts)
    sizes = np.bincount(labels[:num_rows], minlength=nodes)
    is_small = sizes <= max(1, FRACTION * num_rows)
    rate = FRACTION * num_rows / max(1, int(sizes[is_small].sum()))
    np.save(chosen, (is_small & (linking.draws(names) < rate))[labels[:num_rows]])
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return {"seconds": time.perf_counter() - start, "mb": grown / 1024}


def held(job: Job) -> np.ndarray:
    """Return the rows that the rounds chose, (rows,) bool."""
    slices = decisions.num_slices(job)
    kept = [decisions.staged(job, unit).counts.kept for unit in range(job.num_units)]
    verdicts = [decisions.decide(job, unit, count, slices) for unit, count in enumerate(kept)]
    return np.concatenate(verdicts) == HELD_OUT


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    rows = []
    for num_rows in arguments.triplets:
        folder = Path(tempfile.mkdtemp(dir=arguments.folder))
        try:
            job = staged(folder, num_rows)
            row: dict[str, Any] = {"triplets": num_rows, "rounds": alone(in_rounds, job, arguments.processes)}
            found = alone(held, job)
            row["held out"] = int(found.sum())
            if num_rows <= arguments.scipy:
                row["scipy"] = alone(by_scipy, job, str(folder / "chosen.npy"))
                if not np.array_equal(found, np.load(folder / "chosen.npy")):
                    raise SystemExit("benchmark: the rounds and SciPy hold out different rows")
            rows.append(row)
        finally:
            shutil.rmtree(folder)
    return {"machine": machine(), "processes": arguments.processes, "rows": rows}


def table(result: dict[str, Any]) -> str:
    ways = ("rounds", "scipy")
    lines = [
        [f"{row['triplets']:,}", str(row["rounds"]["iterations"]), f"{row['held out']:,}"]
        + [f"{row[way]['seconds']:.1f} s, {row[way]['mb']:,.0f} MB" if way in row else "" for way in ways]
        for row in result["rows"]
    ]
    return columns(["triplets", "iterations", "held out", f"rounds, {result['processes']} processes", "scipy"], lines)


def main() -> None:
    parser = command(__doc__, "held_out")
    triplets = "numbers of triplets (default a million)"
    parser.add_argument("--triplets", type=int, nargs="+", default=[1_000_000], metavar="N", help=triplets)
    parser.add_argument("--folder", type=Path, metavar="DIR", help="where the texts' hashes lie meanwhile")
    option(parser, "processes", 2, "processes that choose")
    option(parser, "scipy", 10_000_000, "most triplets for SciPy, about 1 kB each")
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
