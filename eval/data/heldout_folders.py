"""Find held-out texts: the held-out part of a dataset (`shards.held_out`), or datasets and files in `DIR/heldout/`."""

from pathlib import Path

from clearspan.common.flags import flag
from clearspan.common.records import DataError, MissingDataError
from clearspan.shards import held_out
from clearspan.shards.held_out import NoHeldOutPartError
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import ManifestError

SUFFIXES = (".jsonl", ".csv")
FOLDER = "heldout"


def find(data: Path) -> dict[str, Path]:
    """Return the folders of held-out parts, and the files, that hold held-out texts in a data folder, by task name.

    If `data` is itself a dataset, this is only its held-out part. Otherwise, these are the datasets and the jsonl and
    csv files in `data/heldout/`.

    Raises:
        MissingDataError: there are no held-out texts.
        DataError: the dataset has no held-out part, or two entries of `data/heldout/` would have the same task name.
    """
    if held_out.is_dataset(str(data)):
        return {FOLDER: held_out_part(data)}
    found: dict[str, Path] = {}
    for path in sorted((data / FOLDER).glob("[!.]*")):
        if held_out.is_dataset(str(path)):
            name, part = path.name, Path(held_out.find(str(path)) or path)
        elif path.suffix.lower() in SUFFIXES and path.is_file():
            name, part = path.stem, path
        else:
            continue
        if other := found.get(f"{FOLDER}/{name}"):
            raise DataError(f"{path}: has the name {FOLDER}/{name} as a task, like {other}: rename one of them")
        found[f"{FOLDER}/{name}"] = part
    if not found:
        raise MissingDataError(
            f"{data} is not a dataset of shards ({MANIFEST}), and {data / FOLDER} holds no dataset and no .jsonl or "
            ".csv file"
        )
    return found


def held_out_part(folder: Path) -> Path:
    """Return the folder of a dataset's held-out part; return `folder` if it is itself a held-out part.

    Raises:
        DataError: the folder is not a dataset, or the dataset has no held-out part.
    """
    try:
        return Path(held_out.held_out_part(str(folder)))
    except NoHeldOutPartError as error:
        raise DataError(
            f"{error}: run its pipeline with {flag('--holdout-fraction')} 0.05; or put a dataset that no training "
            f"reads at DIR/{FOLDER}/NAME, and give {flag('--data')} DIR"
        ) from None
    except ManifestError as error:
        raise DataError(str(error)) from None


def training_part(part: Path) -> Path | None:
    """Return the folder of the dataset that a held-out part was split from; None if the parent folder is no dataset.

    Raises:
        DataError: the dataset in the parent folder is damaged, or its kind differs from the kind of the held-out part.
    """
    try:
        return held_out.training_part(part)
    except (NoHeldOutPartError, ManifestError) as error:
        raise DataError(str(error)) from None
