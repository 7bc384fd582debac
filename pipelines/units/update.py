"""Update of a finished dataset to changed inputs: a run in a subfolder, whose result then replaces it.

    OUTPUT/            the old dataset, which stays usable: vectors-00000-000.tar ... manifest.json plan.json _done/
    OUTPUT/.update/    a complete dataset of the new inputs: vectors-50000-000.tar ... manifest.json plan.json _done/
    then               1. the new shards move to OUTPUT, beside the old shards
                       2. manifest.json of OUTPUT is replaced: from here on the dataset is the new one
                       3. plan.json, _done/ and the other files of the new run move to OUTPUT
                       4. the files of the old run that are left, and then .update/, are removed

From update to update, shard numbers start alternately at 0 and at SECOND (50,000), so that old and new shards have no
name in common. Until step 2 a reader finds the old dataset, even if the command is killed. A later run that finds
`.update/manifest.json` does the remaining steps. If a killed command left an unfinished `.update/`, and the inputs have
changed again since, `.update/` is removed and begun anew. It is also removed after a failure that the same command
would meet again, and when the dataset turns out to be up to date.

`.update/.claim.json` lists the files of the old run (`units.ownership`). Only these, and files that the update wrote,
are removed or replaced; other files in OUTPUT and in `.update/` stay. An update that would have to replace one of them
is refused.
"""

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from clearspan.common.checksummed import build, dump_checksummed, load_checksummed
from clearspan.common.errors import PipelineError
from clearspan.common.files import file_in_way, locked, remove_files, remove_temporaries, sha256, write_bytes
from clearspan.common.progress import counted
from clearspan.pipelines.builders.copied import readable_shards
from clearspan.pipelines.errors import InputChangedError
from clearspan.pipelines.units import plan as planning
from clearspan.pipelines.units.changes import check_inputs
from clearspan.pipelines.units.job import FOLDERS, Job, done_units
from clearspan.pipelines.units.ownership import may_write, own_files
from clearspan.pipelines.units.plan import Plan
from clearspan.shards import Manifest, storage
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import SHARD_NAME, ManifestError
from clearspan.shards.ownership import differences

FOLDER = ".update"
SECOND = planning.MAX_UNITS // 2
"""The number of the first shard in every second state of the dataset: numbers start at 0 and here alternately."""
OWNED, INDEX = ".claim.json", ".index.npy"
"""In FOLDER: a `OwnedFiles`, and an index of the vectors that the update copies (`kinds.copied`)."""
OF_INPUTS = ("unit_bytes",)
"""Options that follow from the size of the inputs."""
MAX_SHOWN = 6


def first_shard(folder: str) -> int:
    """Return the number from which the shards of a dataset, finished or not, are numbered: 0 or SECOND (50,000).

    Updates use the two alternately, so that old and new shards have different names.
    """
    try:
        names = [shard.name for shard in Manifest.load(folder).shards]
    except ManifestError:  # it is missing, or damaged
        names = [name for name in own_files(folder) if SHARD_NAME.fullmatch(name)]
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
        raise PipelineError("`update`: a dataset with `holdout_fraction` cannot be updated: choose a new `output`")
    if storage.is_remote(job.folder):
        raise PipelineError(f"`update`: {job.folder} is not on this machine: choose a new `output`")
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
    can_update = job.builder.can_update and not job.builder.update and _is_finished(job)
    return can_update and not option_differences(planning.began(job.folder), job.fingerprint)


