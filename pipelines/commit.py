"""The commit: every unit's account into one manifest, if they add up to a dataset. Nothing before it is one."""

from pipelines.errors import PipelineError
from pipelines.job import REJECTED, STAGED, Done, Job, done_units
from pipelines.tally import Counts
from shards import Manifest, storage


def reconcile(job: Job, accounts: list[Done]) -> tuple[Manifest, Manifest | None]:
    """The manifest over all units, in order, and that of what is held out.

    Raises:
        PipelineError: there were no records, too many were bad, or none was kept.
    """
    counts = Counts()
    for account in accounts:
        counts.add(account.counts)
    if counts.read == 0:
        raise PipelineError("the inputs hold no records at all: check --input")
    if counts.bad > job.max_bad_fraction * counts.read:
        rejected = storage.join(job.folder, REJECTED)
        allowed = f"--max-bad-fraction {job.max_bad_fraction:g}"
        raise PipelineError(f"{counts.complaint()} (allowed: {allowed}; all of them: {rejected})")
    if counts.kept == 0:
        raise PipelineError(job.kind.nothing_kept(counts.read, counts.longest))
    figures = {"read": counts.read, "kept": counts.kept, "filtered": dict(counts.filtered), "bad": counts.bad}
    shards = [shard for account in accounts for shard in account.shards]
    fraction = job.curation.holdout_fraction
    if not fraction:
        return Manifest(job.kind.name, job.fingerprint, shards, figures), None
    held = [shard for account in accounts for shard in account.held]
    manifests = []
    for split, mine, other, there in (("train", shards, held, "held_out"), ("validation", held, shards, "in_training")):
        elsewhere = sum(shard.examples for shard in other)
        if elsewhere == counts.kept:
            of = f"{counts.kept:,} {job.kind.name}"
            raise PipelineError(f"--holdout-fraction {fraction:g} of {of} leaves none to {split}")
        split_figures = {**figures, "kept": counts.kept - elsewhere, "filtered": {**counts.filtered, there: elsewhere}}
        manifests.append(Manifest(job.kind.name, {**job.fingerprint, "split": split}, mine, split_figures))
    return manifests[0], manifests[1]


def damaged(job: Job, accounts: dict[int, Done]) -> set[int]:
    """Units with a shard that is missing or not of the size their account says."""
    sizes, held = storage.file_sizes(job.folder), storage.file_sizes(job.validation_folder)
    return {
        unit
        for unit, done in accounts.items()
        if any(sizes.get(shard.name) != shard.bytes for shard in done.shards)
        or any(held.get(shard.name) != shard.bytes for shard in done.held)
    }


def load_accounts(job: Job) -> dict[int, Done]:
    """The accounts there are, by unit, in order."""
    units = sorted(done_units(job.folder))
    return {unit: Done.from_json(storage.read_bytes(job.done_path(unit))) for unit in units}


def staged_units(job: Job) -> set[int]:
    """Units whose first stage is whole: account, shards and keys."""
    files = storage.file_sizes(job.staged_folder)
    units = set()
    for unit in done_units(job.folder, STAGED):
        done = Done.from_json(storage.read_bytes(job.staged_path(unit)))
        has_keys = not job.curation.dedup or f"{unit:05d}.keys" in files
        if has_keys and all(files.get(shard.name) == shard.bytes for shard in done.shards):
            units.add(unit)
    return units


def commit(job: Job) -> Manifest:
    """Writes the manifest; done twice, it writes the same.

    Raises:
        PipelineError: a unit is missing, or the units add up to no dataset.
    """
    accounts = load_accounts(job)
    missing = (set(range(job.num_units)) - set(accounts)) | damaged(job, accounts)
    if missing:
        raise PipelineError(f"{len(missing)} work units are not done, the first {min(missing)}: run again to continue")
    manifest, held = reconcile(job, list(accounts.values()))
    if held:
        held.save(job.validation_folder)
    manifest.save(job.folder)
    return manifest
