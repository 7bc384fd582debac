"""The commit: checks that the results of all units add up to a dataset, and writes the manifest."""

from collections.abc import Iterable

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.tally import Counts
from clearspan.pipelines.units.job import (
    DONE,
    LISTS,
    REJECTED,
    STAGED,
    Job,
    UnitResult,
    done_units,
    load_result,
)
from clearspan.shards import Manifest, ShardInfo, storage


def reconcile(job: Job, results: list[UnitResult]) -> tuple[Manifest, Manifest | None]:
    """Return the manifest of all units, in order, and the manifest of the held-out part, if there is one.

    Raises:
        PipelineError: there were no records, too many were bad, none was kept, or their columns differ.
    """
    counts = Counts()
    for result in results:
        counts.add(result.counts)
    if counts.read == 0:
        raise PipelineError("the inputs hold no records at all: check --input")
    if counts.bad > job.max_bad_fraction * counts.read:
        rejected = job.path(REJECTED)
        allowed = f"--max-bad-fraction {job.max_bad_fraction:g}"
        raise PipelineError(f"{counts.complaint()} (allowed: {allowed}; all of them: {rejected})")
    if counts.kept == 0:
        raise PipelineError(job.kind.nothing_kept(counts))
    reconciled = {"read": counts.read, "kept": counts.kept, "filtered": dict(counts.filtered), "bad": counts.bad}
    _check_columns(shard for result in results for shard in (*result.shards, *result.held))
    shards = [shard for result in results for shard in result.shards]
    fraction = job.curation.holdout_fraction
    if not fraction:
        return Manifest(job.kind.name, job.fingerprint, shards, reconciled), None
    held = [shard for result in results for shard in result.held]
    manifests = []
    for split, mine, other, there in (("train", shards, held, "held_out"), ("validation", held, shards, "in_training")):
        elsewhere = sum(shard.examples for shard in other)
        if elsewhere == counts.kept:
            raise PipelineError(
                f"--holdout-fraction {fraction:g} of {counts.kept:,} {job.kind.name} leaves none to {split}"
            )
        of_split = {**reconciled, "kept": counts.kept - elsewhere, "filtered": {**counts.filtered, there: elsewhere}}
        manifests.append(Manifest(job.kind.name, {**job.fingerprint, "split": split}, mine, of_split))
    return manifests[0], manifests[1]


def _check_columns(shards: Iterable[ShardInfo]) -> None:
    """Raise PipelineError if some examples have a column that others lack."""
    first: dict[tuple[str, ...], str] = {}
    for shard in shards:
        first.setdefault(tuple(sorted(shard.lengths)), shard.name)
    if len(first) > 1:
        examples = "; ".join(f"{name}: {', '.join(columns)}" for columns, name in first.items())
        raise PipelineError(f"the inputs do not all have the same columns ({examples}): make a dataset of each")


def damaged(job: Job, results: dict[int, UnitResult]) -> set[int]:
    """Return the units with a missing file, or with a shard whose size differs from their result."""
    sizes, held = storage.file_sizes(job.folder), storage.file_sizes(job.validation_folder)
    written = {f"{folder}/{name}" for folder in LISTS for name in storage.list_files(job.path(folder))}
    return {
        unit
        for unit, done in results.items()
        if any(sizes.get(shard.name) != shard.bytes for shard in done.shards)
        or any(held.get(shard.name) != shard.bytes for shard in done.held)
        or any(name not in written for name in done.files)
    }


def load_results(job: Job, stage: str = DONE) -> dict[int, UnitResult]:
    """Return the existing results by unit, in order, final ones or those of the first stage (STAGED); damaged ones are
    skipped.
    """
    units = sorted(done_units(job.folder, stage) & set(range(job.num_units)))

    def load(unit: int) -> UnitResult | None:
        return load_result(job.path(f"{stage}/{unit:05d}.json"), job.plan, unit)

    results = zip(units, storage.each(job.folder, load, units), strict=True)
    return {unit: result for unit, result in results if result}


def staged_units(job: Job) -> set[int]:
    """Return the units whose first stage is complete: shards of the right size, other files unchanged.

    The worker that reads a shard again checks its bytes.
    """
    sizes = storage.file_sizes(job.staged_folder)
    sized = {
        unit: done
        for unit, done in load_results(job, STAGED).items()
        if all(sizes.get(shard.name) == shard.bytes for shard in done.shards)
    }
    same = storage.each(job.folder, lambda done: _same(job, done), sized.values())
    return {unit for unit, is_same in zip(sized, same, strict=True) if is_same}


def _same(job: Job, staged: UnitResult) -> bool:
    """Return whether the files besides shards have the hashes in a unit's staged result."""
    try:
        return all(storage.sha256(job.path(name)) == expected for name, expected in staged.files.items())
    except FileNotFoundError:
        return False


def commit(job: Job, results: dict[int, UnitResult] | None = None) -> Manifest:
    """Write the manifest, and that of the held-out part, unless they exist.

    Args:
        results: results of all units; None reads them.

    Raises:
        PipelineError: a unit is not done, or the units do not add up to a dataset.
    """
    results = load_results(job) if results is None else results
    missing = (set(range(job.num_units)) - set(results)) | damaged(job, results)
    if missing:
        raise PipelineError(f"{len(missing)} work units are not done, the first {min(missing)}: run again to continue")
    manifest, held = reconcile(job, list(results.values()))
    if held:
        held.save(job.validation_folder)
    manifest.save(job.folder)
    return manifest
