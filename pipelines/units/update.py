"""Update of a finished dataset to changed inputs: a run in a subfolder, whose result then replaces it.

    OUTPUT/            the old dataset, which stays usable: vectors-00000-000.tar ... manifest.json plan.json _done/
    OUTPUT/.update/    a complete dataset of the new inputs: vectors-50000-000.tar ... manifest.json plan.json _done/
    then               1. the new shards move to OUTPUT, beside the old shards
                       2. manifest.json of OUTPUT is replaced: from here on the dataset is the new one
                       3. plan.json, _done/ and the other files of the old run are replaced
                       4. the old shards and then .update/ are removed

From update to update, shard numbers start alternately at 0 and at SECOND (50,000), so that old and new shards have no
name in common. Until step 2 a reader finds the old dataset, even if the command is killed. A later run that finds
`.update/manifest.json` does the remaining steps. If a killed command left an unfinished `.update/`, and the inputs have
changed again since, `.update/` is removed and begun anew.
"""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clearspan.common.files import locked
from clearspan.common.flags import flag
from clearspan.pipelines.errors import InputChangedError, PipelineError
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.changes import check_inputs
from clearspan.pipelines.units.job import FOLDERS, Job, done_units
from clearspan.pipelines.units.plan import Plan
from clearspan.shards import Dataset, Manifest, storage
from clearspan.shards.claim import differences
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import SHARD_NAME, ManifestError

FOLDER = ".update"
SECOND = planning.MAX_UNITS // 2
"""The number of the first shard in every second state of the dataset: numbers start at 0 and here alternately."""
ASIDE, ASIDE_DONE = ".replaced", ".replaced-all"
"""In FOLDER: what step 3 replaces, and a file that says that all of it has been moved there."""
OF_INPUTS = ("unit_bytes",)
"""Options that follow from the size of the inputs."""
MOST_SHOWN = 6


def first_shard(folder: str) -> int:
    """Return the number from which the shards of a dataset, finished or not, are numbered: 0 or SECOND (50,000).

    Updates use the two alternately, so that old and new shards have different names.
    """
    try:
        names = [shard.name for shard in Manifest.load(folder).shards]
    except ManifestError:  # it is missing, or damaged
        names = [name for name in storage.list_files(folder) if SHARD_NAME.fullmatch(name)]
    return SECOND if names and all(int(name.split("-")[1]) >= SECOND for name in names) else 0


def is_outdated(job: Job, plan: Plan, quiet: bool) -> bool:
    """Return whether the output folder holds a finished dataset whose inputs have changed since it was made.

    If it holds no finished dataset, return False.

    Args:
        plan: the plan for the present inputs.
        quiet: whether to hide the progress bar while inputs are read again.

    Raises:
        PipelineError: an update is impossible, because a part is to be held out, the output folder is in an object
            store, or the dataset was made with different options.
    """
    if job.curation.holdout_fraction:
        raise PipelineError(
            f"{flag('--update')}: a dataset with {flag('--holdout-fraction')} cannot be updated: choose a new "
            f"{flag('--output')}"
        )
    if storage.is_remote(job.folder):
        raise PipelineError(f"{flag('--update')}: {job.folder} is not on this machine: choose a new {flag('--output')}")
    if not _is_finished(job):
        return False
    check_options(job.folder, planning.began(job.folder), job.fingerprint)
    if storage.read_bytes(job.path(planning.NAME)) != plan.to_json():
        return True
    try:
        check_inputs(job.folder, plan, done_units(job.folder) & set(range(job.num_units)), quiet)
    except InputChangedError:  # an edit that the plan does not show
        return True
    return False


def _is_finished(job: Job) -> bool:
    return storage.exists(job.path(MANIFEST)) and bool(planning.began(job.folder))


def is_possible(job: Job) -> bool:
    """Return whether the user can be advised to run the same command again with `--update`.

    This is so if the command has this option, this run was started without it, and the output folder holds a finished
    dataset that was made with the same options.
    """
    can_update = job.kind.can_update and not job.kind.update and _is_finished(job)
    return can_update and not option_differences(planning.began(job.folder), job.fingerprint)


