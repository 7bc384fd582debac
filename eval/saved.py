"""Saved evaluations, read from `results.json` and the `examples.npz` beside it.

folder, results.json, or a folder of several models' folders ──> Saved, one per model
"""

import json
import math
import zipfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from clearspan.eval.files import DataError
from clearspan.eval.scores import Examples

RESULTS, EXAMPLES = "results.json", "examples.npz"
_COMMAND = "`clearspan eval`"
_MOST_BYTES = 1 << 26  # a limit on hostile files; a results.json takes some kilobytes


@dataclass(frozen=True)
class Saved:
    """The parts of `results.json` that tables and comparisons need.

    Attributes:
        model: the model's name.
        folder: the folder of `results.json`.
        scores: task -> metric -> percent; NaN where undefined.
        data: task -> file -> SHA-256.
        environment: versions, protocol, seed and the like.
    """

    model: str
    folder: Path
    scores: dict[str, dict[str, float]]
    data: dict[str, dict[str, str]]
    environment: dict[str, Any]


def find(paths: Iterable[Path]) -> list[Saved]:
    """Read the evaluations at each path: a `results.json`, its folder, or a folder whose subfolders hold one each.

    Raises:
        DataError: there is no results.json, or a file is malformed.
        OSError: a file cannot be read.
    """
    evaluations: list[Saved] = []
    for path in paths:
        if path.is_dir() and not (path / RESULTS).is_file():
            inner = sorted(path.glob(f"*/{RESULTS}"))
            if not inner:
                raise DataError(
                    f"{path}: neither the folder nor its subfolders hold {RESULTS}: give it as --output of {_COMMAND}"
                )
            evaluations += [read(file) for file in inner]
        else:
            evaluations.append(read(path))
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
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{problem} (not JSON: {error})") from None
    try:
        environment = _is(content["environment"], dict)
        if "dtype" in environment:  # its name in former versions
            environment["precision"] = environment.pop("dtype")
        return Saved(
            model=_is(content["model"], str),
            folder=file.parent,
            scores={
                _is(task, str): {metric: _number(value) for metric, value in _is(metrics, dict).items()}
                for task, metrics in _is(content["scores"], dict).items()
            },
            data={
                task: {file: _is(checksum, str) for file, checksum in _is(files, dict).items()}
                for task, files in _is(content["data"], dict).items()
            },
            environment=environment,
        )
    except KeyError as error:
        raise DataError(f"{problem}: it has no {error.args[0]!r}") from None
    except TypeError as error:
        raise DataError(f"{problem}: {error}") from None


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
        DataError: the file is malformed.
        OSError: the file cannot be read.
    """
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


def _is(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:60]!r}, expected a {kind.__name__}")
    return value


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{str(value)[:60]!r}, expected a number")
    return float(value)
