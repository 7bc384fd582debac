"""The driver: plans a run, holds the output folder to it, starts Beam on the units left, reports.

    output folder       what happens
    none or empty       begins
    same plan           goes on with the units that have no account, or whose shards are gone
    same, finished      nothing, at once
    other plan          refused, unless nothing was written under it

One run at a time writes to a folder.
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Sequence

from pipelines import plan as planning
from pipelines.commit import damaged, load_accounts
from pipelines.errors import PipelineError
from pipelines.job import DONE, REJECTED, Job, Kind
from pipelines.plan import Plan, Unit
from pipelines.progress import Progress
from pipelines.quiet import quiet_beam
from pipelines.tokenization import TokenizerFiles, read_tokenizer
from shards import Manifest, storage
from shards.manifest import NAME as MANIFEST
from shards.reader import TOKENIZER_FOLDER


@dataclasses.dataclass(frozen=True)
class Options:
    """A run's options that are the same for every kind; `workers` None: as many as make sense."""

    inputs: Sequence[str]
    output: str
    tokenizer: str
    unit_bytes: int
    max_document_bytes: int
    max_bad_fraction: float
    workers: int | None
    encoder: str
    quiet: bool
    beam: Sequence[str]

    @property
    def runner_named(self) -> bool:
        """Whether the user names a Beam runner, in place of this machine."""
        return any(argument.split("=")[0] == "--runner" for argument in self.beam)


@dataclasses.dataclass(frozen=True)
class Summary:
    """A dataset as committed, and what this run did for it: units, input bytes, records and time."""

    output: str
    manifest: Manifest
    num_units: int
    input_bytes: int
    records: int
    seconds: float

    def to_json(self) -> str:
        manifest, seconds = self.manifest, self.seconds
        record = {
            "output": self.output,
            "kind": manifest.kind,
            "shards": len(manifest.shards),
            **manifest.counts,
            "tokens": manifest.totals["tokens"],
            "bytes": manifest.totals["bytes"],
            "run": {
                "units": self.num_units,
                "input_bytes": self.input_bytes,
                "records": self.records,
                "seconds": round(seconds, 3),
                "mb_per_s": round(self.input_bytes / 1e6 / seconds, 3) if seconds else None,
                "documents_per_s": round(self.records / seconds, 3) if seconds else None,
            },
        }
        return json.dumps(record)

    def __str__(self) -> str:
        counts, totals = self.manifest.counts, self.manifest.totals
        filtered = "".join(f", {number:,} {reason}" for reason, number in counts["filtered"].items())
        lines = [
            f"{self.output}: {self.manifest.kind}, {len(self.manifest.shards):,} shards, {totals['bytes']:,} bytes",
            f"  read {counts['read']:,} = kept {counts['kept']:,}{filtered}, bad {counts['bad']:,}",
            f"  tokens {totals['tokens']:,}",
        ]
        if self.num_units:
            megabytes = self.input_bytes / 1e6
            rates = f"{megabytes / self.seconds:,.1f} MB/s, {self.records / self.seconds:,.0f} documents/s"
            lines.append(f"  {megabytes:,.1f} MB in {self.seconds:,.1f} s: {rates}")
        else:
            lines.append("  was already finished: nothing to do")
        return "\n".join(lines)


def _subfolders(folder: str) -> list[str]:
    return [storage.join(folder, name) for name in (DONE, REJECTED, TOKENIZER_FOLDER)]


def _tidy(folder: str) -> None:
    for name in (folder, *_subfolders(folder)):
        storage.remove_temporaries(name)


def _keep(data: bytes, path: str) -> None:
    """Publishes a file, unless it is there already: a finished dataset is not touched."""
    if not storage.exists(path) or storage.read_bytes(path) != data:
        storage.publish_bytes(data, path)


def prepare(job: Job, plan: Plan, tokenizer: TokenizerFiles) -> list[Unit]:
    """Brings the output folder to where the run can go on; returns the units left to do.

    Raises:
        PipelineError: the folder holds something else.
    """
    folder = job.folder
    path = storage.join(folder, planning.NAME)
    files = storage.list_files(folder)
    if planning.NAME in files:
        try:
            planning.compare(folder, storage.read_bytes(path), plan)
        except PipelineError:
            if any(name.endswith(".tar") for name in files):
                raise
            for name in _subfolders(folder):
                for file in storage.list_files(name):
                    storage.remove(storage.join(name, file))
    elif foreign := [name for name in files if not name.startswith(".")]:
        raise PipelineError(f"{folder}: holds other files ({foreign[0]}): choose an --output that is new or empty")
    _tidy(folder)
    storage.remove(job.stopped_path)
    _keep(plan.to_json(), path)
    for name, data in tokenizer.files.items():
        _keep(data, storage.join(folder, TOKENIZER_FOLDER, name))
    accounts = load_accounts(job)
    for unit in damaged(folder, accounts):
        storage.remove(storage.join(folder, MANIFEST))
        storage.remove(job.done_path(unit))
        del accounts[unit]
    return [unit for unit in plan.units if unit.number not in accounts]


def run(kind: Kind, options: Options) -> Summary:
    """Makes the dataset, or what is left of it.

    Raises:
        PipelineError, OSError: it cannot be made; the message says why and what to do.
    """
    tokenizer = read_tokenizer(options.tokenizer)
    shaping = {**kind.options(), "max_document_bytes": options.max_document_bytes}
    plan = planning.make_plan(options.inputs, shaping, tokenizer, options.unit_bytes)
    job = Job(
        folder=options.output,
        root=plan.root,
        kind=kind,
        fingerprint=plan.fingerprint,
        num_units=len(plan.units),
        max_document_bytes=options.max_document_bytes,
        max_bad_fraction=options.max_bad_fraction,
        encoder=options.encoder,
    )
    units = prepare(job, plan, tokenizer)
    if not units and storage.exists(storage.join(job.folder, MANIFEST)):
        return Summary(job.folder, Manifest.load(job.folder), 0, 0, 0, 0.0)
    start = time.perf_counter()
    with Progress(job.folder, plan.units, options.quiet):
        _run_beam(job, units, options)
    _tidy(job.folder)
    seconds = time.perf_counter() - start
    accounts = load_accounts(job)
    records = sum(accounts[unit.number].counts.read for unit in units)
    num_bytes = sum(unit.bytes for unit in units)
    return Summary(job.folder, Manifest.load(job.folder), len(units), num_bytes, records, seconds)


def _run_beam(job: Job, units: list[Unit], options: Options) -> None:
    with contextlib.nullcontext() if options.runner_named else quiet_beam():
        # Imported here: mistakes in the command are told before Beam's import.
        from pipelines import graph, runners

        if options.runner_named:
            pipeline = runners.named(options.beam)
        else:
            processes = runners.num_processes(options.workers, len(units), sum(unit.bytes for unit in units))
            pipeline = runners.local(processes, options.beam)
        graph.build(pipeline, job, units)
        runners.run(pipeline)