def check_options(folder: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise PipelineError if two fingerprints of a dataset differ in the kind or the options, not only in the inputs.

    Args:
        folder: the folder of the dataset, for the message.
        old: the fingerprint in the dataset's plan.
        new: the fingerprint of the present run.
    """
    if lines := option_differences(old, new):
        shown = "; ".join(lines[:MOST_SHOWN])
        raise PipelineError(
            f"{folder}: {flag('--update')} needs the model and the options with which the folder was made ({shown}): "
            "give the same, or "
            f"choose another {flag('--output')}"
        )


def option_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference in the kind or the options between two fingerprints; [] if there is none.

    Differences of the inputs, and of `unit_bytes`, which follows from their size, are left out.
    """

    def shaping(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: value for name, value in fingerprint["options"].items() if name not in OF_INPUTS}
        return {"kind": fingerprint["kind"], **options}

    return differences(shaping(old), shaping(new))


def begin(folder: str, plan: bytes) -> Path:
    """Create the subfolder `.update`, in which a dataset of the new inputs is made, and return its path.

    If a killed command left the subfolder, its files are kept if its plan.json equals `plan`, and removed otherwise.

    Args:
        folder: the folder of the dataset.
        plan: the content of plan.json for the new inputs.
    """
    beside = Path(folder, FOLDER)
    path = beside / planning.NAME
    if beside.exists() and not (path.exists() and path.read_bytes() == plan):
        remove_subfolder(folder)
    beside.mkdir(exist_ok=True)
    return beside


def remove_subfolder(folder: str) -> None:
    """Remove the subfolder `.update` of a dataset's folder, with all that was made there."""
    shutil.rmtree(Path(folder, FOLDER))


def complete_killed_update(folder: str) -> None:
    """Complete an update that was killed: if `.update` holds a finished dataset, replace the old dataset by it.

    If only the removal of `.update` was left to do, `.update` is removed. An unfinished dataset in `.update` stays
    there.
    """
    beside = Path(folder, FOLDER)
    if storage.is_remote(folder) or not beside.is_dir():
        return
    if (beside / MANIFEST).exists():
        with locked(folder):
            replace(folder)
    elif {path.name for path in beside.iterdir()} <= {ASIDE_DONE}:  # nothing was left to do
        remove_subfolder(folder)


def replace(folder: str) -> None:
    """Replace a dataset by the finished dataset in its subfolder `.update`, and remove the subfolder.

    If the process is killed meanwhile, a second call does the remaining steps.

    Raises:
        PipelineError: a shard of the new dataset is missing.
    """
    target, beside = Path(folder), Path(folder, FOLDER)
    manifest = Manifest.load(str(beside))
    for shard in manifest.shards:
        if (beside / shard.name).exists():
            (beside / shard.name).replace(target / shard.name)
    if missing := next((shard.name for shard in manifest.shards if not (target / shard.name).exists()), None):
        raise PipelineError(f"{beside}: {missing} is missing: delete {beside}, and run again with {flag('--update')}")
    manifest.save(folder)
    (beside / ASIDE).mkdir(exist_ok=True)
    if not (beside / ASIDE_DONE).exists():
        for name in (*FOLDERS, planning.NAME):
            if (target / name).exists():
                (target / name).replace(beside / ASIDE / name)
        (beside / ASIDE_DONE).touch()
    for name in (*FOLDERS, planning.NAME):
        if (beside / name).exists():
            (beside / name).replace(target / name)
    named = {shard.name for shard in manifest.shards}
    for name in storage.list_files(folder):
        if SHARD_NAME.fullmatch(name) and name not in named:
            (target / name).unlink()
    for path in beside.iterdir():
        if path.name not in (MANIFEST, ASIDE_DONE):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
    for name in (MANIFEST, ASIDE_DONE):
        (beside / name).unlink()
    beside.rmdir()


def changes(old: str, new: str) -> dict[str, int]:
    """Return how many texts an update adds, removes and keeps, as `changed` returns them.

    A text that was cut into chunks counts once.

    Args:
        old, new: the folders of the old and the new dataset.
    """
    return changed(ids_of(old), ids_of(new))


def changed(old: np.ndarray, new: np.ndarray) -> dict[str, int]:
    """Return how many texts are new, gone and kept, as {"new": ..., "gone": ..., "kept": ...}.

    A text that occurs three times counts three times.

    Args:
        old: the ids of the n old texts, (n,) int64.
        new: the ids of the m new texts, (m,) int64.
    """
    (before, times), (after, times_after) = (np.unique(ids, return_counts=True) for ids in (old, new))
    _, first, second = np.intersect1d(before, after, assume_unique=True, return_indices=True)
    kept = int(np.minimum(times[first], times_after[second]).sum())
    return {"new": int(times_after.sum()) - kept, "gone": int(times.sum()) - kept, "kept": kept}


def ids_of(folder: str) -> np.ndarray:
    """Return the ids of the n texts in a dataset, (n,) int64. A text that was cut into chunks is one text."""
    ids = [np.empty(0, np.int64)]
    for batch in Dataset(folder):
        if "document" in batch.schema.names:
            ids.append(batch.column("document").to_numpy()[batch.column("chunk").to_numpy() == 0])
        else:
            ids.append(batch.column("id").to_numpy())
    return np.concatenate(ids)
