"""Make a dataset: plan the work units, check whose the output folder is, run Beam on the units that remain, summarize.

What a run does depends on what the output folder holds:

    nothing                   start
    same plan, unfinished     process the units that have no result, or whose shards are missing
    same plan, finished       nothing
    other plan, with shards   an error; with --update, a finished dataset is updated
    other plan, no shards     remove the files of that run, and start
    anything else             an error

A run with a new plan starts only in an empty folder, or in one that holds only the files of a run that wrote no shards;
these files are removed first (`units.ownership`). Afterwards, a file with a name from the plan can only come from a run
with this plan, and may be overwritten or removed. Other files are not touched. While a run writes to a local folder, a
second run there fails. It is an error if an input has changed since a unit read it (`units.changes`).
"""

import contextlib
import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from annotated_types import Ge, Lt

from clearspan.cli.command import Result
from clearspan.common.errors import PipelineError
from clearspan.common.files import locked, remove_temporaries
from clearspan.common.hub import with_recorded_hub
from clearspan.common.options import Flag
from clearspan.common.progress import counted
from clearspan.common.terminal import as_printed
from clearspan.pipelines.builders import Builder, CorpusOptions
from clearspan.pipelines.builders.copied import write_index
from clearspan.pipelines.counter import Counts, encoding_lines
from clearspan.pipelines.errors import InputChangedError, ModelFailedError
from clearspan.pipelines.execution.progress import Progress
from clearspan.pipelines.readers import columns_read
from clearspan.pipelines.units import decisions, preflight, update
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.changes import check_inputs
from clearspan.pipelines.units.commit import commit, load_results, remove_stage
from clearspan.pipelines.units.curation import Curation, held_out_share
from clearspan.pipelines.units.decisions import have_marks
from clearspan.pipelines.units.job import FOLDERS, STAGED, Job, done_units
from clearspan.pipelines.units.numbering import numbered
from clearspan.pipelines.units.ownership import fruitless
from clearspan.pipelines.units.plan import Plan, Unit
from clearspan.shards import Manifest, classes, lengths, storage
from clearspan.shards.command import EXPECTED, BeamOptions
from clearspan.shards.finding import left_out_lines
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import Reconciliation
from clearspan.shards.ownership import OwnershipError, check_ownership
from clearspan.shards.quiet import quiet_beam


