"""Sizes, files and requests of a run on 10^9 and 10^10 documents: per document and unit measured, the rest computed.

    python -m benchmarks.capacity --text CORPORA --tokenizer roberta-base
    python -m benchmarks.capacity ... --document-bytes 2000 --request-s 0.05 --mb-per-s 20

A small run with --dedup measures what a document, a unit, a shard and an input file add to the files of a run, and
to the graph that Beam gets. The tables multiply that. What no small run can tell is an option, and an assumption.
"""

import argparse
import contextlib
import dataclasses
import itertools
import json
import math
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks.report import columns, command, finish, option
from clearspan.pipelines import run
from clearspan.pipelines.__main__ import main as pipelines_main
from clearspan.pipelines.readers.sniff import SAMPLES
from clearspan.pipelines.run import Options
from clearspan.pipelines.units.decisions import SLICE_BYTES
from clearspan.pipelines.units.exchange import BUCKETS
from clearspan.pipelines.units.job import DONE, KEYS, Job
from clearspan.pipelines.units.keys import KEY
from clearspan.pipelines.units.plan import MANY_UNITS, UNIT_BYTES, Unit
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.storage import READERS
from clearspan.shards.writer import DEFAULT_MAX_BYTES

SCENARIOS = [(documents, workers) for documents in (10**9, 10**10) for workers in (100, 1000)]
LISTED = 1000
"""Names in one answer of an object store."""
READS_OF_INPUT = SAMPLES + 2
"""Requests of the plan for each input file on an object store: its size, its head, and a sample."""


UNIT_HOURS = 1
"""The longest time of a unit: a kill repeats it."""
REQUESTS_OF_PIECE = 2
"""Requests for a piece of a file of keys or decisions: the index, then the entries."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Bytes that one of each adds, as measured."""

    plan_of_input: float
    plan_of_unit: float
    graph_of_unit: float
    result_of_unit: float
    manifest_of_shard: float
    keys_of_document: float
    keys_of_unit: float
    shards_of_text_byte: float


def mean(parts: list[Any]) -> float:
    """Return the mean length of these records as compact JSON, each with a comma."""
    return sum(len(json.dumps(part, separators=(",", ":"))) + 1 for part in parts) / len(parts)


def graph_bytes(job: Job, units: list[Unit]) -> int:
    """Return the size of the graph for these units."""
    from clearspan.pipelines.execution import graph, runners

    pipeline = runners.named(["--runner=PortableRunner", "--job_endpoint=unused"])
    graph.build(pipeline, job, units)
    return int(pipeline.to_runner_api().ByteSize())


def sizes_of(job: Job, units: list[Unit]) -> Sizes:
    """Return the sizes from the files of a run whose first stage is still there."""
    plan, manifest = (json.loads(Path(job.path(name)).read_bytes()) for name in ("plan.json", MANIFEST))
    examples = sum(shard["examples"] for shard in manifest["shards"])
    results = [path.stat().st_size for path in Path(job.path(DONE)).iterdir()]
    keys = sum(Path(job.path(job.entries_name(KEYS, unit.number))).stat().st_size for unit in units)
    return Sizes(
        plan_of_input=mean(plan["inputs"]),
        plan_of_unit=mean(plan["units"]),
        graph_of_unit=(graph_bytes(job, units) - graph_bytes(job, units[:1])) / (len(units) - 1),
        result_of_unit=sum(results) / len(results),
        manifest_of_shard=mean(manifest["shards"]),
        keys_of_document=KEY.itemsize,
        keys_of_unit=(keys - examples * KEY.itemsize) / len(units),
        shards_of_text_byte=sum(shard["bytes"] for shard in manifest["shards"]) / sum(unit.bytes for unit in units),
    )


def write_sample(text: Path, folder: Path, num_bytes: float) -> None:
    """Write every n-th record of a folder's .jsonl files, about `num_bytes` in all, alternately to two files."""
    paths = sorted(text.glob("*.jsonl"))
    step = max(1, round(sum(path.stat().st_size for path in paths) / num_bytes))
    folder.mkdir()
    with contextlib.ExitStack() as stack:
        read = (line for path in paths for line in stack.enter_context(path.open("rb")))
        targets = [stack.enter_context((folder / f"{name}.jsonl").open("wb")) for name in "ab"]
        for number, line in enumerate(itertools.islice(read, 0, None, step)):
            targets[number % 2].write(line)


def measure_sizes(text: Path, tokenizer: str, megabytes: float) -> Sizes:
    """Make a dataset of about eight units from a sample of a corpus; return the sizes."""
    found: list[Sizes] = []
    run_beam = run._run_beam

    def observed(job: Job, units: list[Unit], options: Options) -> dict[str, float] | None:
        stages = run_beam(job, units, options)
        found.append(sizes_of(job, units))
        return stages

    with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "_run_beam", observed):
        write_sample(text, Path(folder, "corpus"), megabytes * 1e6)
        words = ["--input", f"{folder}/corpus", "--output", f"{folder}/out", "--tokenizer", tokenizer, "--quiet"]
        more = ["--min-tokens", "1", "--dedup", "--unit-bytes", str(int(megabytes * 1.2e5)), "--workers", "1"]
        if pipelines_main(["documents", *words, *more]):
            raise SystemExit(1)
    return found[0]


