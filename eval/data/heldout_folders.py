"""Places of held-out texts: the part `validation/` of a dataset, or datasets and files in `DIR/heldout/`."""

from pathlib import Path

from clearspan.common.records import DataError, MissingDataError
from clearspan.shards.manifest import Manifest, ManifestError

SUFFIXES = (".jsonl", ".csv")
FOLDER, PART = "heldout", "validation"
MANIFEST = "manifest.json"


def find(data: Path) -> dict[str, Path]:
    """Return name -> folder of a held-out part, or file: one if `data` is a dataset, else those in `data/heldout/`.

    Raises:
        MissingDataError: there is none.
        DataError: the dataset has no held-out part, or two entries of `data/heldout/` have one name.
    """
    if (data / MANIFEST).is_file():
        return {FOLDER: held_out_part(data)}
    found: dict[str, Path] = {}
    for path in sorted((data / FOLDER).glob("[!.]*")):
        if (path / MANIFEST).is_file():
            inner = path / PART
            name, part = path.name, inner if (inner / MANIFEST).is_file() else path
        elif path.suffix.lower() in SUFFIXES and path.is_file():
            name, part = path.stem, path
        else:
            continue
        if other := found.get(f"{FOLDER}/{name}"):
            raise DataError(f"{path}: would be the task {FOLDER}/{name}, as {other} is: rename one of them")
        found[f"{FOLDER}/{name}"] = part
    if not found:
        raise MissingDataError(
            f"{data} is no dataset of shards ({MANIFEST}), and {data / FOLDER} holds none, nor a .jsonl or .csv file"
        )
    return found


def held_out_part(folder: Path) -> Path:
    """Return the held-out part of a dataset: its `validation`, or the folder itself if that is such a part.

    Raises:
        DataError: neither is.
    """
    if (folder / PART / MANIFEST).is_file():
        return folder / PART
    try:
        is_part = Manifest.load(str(folder)).fingerprint.get("split") == PART
    except ManifestError as error:
        raise DataError(str(error)) from None
    if not is_part:
        raise DataError(
            f"{folder}: a dataset without a held-out part (validation/): run its pipeline with --holdout-fraction "
            f"0.05; or put a dataset that no training reads at DIR/{FOLDER}/NAME, and give --data DIR"
        )
    return folder


def training_part(part: Path) -> Path | None:
    """Return the dataset that a held-out part, its folder `validation`, was held out from; None: it is not there.

    Raises:
        DataError: the dataset around it is damaged, or of another kind.
    """
    folder = part.parent
    if part.name != PART or not (folder / MANIFEST).is_file():
        return None
    try:
        kinds = [Manifest.load(str(each)).kind for each in (folder, part)]
    except ManifestError as error:
        raise DataError(str(error)) from None
    if kinds[0] != kinds[1]:
        raise DataError(
            f"{part}: holds {kinds[1]}, and {folder} {kinds[0]}: it is not the held-out part of that dataset"
        )
    return folder