@dataclasses.dataclass(frozen=True, kw_only=True)
class RunOptions(BeamOptions, CorpusOptions):
    """Options that every kind of dataset has (`clearspan KIND --help`)."""

    limit: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Keep only the first N examples."""
    holdout_fraction: Annotated[float, Flag("F"), Ge(0), Lt(1)] = 0.0
    """Fraction of the examples to hold out of training, written to OUTPUT/validation."""
    workers: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Number of processes on this machine (default: the number that is estimated to be fastest)."""
    unit_bytes: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Size of a work unit in bytes of input (default: by the kind of dataset)."""
    max_document_bytes: Annotated[int | None, Flag("N"), Ge(1)] = None
    """Count records of more than N bytes as bad (default: 64 MB; images 200 MB, audio 600 MB, embed 8 MB)."""

    def validate(self) -> None:
        super().validate()
        if self.runner_named and self.workers:
            raise ValueError("`workers` is for this machine: with --runner, use that runner's options")
        on_dataflow = self.runner_named and any(argument.endswith("DataflowRunner") for argument in self.beam)
        if on_dataflow and not all(map(storage.is_remote, [*self.inputs, self.output])):
            raise ValueError("Dataflow does not see this machine's files: `input` and `output` must be in a bucket")

    @property
    def runner_named(self) -> bool:
        """Return whether the user names a Beam runner (`--runner`). If not, Beam runs on this machine."""
        return any(argument.split("=")[0] == "--runner" for argument in self.beam)


@dataclasses.dataclass(frozen=True)
class DatasetSummary(Result):
    """Result of a run: the finished dataset, and the work of this run.

    Attributes:
        output: the folder of the dataset.
        manifest: the manifest of the dataset.
        num_units, input_bytes, records: the numbers of work units, bytes and records that this run read; 0 if the
            dataset was already finished.
        seconds: the duration of this run; 0 if the dataset was already finished.
        sums: name of a further count that the kind of dataset makes -> the count.
        encodings: encoding -> number of files in this encoding, for files that are not UTF-8.
        recoded: pairs [file, encoding] of the first 20 files that are not UTF-8.
        remarks: lines for the user about the dataset.
        changes: for a run that updates a dataset (--update): the numbers of texts that are only in the updated dataset
            (`new`), only in the old one (`gone`), and in both (`kept`). Otherwise empty.
    """

    output: str
    manifest: Manifest
    num_units: int
    input_bytes: int
    records: int
    seconds: float
    sums: dict[str, int] = dataclasses.field(default_factory=dict)
    encodings: dict[str, int] = dataclasses.field(default_factory=dict)
    recoded: Sequence[Sequence[str]] = ()
    remarks: Sequence[str] = ()
    changes: dict[str, int] = dataclasses.field(default_factory=dict)

    def to_json(self) -> str:
        """Return the summary as one line of JSON."""
        manifest, seconds = self.manifest, self.seconds
        record = {
            "output": self.output,
            "kind": manifest.kind,
            "shards": len(manifest.shards),
            **manifest.counts,
            "tokens": manifest.totals["tokens"],
            "bytes": manifest.totals["bytes"],
            "sums": self.sums,
            "encodings": self.encodings,
            "recoded": self.recoded,
            **({"changes": self.changes} if self.changes else {}),
            "run": {
                "units": self.num_units,
                "input_bytes": self.input_bytes,
                "records": self.records,
                "seconds": round(seconds, 3),
                "mb_per_s": round(self.input_bytes / 1e6 / seconds, 3) if seconds else None,
                f"{manifest.kind}_per_s": round(self.records / seconds, 3) if seconds else None,
            },
        }
        return json.dumps(record)

    def __str__(self) -> str:
        totals = self.manifest.totals
        lines = [
            f"{self.output}: {self.manifest.kind}, {len(self.manifest.shards):,} shards, {totals['bytes']:,} bytes",
            f"  {Reconciliation(**self.manifest.counts)}",
            *([f"  tokens {totals['tokens']:,}"] if self.manifest.tokenizer else []),
            *(f"  {remark}" for remark in self.remarks),
        ]
        if self.changes:
            lines.append("  " + ", ".join(f"{number:,} {change}" for change, number in self.changes.items()))
        if self.num_units:
            megabytes = self.input_bytes / 1e6
            rates = f"{megabytes / self.seconds:,.1f} MB/s, {self.records / self.seconds:,.0f} {self.manifest.kind}/s"
            lines.append(f"  {megabytes:,.1f} MB in {self.seconds:,.1f} s: {rates}")
        else:
            lines.append("  was already finished: nothing to do")
        return as_printed("\n".join([*lines, *filter(None, [lengths.text(self.manifest.lengths)])]))


def _tidy(job: Job) -> None:
    """Remove the temporary files that killed processes left in a local output folder.

    In an object store there are none, because it keeps no partly written objects.
    """
    if not storage.is_remote(job.folder):
        for dataset in job.datasets:
            for name in ("", *FOLDERS):
                remove_temporaries(Path(dataset, name))


def _uncommit(job: Job) -> None:
    """Remove the manifests of the output folder and of its held-out part, so that they are no longer datasets."""
    for dataset in job.datasets:
        storage.remove(storage.join(dataset, MANIFEST))


def _check_apart(options: RunOptions, plan: Plan) -> None:
    """Raise PipelineError if the output folder contains an input, or lies within a folder of inputs."""
    if storage.is_remote(options.output):
        return
    output = Path(options.output).resolve()
    folders = [Path(pattern).resolve() for pattern in options.inputs if Path(pattern).is_dir()]
    parents = {Path(plan.root, folder) for folder in {entry.name.rpartition("/")[0] for entry in plan.inputs}}
    inside = any(parent.resolve().is_relative_to(output) for parent in parents)
    if inside or any(output.is_relative_to(folder) for folder in folders):
        raise PipelineError(f"`output` {options.output} is among the inputs: choose a folder outside of them")


def prepare(job: Job, plan: Plan, files: Mapping[str, bytes], quiet: bool = False) -> list[Unit]:
    """Write the plan and the resources to the output folder, if it is free; return the units that remain to be done.

    Args:
        files: the resources to write beside the shards: path relative to the output folder -> content.
        quiet: show no progress bar.

    Raises:
        OwnershipError: the folder holds the shards of a different plan, or files that no run wrote.
        InputChangedError: an input has changed since a unit read it.
    """
    check_ownership(job.folder, planning.NAME, plan.to_json(), fruitless)
    _tidy(job)
    storage.remove(job.stopped_path)
    storage.publish_if_changed(plan.to_json(), job.path(planning.NAME))
    for dataset in job.datasets:
        for path, data in files.items():
            storage.publish_if_changed(data, storage.join(dataset, *path.split("/")))
    done = done_units(job.folder) & set(range(job.num_units))
    unchanged = check_inputs(job.folder, plan, done | done_units(job.folder, STAGED), quiet)
    ready = set(load_results(job)) & unchanged
    for unit in done - ready:
        _uncommit(job)
        storage.remove(job.result_path(unit))
    if job.curation.is_staged and len(ready) < job.num_units:
        staged = set(load_results(job, STAGED)) & unchanged
        # Marks depend on the first stage of every unit; once they exist, only unfinished units need theirs.
        ready = ready | staged if have_marks(job) else staged
    return [unit for unit in plan.units if unit.number not in ready]


def run(builder: Builder, options: RunOptions) -> DatasetSummary | None:
    """Make a dataset, or finish a dataset that an earlier run began.

    Returns:
        None if Beam's options only request a description of the job, such as a Dataflow template.

    Raises:
        PipelineError, OSError: the dataset cannot be made; the message says why and what to do.
    """
    if any(map(storage.is_remote, [*options.inputs, options.output])):
        storage.use_options(options.beam)
    update.complete_killed_update(options.output)
    builder = builder.resolved(planning.began(options.output).get("options", {}))
    builder = builder.with_plan(compares=builder.dedup or options.holdout_fraction > 0)
    max_bytes = options.max_document_bytes or builder.max_bytes
    reading = dataclasses.replace(builder.reading(), max_bytes=max_bytes, skip_unknown=options.skip_unknown)
    curation = Curation(
        dedup=builder.dedup,
        limit=options.limit,
        holdout_fraction=options.holdout_fraction,
        shared_texts=builder.shares_texts,
        near_dedup=builder.near_dedup,
        has_chunks=builder.has_chunks,
        group_field=builder.group_field,
    )
    inputs = planning.find_inputs(options.inputs, reading)
    builder = builder.infer_options(inputs, reading)
    reading = dataclasses.replace(reading, classes=inputs.classes, keep=builder.reading().keep)
    files = builder.resources(inputs)
    fingerprint = builder.fingerprint(files)
    fingerprint["options"] |= {**curation.options, "max_document_bytes": reading.max_bytes}
    if inputs.classes is not None:
        fingerprint["options"]["taken"] = inputs.classes.counts
    began = planning.began(options.output)
    has_same_tokenizer = began.get("tokenizer") == fingerprint.get("tokenizer")
    if began and has_same_tokenizer and not update.option_differences(began, fingerprint):
        fingerprint = with_recorded_hub(fingerprint, began)
    plan = planning.make_plan(inputs, fingerprint, options.unit_bytes or builder.unit_bytes(inputs), reading.uncut)
    _check_apart(options, plan)
    seconds = sum(unit.text_bytes for unit in plan.units) / builder.bytes_per_s
    if seconds >= preflight.LONG_S and not reading.as_bytes and not planning.began(options.output):
        preflight.check_first(plan.root, plan.inputs, reading, builder.check, options.max_bad_fraction)
    job = Job(
        folder=options.output,
        plan=plan.sha256,
        root=plan.root,
        builder=builder,
        fingerprint=plan.fingerprint,
        num_units=len(plan.units),
        reading=reading,
        max_bad_fraction=options.max_bad_fraction,
        beam=tuple(options.beam),
        curation=curation,
    )
    # Object stores have no locks: two runs there do the same work and write the same bytes.
    with contextlib.nullcontext() if storage.is_remote(job.folder) else locked(job.folder):
        if builder.can_update:
            job = dataclasses.replace(job, first_shard=update.first_shard(job.folder))
        if builder.update and update.is_outdated(job, plan, options.quiet):
            return _update(job, plan, files, options)
        try:
            units = prepare(job, plan, files, options.quiet)
        except (OwnershipError, InputChangedError) as error:
            if not update.is_possible(job):
                raise
            raise PipelineError(f"{error}, or bring it up to date with `update`") from None
        summary = _run(job, plan, units, options)
        if builder.can_update and summary is not None and not storage.is_remote(job.folder):
            update.discard(job.folder)  # it was to inputs that are no longer asked for
        return summary


def _update(job: Job, plan: Plan, files: Mapping[str, bytes], options: RunOptions) -> DatasetSummary | None:
    """Make a dataset of the plan's inputs in a subfolder, and then replace the job's finished dataset by it (--update).

    Vectors of texts that are also in the old dataset are copied from there.

    Args:
        files: the resources to write beside the shards: path relative to the folder of the dataset -> content.

    Returns:
        None if Beam's options only request a description of the job.

    Raises:
        PipelineError: there are more than 50,000 work units (`update.SECOND`), or the dataset cannot be made.
    """
    if job.num_units > update.SECOND:
        raise PipelineError(f"`update`: {job.num_units:,} work units, more than {update.SECOND:,}: raise `unit_bytes`")
    first = 0 if job.first_shard else update.SECOND
    beside = update.begin(job, first, plan.to_json())
    index = beside / update.INDEX
    builder = job.builder.with_plan(old=(str(Path(job.folder).resolve()), str(index.resolve())))
    new = dataclasses.replace(job, folder=str(beside), builder=builder, first_shard=first)
    try:
        if not index.exists():
            write_index(job.folder, index)
        try:
            units = prepare(new, plan, files, options.quiet)
        except InputChangedError:
            update.discard(job.folder)  # a killed run on inputs that were edited since
            return _update(job, plan, files, options)
        if (summary := _run(new, plan, units, options)) is None:
            return None
        changes = update.changes(job.folder, new.folder)
    except (OSError, ModelFailedError):  # such as a full disk, or a device without memory: the same command goes on
        raise
    except EXPECTED:
        update.discard(job.folder)
        raise
    update.replace(job.folder)
    return dataclasses.replace(summary, output=job.folder, changes=changes)


def _run(job: Job, plan: Plan, units: list[Unit], options: RunOptions) -> DatasetSummary | None:
    if not units and len(done_units(job.folder)) == job.num_units:
        commit(job)
        remove_stage(job)
        return _summary(job, plan, [], 0.0)
    start = time.perf_counter()
    if job.builder.numbers_records:
        units = numbered(plan.root, units, options.quiet)
    with Progress(job.folder, plan.units, options.quiet, elsewhere=options.runner_named):
        shares = not options.runner_named or storage.is_remote(plan.root)
        if not _run_beam(job, units if shares else [unit.elsewhere() for unit in units], options):
            return None
    if not shares:
        _check_after(job, plan, options)
    remove_stage(job)
    _tidy(job)
    return _summary(job, plan, units, time.perf_counter() - start)


def _check_after(job: Job, plan: Plan, options: RunOptions) -> None:
    """Check after a run that no input was modified during it; if one was, remove the manifests.

    It is called if workers may run on other machines. There, the times and inode numbers of the inputs may differ, so
    that workers cannot notice that an input was modified.

    Raises:
        InputChangedError: an input was modified.
    """
    now = (storage.status(storage.join(plan.root, entry.name)) for entry in plan.inputs)
    pairs = zip(plan.inputs, now, strict=True)
    inputs = tuple(dataclasses.replace(entry, status=status) for entry, status in pairs)
    try:
        check_inputs(job.folder, dataclasses.replace(plan, inputs=inputs), done_units(job.folder), options.quiet)
    except InputChangedError:
        _uncommit(job)
        raise


def _summary(job: Job, plan: Plan, units: list[Unit], seconds: float) -> DatasetSummary:
    """Return the summary of the finished dataset and of the work of this run.

    Args:
        units: the units that this run processed; empty if the dataset was already finished.
        seconds: the duration of the run.
    """
    results, counts, skipped = load_results(job), Counts(), job.fingerprint["inputs"].get("skipped")
    for result in results.values():
        counts.add(result.counts)
    manifest = Manifest.load(job.folder)
    of_classes = classes.summary(classes.names(job.folder, manifest), manifest.classes)
    return DatasetSummary(
        output=job.folder,
        manifest=manifest,
        num_units=len(units),
        input_bytes=sum(unit.bytes for unit in units),
        records=sum(results[unit.number].counts.read for unit in units),
        seconds=seconds,
        sums=counts.sums,
        encodings=counts.encodings,
        recoded=counts.recoded,
        remarks=[
            *of_classes,
            *columns_read(plan.root, plan.inputs, job.reading),
            *([f"{counted(skipped, 'input')} of unknown type skipped"] if skipped else []),
            *left_out_lines(plan.left_out),
            *encoding_lines(counts.encodings, counts.recoded),
            *filter(None, [counts.files_lacking, held_out_share(manifest), _groups(job)]),
            *job.builder.remarks(job.fingerprint, counts.sums),
        ],
    )


def _groups(job: Job) -> str:
    """Return a line with the number of groups of rows that share a text or a value of the user's group field.

    Return "" if the user names no group field, or if the file with these numbers is missing or damaged.
    """
    field = job.curation.group_field
    if field is None or (figures := decisions.groups_made(job)) is None:
        return ""
    line = f"{figures.rows:,} rows are {counted(figures.groups, 'group')} of one {field} or text, each on one side"
    trained = f"; trained on as parts of large groups: {counted(figures.large, 'row')}" if figures.large else ""
    return line + trained


def _run_beam(job: Job, units: list[Unit], options: RunOptions) -> bool:
    with contextlib.nullcontext() if options.runner_named else quiet_beam():
        # Imported here, so that errors in the command line appear before Beam's slow import.
        from joblib import cpu_count

        from clearspan.pipelines.execution import graph, runners

        shared: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if options.runner_named:
            pipeline = runners.named(options.beam)
        else:
            size, speed = sum(unit.text_bytes for unit in units), job.builder.bytes_per_s
            processes = runners.num_processes(options.workers, len(units), size, speed, cpu_count())
            pipeline = runners.local(processes, options.beam)
            shared = job.builder.shared_by(processes)
        graph.build(pipeline, job, units)
        with shared:
            return runners.run(pipeline)
