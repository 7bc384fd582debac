"""Saved evaluations, read from `results.json` and the `examples.npz` beside it.

folder, results.json, or a folder of several models' folders ──> Saved, one per model
"""

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from clearspan.eval.files import DataError
from clearspan.eval.scores import Examples

RESULTS, EXAMPLES = "results.json", "examples.npz"
_COMMAND = "`clearspan eval`"
_MOST_BYTES = 1 << 26  # a limit on hostile files; a results.json takes some kilobytes

Figure = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


class Saved(BaseModel):
    """The parts of `results.json` that tables and comparisons need.

    Attributes:
        model: the model's name.
        scores: task -> metric -> percent; NaN where undefined.
        data: task -> file -> SHA-256.
        environment: versions, protocol, seed and the like.
        folder: the folder of `results.json`.
    """

    model_config = ConfigDict(strict=True)

    model: str
    scores: dict[str, dict[str, Figure]]
    data: dict[str, dict[str, str]]
    environment: dict[str, Any]
    folder: Path = Path()


def find(paths: Iterable[Path]) -> list[Saved]:
    """Read the evaluations at each path: a `results.json`, its folder, or a folder whose subfolders hold one each.

    Raises:
        DataError: there is no results.json, or a file is malformed.
        OSError: a file cannot be read.
    """
    evaluations: list[Saved] = []
    for path in paths:
        inner = sorted(path.glob(f"*/{RESULTS}")) if not (path / RESULTS).is_file() else []
        evaluations += map(read, inner or [path])
    return evaluations


def read(path: Path) -> Saved:
    """Read one evaluation from its `results.json` or that file's folder.

    Raises:
        DataError: there is no such file, or it is malformed.
        OSError: the file cannot be read.
    """
    file = path / RESULTS if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"{file}: no such file: give an --output folder of {_COMMAND}")
    problem = f"{file}: not a results.json of {_COMMAND}"
    if file.stat().st_size > _MOST_BYTES:
        raise DataError(f"{problem}: larger than {_MOST_BYTES >> 20} MiB")
    try:
        saved = Saved.model_validate_json(file.read_bytes())
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "".join(f"{key}: " for key in first["loc"])
        raise DataError(f"{problem}: {place}{first['msg']}") from None
    saved.folder = file.parent
    return saved


def is_results(path: Path) -> bool:
    """Return whether the file is a well-formed results.json."""
    try:
        read(path)
    except DataError:
        return False
    return True


def read_examples(path: Path) -> dict[str, dict[str, Examples]]:
    """Read task -> metric -> examples from an `examples.npz`.

    Raises:
        DataError: the file does not exist or is malformed.
        OSError: the file cannot be read.
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file, and a comparison needs the examples: evaluate again")
    arrays: dict[str, dict[str, dict[str, Any]]] = {}
    try:
        with np.load(path, allow_pickle=False) as columns:
            for name in columns.files:
                task, key, column = name.encode("ascii").decode("unicode_escape").rsplit("/", 2)
                arrays.setdefault(task, {}).setdefault(key, {})[column] = columns[name]
        return {
            task: {
                key: Examples(str(each["metric"]), each["predicted"], each["gold"], each["groups"])
                for key, each in metrics.items()
            }
            for task, metrics in arrays.items()
        }
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not an examples.npz of {_COMMAND} ({error}): evaluate again") from None
