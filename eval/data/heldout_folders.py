"""Find the held-out texts in a user's data folder DIR.

If DIR is a dataset, they are the texts of its held-out part. Otherwise, they are the texts of the datasets, jsonl files
and csv files in `DIR/heldout/`.
"""

from pathlib import Path

from clearspan.common.records import DataError, MissingDataError
from clearspan.shards import held_out
from clearspan.shards.held_out import NoHeldOutPartError
from clearspan.shards.manifest import NAME as MANIFEST
from clearspan.shards.manifest import ManifestError

SUFFIXES = (".jsonl", ".csv")
FOLDER = "heldout"


def find(data: Path) -> dict[str, Path]:
    """Return the places of the held-out texts in a data folder: task name -> folder of a dataset, or file.

    If `data` is itself a dataset, the only place is its held-out part, and the task name is `heldout`. Otherwise, the
    places are the datasets, jsonl files and csv files in `data/heldout/`, and the task names are `heldout/NAME`. The
    place of such a dataset is the folder of its held-out part or, if it has none, its own folder.

    Raises:
        MissingDataError: `data` is not a dataset, and `data/heldout/` holds no dataset, jsonl file or csv file.
        DataError: `data` is a dataset without a held-out part, or two entries of `data/heldout/` would have the same
            task name.
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
        DataError: the folder is not a dataset, or the dataset is damaged or has no held-out part.
    """
    try:
        return Path(held_out.held_out_part(str(folder)))
    except NoHeldOutPartError as error:
        raise DataError(
            f"{error}: run its pipeline with `holdout_fraction` 0.05; or put a dataset that no training "
            f"reads at DIR/{FOLDER}/NAME, and give `data` DIR"
        ) from None
    except ManifestError as error:
        raise DataError(str(error)) from None


def training_part(part: Path) -> Path | None:
    """Return the folder of the dataset that a held-out part was split from, which is the parent folder of `part`.

    Return None if `part` is not called `validation`, or if its parent folder is not a dataset.

    Raises:
        DataError: the manifest of one of the two datasets is damaged, or the datasets are of different kinds.
    """
    try:
        return held_out.training_part(part)
    except (NoHeldOutPartError, ManifestError) as error:
        raise DataError(str(error)) from None
