"""The held-out part of a dataset, which training never reads: a dataset itself, in a folder of the dataset's.

    DIR/manifest.json            the dataset            fingerprint: "split": "train"
    DIR/validation/manifest.json its held-out part      fingerprint: "split": "validation"

`pipelines` writes it (`--holdout-fraction`), mining copies it, training measures losses on it, `eval` and `adapt` score
models by it.
"""

from pathlib import Path

from clearspan.shards import storage
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import Manifest

FOLDER = "validation"
"""The name of its folder."""
TRAIN, HELD_OUT = "train", "validation"
"""Names in the fingerprint (`split`) of the part to train on and of the held-out part."""


class NoHeldOutPartError(OSError):
    """A dataset has no held-out part, or what lies in its place is another one's."""


def folder_of(dataset: str) -> str:
    """Return the folder of a dataset's held-out part, which need not exist."""
    return storage.join(dataset, FOLDER)


def is_dataset(folder: str) -> bool:
    """Return whether a folder holds a finished dataset."""
    return storage.exists(storage.join(folder, MANIFEST))


def find(dataset: str) -> str | None:
    """Return the folder of a dataset's held-out part; None if it has none."""
    part = folder_of(dataset)
    return part if is_dataset(part) else None


def parts(dataset: str) -> list[str]:
    """Return the folders of a dataset and of its held-out part, those of the two that exist."""
    return [folder for folder in (dataset, folder_of(dataset)) if is_dataset(folder)]


def is_held_out(manifest: Manifest) -> bool:
    """Return whether a manifest is one of a held-out part."""
    return manifest.fingerprint.get("split") == HELD_OUT


def held_out_part(folder: str) -> str:
    """Return the held-out part of a dataset, or the folder itself if that is one.

    Raises:
        NoHeldOutPartError: neither is.
        ManifestError: the folder holds no dataset, or its manifest is damaged.
    """
    if part := find(folder):
        return part
    if not is_held_out(Manifest.load(folder)):
        raise NoHeldOutPartError(f"{folder}: a dataset without a held-out part ({FOLDER}/)")
    return folder


def training_part(part: Path) -> Path | None:
    """Return the dataset that a held-out part was held out from, the folder around it; None if it is not there.

    Raises:
        NoHeldOutPartError: the dataset around it is of another kind.
        ManifestError: one of the two is damaged.
    """
    around = part.parent
    if part.name != FOLDER or not is_dataset(str(around)):
        return None
    kinds = [Manifest.load(str(folder)).kind for folder in (around, part)]
    if kinds[0] != kinds[1]:
        message = f"{part}: holds {kinds[1]}, and {around} {kinds[0]}: it is not the held-out part of that dataset"
        raise NoHeldOutPartError(message)
    return around
