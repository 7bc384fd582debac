"""Last step of a run: check that the results of all work units make up a complete dataset, and write its manifest."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from clearspan.common.errors import PipelineError
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.units.job import DONE, REJECTED, STAGED, Job, UnitResult, done_units, load_result
from clearspan.pipelines.units.ownership import own_files
from clearspan.shards import Manifest, ShardInfo, held_out, storage
from clearspan.shards.manifest import NAME as MANIFEST


def reconcile(job: Job, results: list[UnitResult]) -> tuple[Manifest, Manifest | None]:
    """Return the manifest of the dataset, and the manifest of its held-out part; None if there is no held-out part.

    Args:
        results: the results of all work units, in order.

    Raises:
        PipelineError: the inputs hold no records, too many records are bad, all records were filtered or bad, units
            have different columns, or the training part or the held-out part would be empty.
    """
    counts = Counts()
    for result in results:
        counts.add(result.counts)
    if counts.read == 0:
        raise PipelineError("the inputs hold no records: check `input`")
    # A failed update leaves no files.
    counts.check_bad(
        job.max_bad_fraction, f"; all of them: {job.path(REJECTED)}" if job.builder.plan.old is None else ""
    )
    if counts.kept == 0:
        raise PipelineError(job.builder.nothing_kept(counts))
    reconciled = {"read": counts.read, "kept": counts.kept, "filtered": dict(counts.filtered), "bad": counts.bad}
    _check_columns(shard for result in results for shard in (*result.shards, *result.held))
    shards = [shard for result in results for shard in result.shards]
    fraction = job.curation.holdout_fraction
    if not fraction:
        return Manifest(job.builder.name, job.fingerprint, shards, reconciled), None
    held = [shard for result in results for shard in result.held]
    manifests = []
    of_train = (held_out.TRAIN, shards, held, "held_out")
    of_held_out = (held_out.HELD_OUT, held, shards, "in_training")
    for split, mine, other, there in (of_train, of_held_out):
        elsewhere = sum(shard.examples for shard in other)
        if elsewhere == counts.kept:
            option = f"`holdout_fraction` {fraction:g}"
            field = job.curation.group_field
            shared = f"a text or their {field}" if field else "a text"
            together = f", of which those that share {shared} stay together," if job.curation.is_linked else ""
            raise PipelineError(f"{option} of {counts.kept:,} {job.builder.name}{together} leaves none to {split}")
        of_split = {**reconciled, "kept": counts.kept - elsewhere, "filtered": {**counts.filtered, there: elsewhere}}
        manifests.append(Manifest(job.builder.name, {**job.fingerprint, "split": split}, mine, of_split))
    return manifests[0], manifests[1]


def _check_columns(shards: Iterable[ShardInfo]) -> None:
    """Raise PipelineError unless all shards have the same columns."""
    first: dict[tuple[str, ...], str] = {}
    for shard in shards:
        first.setdefault(tuple(sorted(shard.lengths)), shard.name)
    if len(first) > 1:
        examples = "; ".join(f"{name}: {', '.join(columns)}" for columns, name in first.items())
        raise PipelineError(
            f"the inputs do not all have the same columns ({examples}): make a separate dataset for each"
        )


def load_results(job: Job, stage: str = DONE) -> dict[int, UnitResult]:
    """Return the results of the work units that are done: number of the unit -> result, in ascending order.

    A unit is done if the file of its result is undamaged, all shards that the result names exist with the right sizes,
    and all other files that it names exist with the right hashes. The hash of a shard is checked later, when it is
    read.

    Args:
        stage: DONE for the final results; STAGED for the results of the first of two stages.
    """
    units = sorted(done_units(job.folder, stage) & set(range(job.num_units)))
    sizes = storage.file_sizes(job.staged_folder if stage == STAGED else job.folder)
    held = storage.file_sizes(job.validation_folder)

    def load(unit: int) -> UnitResult | None:
        done = load_result(job.result_path(unit, stage), job.plan, unit)
        if done is None or any(sizes.get(shard.name) != shard.bytes for shard in done.shards):
            return None
        hashes = {name: storage.sha256(job.path(name)) for name in done.files if storage.exists(job.path(name))}
        is_whole = all(held.get(shard.name) == shard.bytes for shard in done.held)
        return done if is_whole and hashes == done.files else None

    results = zip(units, storage.each(job.folder, load, units), strict=True)
    return {unit: result for unit, result in results if result}


def commit(job: Job) -> Manifest:
    """Write the manifests of the dataset and of its held-out part; return the manifest of the dataset.

    Raises:
        PipelineError: a work unit is not done, or the results of the units do not make up a valid dataset, for example
            because too many records are bad.
    """
    results = load_results(job)
    if missing := set(range(job.num_units)) - set(results):
        raise PipelineError(
            f"{len(missing)} work units are not finished (the first is {min(missing)}): run again to continue"
        )
    manifest, held = reconcile(job, list(results.values()))
    if held:
        held.save(job.validation_folder)
    manifest.save(job.folder)
    return manifest


def remove_stage(job: Job) -> None:
    """Remove the files that the first stage of a run with two stages wrote. It is called when the dataset is finished.

    The first stage writes entries, by which it is decided which examples are duplicates or held out.
    """
    if storage.list_files(job.staged_folder):
        storage.remove_files(job.folder, own_files(job.folder, f"{STAGED}/"))
    if not storage.is_remote(job.folder):
        with contextlib.suppress(OSError):  # it is missing, or holds files of somebody
            Path(job.staged_folder).rmdir()


def remove_late_stage(job: Job) -> None:
    """Remove the files of the first stage if the dataset is finished. A worker calls it after each of its steps.

    A worker that was cut off goes on with its step when others have repeated it and the run has ended.
    """
    if (
        job.curation.is_staged
        and storage.exists(job.path(MANIFEST))
        and len(done_units(job.folder)) == job.num_units  # otherwise a run makes a lost unit again
    ):
        remove_stage(job)