def scenario(documents: int, workers: int, sizes: Sizes, options: argparse.Namespace) -> dict[str, float]:
    """Return the figures of a run with --dedup on so many documents, in bytes, seconds and numbers."""
    text = documents * options.document_bytes
    unit_bytes = max(UNIT_BYTES, text // MANY_UNITS)
    units, inputs = math.ceil(text / unit_bytes), math.ceil(text / options.file_bytes)
    kept = text * sizes.shards_of_text_byte
    shards = units * math.ceil(kept / units / DEFAULT_MAX_BYTES)
    keys = documents * sizes.keys_of_document + units * sizes.keys_of_unit
    slices = min(BUCKETS, math.ceil(keys / SLICE_BYTES))
    requests = options.request_s / READERS
    objects = shards + units
    return {
        "text": text,
        "unit": unit_bytes,
        "units": units,
        "units of a worker": units / workers,
        "tokenizing": math.ceil(units / workers) * unit_bytes / (options.mb_per_s * 1e6),
        "shards": shards,
        "bytes of shards": kept,
        "plan.json": inputs * sizes.plan_of_input + units * sizes.plan_of_unit,
        "Beam's graph": units * sizes.graph_of_unit,
        "results": units * sizes.result_of_unit,
        "manifest.json": shards * sizes.manifest_of_shard,
        "keys": keys,
        "slices of keys": slices,
        "keys of a slice": documents * sizes.keys_of_document / slices,
        "reads of keys": slices * units,
        "reading keys": math.ceil(slices / workers) * units * REQUESTS_OF_PIECE * requests,
        "reading decisions": math.ceil(units / workers) * slices * REQUESTS_OF_PIECE * requests,
        "files while it runs": objects + shards + 3 * units + slices,  # staged shards, results, keys, verdicts
        "files in the end": objects + units,
        "planning": inputs * READS_OF_INPUT * requests,
        "planning, one by one": inputs * READS_OF_INPUT * options.request_s,
        "results, each pass": units * requests,
        "results, one by one": units * options.request_s,
        "pages of a listing": math.ceil(objects / LISTED),
    }


UNITS = {
    **dict.fromkeys(("text", "bytes of shards", "keys"), ("TB", 1e12)),
    **dict.fromkeys(("unit", "plan.json", "Beam's graph", "results", "manifest.json", "keys of a slice"), ("MB", 1e6)),
    **dict.fromkeys(("tokenizing", "planning", "planning, one by one"), ("min", 60.0)),
    **dict.fromkeys(("results, each pass", "results, one by one", "reading keys", "reading decisions"), ("min", 60.0)),
}


def limits(sizes: Sizes, options: argparse.Namespace) -> dict[str, float]:
    """Return the number of documents at which each limit is reached."""
    memory = options.worker_gb * 1e9
    return {
        f"{MANY_UNITS:,} units of {UNIT_BYTES / 1e6:.0f} MB: units grow": MANY_UNITS
        * UNIT_BYTES
        / options.document_bytes,
        f"a slice is one of {BUCKETS:,} buckets, and grows": SLICE_BYTES * BUCKETS / sizes.keys_of_document,
        f"a slice, read and sorted, takes {options.worker_gb:g} GB": memory * BUCKETS / (2 * sizes.keys_of_document),
        f"a unit of a {UNIT_HOURS}-hour worker": MANY_UNITS
        * UNIT_HOURS
        * 3600e6
        * options.mb_per_s
        / options.document_bytes,
    }


def measure(options: argparse.Namespace) -> dict[str, Any]:
    sizes = measure_sizes(options.text, options.tokenizer, options.megabytes)
    figures = [scenario(documents, workers, sizes, options) for documents, workers in SCENARIOS]
    assumed = {
        name: getattr(options, name) for name in ("document_bytes", "file_bytes", "mb_per_s", "request_s", "worker_gb")
    }
    return {
        "assumed": assumed,
        "sizes": dataclasses.asdict(sizes),
        "scenarios": [{"documents": d, "workers": w, **f} for (d, w), f in zip(SCENARIOS, figures, strict=True)],
        "limits": limits(sizes, options),
    }


def table(result: dict[str, Any]) -> str:
    """Return the measured sizes, the table of the scenarios, and the limits."""

    def written(name: str, value: float) -> str:
        unit, factor = UNITS.get(name, ("", 1.0))
        value /= factor
        digits = 0 if value >= 10 or not unit else 1 if value >= 1 else 2
        return f"{value:,.{digits}f} {unit}".strip()

    scenarios = result["scenarios"]
    headings = ["", *(f"{s['documents']:.0e} on {s['workers']:,}".replace("e+", "e") for s in scenarios)]
    rows = [
        [name, *(written(name, s[name]) for s in scenarios)]
        for name in scenarios[0]
        if name not in ("documents", "workers")
    ]
    parts = [f"{name.replace('_', ' '):<24}{value:>10,.2f} B" for name, value in result["sizes"].items()]
    ends = [f"{name:<56}{value:>10.1e} documents" for name, value in result["limits"].items()]
    return "\n".join([*parts, "", columns(headings, rows), "", *ends])


def main() -> None:
    parser = command(__doc__, "capacity")
    parser.add_argument("--text", type=Path, required=True, metavar="DIR", help="folder of .jsonl files with real text")
    parser.add_argument("--tokenizer", required=True, metavar="PATH", help="a tokenizer.json, or the folder with it")
    option(parser, "megabytes", 4.0, "size of the measured run")
    for name, value, description in (
        ("document-bytes", 4963.0, "bytes of a document: OpenWebText's mean"),
        ("file-bytes", 200e6, "bytes of an input file"),
        ("mb-per-s", 40.0, "MB/s of text of one worker; an assumption (benchmarks.pipelines measures this machine's)"),
        ("request-s", 0.03, "seconds of a request to an object store; an assumption"),
        ("worker-gb", 16.0, "memory of one worker"),
    ):
        parser.add_argument(
            f"--{name}", type=float, default=value, metavar="X", help=f"{description} (default {value:g})"
        )
    finish(parser, measure, table)


if __name__ == "__main__":
    main()
