"""The commit: every unit's account into one manifest, if they add up to a dataset. Nothing before it is one."""

from pipelines.errors import PipelineError
from pipelines.tally import Counts
from pipelines.units.job import REJECTED, STAGED, Done, Job, done_units, load_account
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
        rejected = job.path(REJECTED)
        allowed = f"--max-bad-fraction {job.max_bad_fraction:g}"
        raise PipelineError(f"{counts.complaint()} (allowed: {allowed}; all of them: {rejected})")
    if counts.kept == 0:
        raise PipelineError(job.kind.nothing_kept(counts))
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
    """Units of which something is missing, or a shard is not of the size that their account says."""
    sizes, held = storage.file_sizes(job.folder), storage.file_sizes(job.validation_folder)
    rejected = {f"{REJECTED}/{name}" for name in storage.list_files(job.path(REJECTED))}
    return {
        unit
        for unit, done in accounts.items()
        if any(sizes.get(shard.name) != shard.bytes for shard in done.shards)
        or any(held.get(shard.name) != shard.bytes for shard in done.held)
        or (job.rejected_name(unit) in done.files and job.rejected_name(unit) not in rejected)
    }


def load_accounts(job: Job) -> dict[int, Done]:
    """The accounts there are, by unit, in order; a damaged one is none."""
    units = sorted(done_units(job.folder) & set(range(job.num_units)))
    accounts = {unit: load_account(job.done_path(unit), job.plan, unit) for unit in units}
    return {unit: account for unit, account in accounts.items() if account}


def staged_units(job: Job) -> set[int]:
    """Units whose first stage is whole: account, shards and keys are as they were written."""
    files = storage.file_sizes(job.staged_folder)
    units = set()
    for unit in done_units(job.folder, STAGED) & set(range(job.num_units)):
        done = load_account(job.staged_path(unit), job.plan, unit)
        if done and all(files.get(shard.name) == shard.bytes for shard in done.shards) and _same(job, done):
            units.add(unit)
    return units


def _same(job: Job, staged: Done) -> bool:
    """Whether a unit's staged files have the hashes of its account."""
    sums = {f"{STAGED}/{shard.name}": shard.sha256 for shard in staged.shards} | staged.files
    try:
        return all(storage.sha256(job.path(name)) == expected for name, expected in sums.items())
    except FileNotFoundError:
        return False


def commit(job: Job, accounts: dict[int, Done] | None = None) -> Manifest:
    """Writes the manifest over all accounts (None: read here), and that of what is held out, unless they are there.

    Raises:
        PipelineError: a unit is missing, or the units add up to no dataset.
    """
    accounts = load_accounts(job) if accounts is None else accounts
    missing = (set(range(job.num_units)) - set(accounts)) | damaged(job, accounts)
    if missing:
        raise PipelineError(f"{len(missing)} work units are not done, the first {min(missing)}: run again to continue")
    manifest, held = reconcile(job, list(accounts.values()))
    if held:
        held.save(job.validation_folder)
    manifest.save(job.folder)
    return manifest
