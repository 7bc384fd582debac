"""The held-out part of a dataset: examples that no model is trained on. It is a dataset too, in a subfolder.

    DIR/manifest.json            the dataset            fingerprint: "split": "train"
    DIR/validation/manifest.json its held-out part      fingerprint: "split": "validation"

The pipelines write it (`--holdout-fraction`), and mining copies it to the mined dataset. Training measures losses on
it; `eval` and `adapt` score models on it.
"""

from pathlib import Path

from clearspan.common.files import sha256
from clearspan.shards import storage
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import Manifest

FOLDER = "validation"
"""Name of the subfolder with the held-out part."""
TRAIN, HELD_OUT = "train", "validation"
"""Names in the fingerprint (`split`) of the part to train on and of the held-out part."""


class NoHeldOutPartError(OSError):
    """A dataset has no held-out part, or the subfolder for it holds a dataset of another kind."""


def folder_of(dataset: str) -> str:
    """Return the folder of a dataset's held-out part: its subfolder `validation`, which need not exist."""
    return storage.join(dataset, FOLDER)


def is_dataset(folder: str) -> bool:
    """Return whether a folder holds a finished dataset."""
    return storage.exists(storage.join(folder, MANIFEST))


def find(dataset: str) -> str | None:
    """Return the folder of a dataset's held-out part; None if there is no such part."""
    part = folder_of(dataset)
    return part if is_dataset(part) else None


def parts(dataset: str) -> list[str]:
    """Return the folder of a dataset and the folder of its held-out part; leave out a folder that holds no dataset."""
    return [folder for folder in (dataset, folder_of(dataset)) if is_dataset(folder)]


def manifest_sha256s(dataset: Path) -> list[str]:
    """Return the SHA-256 of the manifest of a dataset and of its held-out part; both hold the hashes of their shards.

    Raises:
        OSError: there is no such manifest.
    """
    return [sha256(Path(folder, MANIFEST)) for folder in (dataset, folder_of(str(dataset)))]


def is_held_out(manifest: Manifest) -> bool:
    """Return whether a manifest describes a held-out part."""
    return manifest.fingerprint.get("split") == HELD_OUT


def held_out_part(folder: str) -> str:
    """Return the folder of a dataset's held-out part, or `folder` itself if it is a held-out part.

    Raises:
        NoHeldOutPartError: the folder is a dataset without a held-out part.
        ManifestError: the folder holds no dataset, or its manifest is damaged.
    """
    if part := find(folder):
        return part
    if not is_held_out(Manifest.load(folder)):
        raise NoHeldOutPartError(f"{folder}: a dataset without a held-out part ({FOLDER}/)")
    return folder


def training_part(part: Path) -> Path | None:
    """Return the folder of the dataset from which a held-out part was split, which is the parent folder.

    Return None if the parent folder holds no dataset, or if `part` is not named `validation`.

    Args:
        part: the folder of the held-out part.

    Raises:
        NoHeldOutPartError: the dataset in the parent folder is of another kind.
        ManifestError: the manifest of one of the two datasets is missing or damaged.
    """
    around = part.parent
    if part.name != FOLDER or not is_dataset(str(around)):
        return None
    kinds = [Manifest.load(str(folder)).kind for folder in (around, part)]
    if kinds[0] != kinds[1]:
        message = f"{part}: holds {kinds[1]}, and {around} {kinds[0]}: it is not the held-out part of that dataset"
        raise NoHeldOutPartError(message)
    return around
