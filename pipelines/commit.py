"""The commit: every unit's account into one manifest, if they add up to a dataset. Nothing before it is one."""

from pipelines.errors import PipelineError
from pipelines.job import REJECTED, Done, Job, done_units
from pipelines.tally import Counts
from shards import Manifest, storage


def reconcile(job: Job, accounts: list[Done]) -> Manifest:
    """The manifest over all units, in order.

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
    return Manifest(job.kind.name, job.fingerprint, shards, figures)


def damaged(folder: str, accounts: dict[int, Done]) -> set[int]:
    """Units with a shard that is missing or not of the size their account says."""
    sizes = storage.file_sizes(folder)
    return {
        unit for unit, done in accounts.items() if any(sizes.get(shard.name) != shard.bytes for shard in done.shards)
    }


def load_accounts(job: Job) -> dict[int, Done]:
    """The accounts there are, by unit, in order."""
    units = sorted(done_units(job.folder))
    return {unit: Done.from_json(storage.read_bytes(job.done_path(unit))) for unit in units}


def commit(job: Job) -> Manifest:
    """Writes the manifest; done twice, it writes the same.

    Raises:
        PipelineError: a unit is missing, or the units add up to no dataset.
    """
    accounts = load_accounts(job)
    missing = (set(range(job.num_units)) - set(accounts)) | damaged(job.folder, accounts)
    if missing:
        raise PipelineError(f"{len(missing)} work units are not done, the first {min(missing)}: run again to continue")
    manifest = reconcile(job, list(accounts.values()))
    manifest.save(job.folder)
    return manifest