def check_options(folder: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise PipelineError if two fingerprints of a dataset differ in the kind or the options, not only in the inputs.

    Args:
        folder: the folder of the dataset, for the message.
        old: the fingerprint in the dataset's plan.
        new: the fingerprint of the present run.
    """
    if lines := option_differences(old, new):
        shown = "; ".join(lines[:MAX_SHOWN])
        raise PipelineError(
            f"{folder}: `update` needs the model and the options with which the folder was made ({shown}): "
            "give the same, or "
            f"choose another `output`"
        )


def option_differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
    """Return a line for each difference in the kind or the options between two fingerprints; [] if there is none.

    Differences of the inputs, and of `unit_bytes`, which follows from their size, are left out.
    """

    def shaping(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: value for name, value in fingerprint["options"].items() if name not in OF_INPUTS}
        return {"kind": fingerprint["kind"], **options}

    return differences(shaping(old), shaping(new))


@dataclasses.dataclass(frozen=True)
class OwnedFiles:
    """The content of `.update/.claim.json`, which tells the files of an update and of the old dataset from others.

    Attributes:
        manifest: the SHA-256 of the old dataset's manifest.json.
        kind, first_shard, num_units: the kind of dataset, the number of the update's first shard, and the number of its
            work units, which determine the names of its files.
        old: the names of the files of the old dataset, relative to its folder.
        new: the names of the files of the new dataset, relative to `.update`; empty until it is finished.
    """

    manifest: str
    kind: str
    first_shard: int
    num_units: int
    old: list[str]
    new: list[str] = dataclasses.field(default_factory=list)

    @classmethod
    def read(cls, beside: Path) -> "OwnedFiles | None":
        """Return the record in a folder; None if the folder holds none, and therefore no files of an update.

        Anyone can write such a record, so one that names a file outside of the two folders is none.
        """
        try:
            owned = build(cls, load_checksummed((beside / OWNED).read_bytes()))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        folders = ((beside.parent, owned.old), (beside, owned.new), (beside.parent, owned.new))
        return owned if all(_is_inside(folder, name) for folder, names in folders for name in names) else None

    def save(self, beside: Path) -> None:
        write_bytes(beside / OWNED, dump_checksummed(dataclasses.asdict(self)))

    def covers(self, name: str) -> bool:
        """Return whether the update may write a file of this name, relative to `.update`."""
        return name in (OWNED, INDEX) or may_write(name, self.kind, self.first_shard, self.num_units)


def _is_inside(folder: Path, name: str) -> bool:
    """Return whether a path below a folder leads to a file there, and by no link to another folder."""
    parent = os.path.realpath((folder / name).parent)
    return ".." not in Path(name).parts and f"{parent}/".startswith(f"{os.path.realpath(folder)}/")


def begin(job: Job, first_shard: int, plan: bytes) -> Path:
    """OwnedFiles the subfolder `.update`, in which a dataset of the new inputs is made, and return its path.

    If a killed command left the subfolder, its files are kept if its plan.json equals `plan`, and removed otherwise.

    Args:
        job: the description of the run, with the folder of the dataset.
        first_shard: the number in the names of the new dataset's first shard.
        plan: the content of plan.json for the new inputs.

    Raises:
        PipelineError: the subfolder holds a file of somebody, of a name that the update needs.
    """
    beside = Path(job.folder, FOLDER)
    path, manifest = beside / planning.NAME, sha256(job.path(MANIFEST))
    owned = OwnedFiles(manifest, job.builder.name, first_shard, job.num_units, own_files(job.folder))
    earlier = OwnedFiles.read(beside)
    if earlier and not (earlier.manifest == manifest and path.exists() and path.read_bytes() == plan):
        discard(job.folder)
        earlier = None
    taken = [beside / name for name in storage.tree(str(beside)) if owned.covers(name)] if earlier is None else []
    if in_way := file_in_way(beside) or next(iter(taken), None):
        raise PipelineError(f"{in_way}: `update` needs this name: move {beside} away, and run again")
    owned.save(beside)
    write_bytes(path, plan)
    return beside


def discard(folder: str) -> None:
    """Remove all that an update, finished or not, has written to the subfolder `.update` of a dataset's folder.

    Other files there stay. If no update has made the subfolder, only empty folders are removed.
    """
    beside = Path(folder, FOLDER)
    folders = [*(beside / name for name in FOLDERS), beside]
    if owned := OwnedFiles.read(beside):
        for path in folders:
            remove_temporaries(path)
        names = {name for name in storage.tree(str(beside)) if owned.covers(name)} | set(own_files(str(beside)))
        # Without its manifest it is unfinished, and without the record it is nothing.
        remove_files(beside, [MANIFEST, *sorted(names - {MANIFEST, OWNED}), OWNED])
    for path in folders:
        with contextlib.suppress(OSError):  # it is missing, or holds files of somebody
            path.rmdir()


def complete_killed_update(folder: str) -> None:
    """Complete an update that was killed: if `.update` holds a finished dataset, replace the old dataset by it.

    An unfinished dataset in `.update` stays there, and so does one that is an update of another dataset.

    Raises:
        InUseError: another run is at work in the folder.
    """
    beside = Path(folder, FOLDER)
    if not storage.is_remote(folder) and OwnedFiles.read(beside) and (beside / MANIFEST).exists():
        with locked(folder):
            if _is_complete(folder):
                replace(folder)


def _is_complete(folder: str) -> bool:
    """Return whether `.update` holds a finished dataset that is to replace the one in `folder`, or has begun to."""
    target, beside = Path(folder), Path(folder, FOLDER)
    try:
        manifest = Manifest.load(str(beside))
        present = sha256(target / MANIFEST)
    except (ManifestError, FileNotFoundError):
        return False
    owned = OwnedFiles.read(beside)
    if owned is None or present not in (owned.manifest, sha256(beside / MANIFEST)):
        return False
    is_whole = bool(owned.new) or planning.began(str(beside)) == manifest.fingerprint
    return is_whole and all((beside / each.name).exists() or (target / each.name).exists() for each in manifest.shards)


def replace(folder: str) -> None:
    """Replace a dataset by the finished dataset in its subfolder `.update`, and remove the subfolder.

    If the process is killed meanwhile, a second call does the remaining steps.

    Raises:
        PipelineError: a file of somebody has a name that the new dataset needs. Nothing has been changed.
    """
    target, beside = Path(folder), Path(folder, FOLDER)
    owned = OwnedFiles.read(beside)
    assert owned is not None
    if not owned.new:
        owned = dataclasses.replace(owned, new=own_files(str(beside)))
        _check_free(target, owned)
        owned.save(beside)
    shards = [name for name in owned.new if SHARD_NAME.fullmatch(name)]
    _move(shards, beside, target)
    write_bytes(target / MANIFEST, (beside / MANIFEST).read_bytes())
    _move([name for name in owned.new if name not in (MANIFEST, *shards)], beside, target)
    new = set(owned.new)
    remove_files(target, [name for name in owned.old if name not in new])
    discard(folder)


def _check_free(target: Path, owned: OwnedFiles) -> None:
    """Raise PipelineError if the new dataset needs the name of a file in `target` that is not of the old dataset."""
    old = set(owned.old)
    paths = [target / name for name in owned.new if name not in old]
    in_way = dict.fromkeys(
        filter(None, (file_in_way(path.parent) or (os.path.lexists(path) and path) for path in paths))
    )
    if in_way:
        first, *others = in_way
        more = f" and {counted(len(others), 'other')}" if others else ""
        raise PipelineError(
            f"{first}{more}: not of this dataset, and `update` needs the name: move it away, and run again"
        )


def _move(names: list[str], beside: Path, target: Path) -> None:
    """Move files, which have these names relative to both folders, from one to the other, if they are still there."""
    for name in names:
        if (beside / name).exists():
            (target / name).parent.mkdir(exist_ok=True)
            (beside / name).replace(target / name)


def changes(old: str, new: str) -> dict[str, int]:
    """Return how many texts an update adds, removes and keeps, as `changed` returns them.

    A text that was cut into chunks counts once. Texts in damaged shards of the old dataset do not count as old.

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
    """Return the ids of the n texts in a dataset, (n,) int64, without damaged shards. Chunks of a text are one text."""
    ids = [np.empty(0, np.int64)]
    for _, batches in readable_shards(folder, ("id", "document", "chunk")):
        for batch in batches or []:
            if "document" in batch.schema.names:
                ids.append(batch.column("document").to_numpy()[batch.column("chunk").to_numpy() == 0])
            else:
                ids.append(batch.column("id").to_numpy())
    return np.concatenate(ids)
