"""Evaluations read again from where they were written: `results.json`, and `examples.npz` beside it.

folder, results.json, or a folder of several models' folders ──> Saved, one a model
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
_MOST_BYTES = 1 << 26  # they take some kilobytes


@dataclass(frozen=True)
class Saved:
    """What a table or a comparison needs of `results.json`.

    Attributes:
        model: its name there.
        folder: where it lies.
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
    """The evaluations at each path: a `results.json`, its folder, or a folder whose subfolders hold one each.

    Raises:
        DataError: there is none, or a file is not what an evaluation writes.
        OSError: a file cannot be read.
    """
    found: list[Saved] = []
    for path in paths:
        if path.is_dir() and not (path / RESULTS).is_file():
            inner = sorted(path.glob(f"*/{RESULTS}"))
            if not inner:
                raise DataError(f"{path}: neither the folder nor one in it holds {RESULTS}: evaluate a model into it")
            found += [read(file) for file in inner]
        else:
            found.append(read(path))
    return found


def read(path: Path) -> Saved:
    """One evaluation, by its `results.json` or the folder that holds it.

    Raises:
        DataError: it is not there, or not what an evaluation writes.
        OSError: it cannot be read.
    """
    file = path / RESULTS if path.is_dir() else path
    if not file.is_file():
        raise DataError(f"{file}: no such file: name what python -m eval wrote with --output")
    problem = f"{file}: not a results.json that python -m eval wrote"
    if file.stat().st_size > _MOST_BYTES:
        raise DataError(f"{problem}: larger than any")
    try:
        content = json.loads(file.read_bytes())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{problem} (no JSON: {error})") from None
    try:
        return Saved(
            model=_is(content["model"], str),
            folder=file.parent,
            scores={
                _is(task, str): {metric: _number(value) for metric, value in _is(metrics, dict).items()}
                for task, metrics in _is(content["scores"], dict).items()
            },
            data={
                task: {file: _is(checksum, str) for file, checksum in _is(files, dict).items()}
                for task, files in _is(content.get("data", {}), dict).items()
            },
            environment=_is(content["environment"], dict),
        )
    except KeyError as error:
        raise DataError(f"{problem}: it has no {error.args[0]!r}") from None
    except TypeError as error:
        raise DataError(f"{problem}: {error}") from None


def is_results(path: Path) -> bool:
    """Whether a file is one that `Results.to_json` wrote, now or in an earlier version, which knew fewer fields."""
    try:
        read(path)
    except DataError:
        return False
    return True


def read_examples(path: Path) -> dict[str, dict[str, Examples]]:
    """Task -> metric -> examples, of an `examples.npz`.

    Raises:
        DataError: the file is not one that an evaluation wrote.
        OSError: it cannot be read.
    """
    found: dict[str, dict[str, dict[str, Any]]] = {}
    try:
        with np.load(path, allow_pickle=False) as columns:
            for name in columns.files:
                task, key, column = name.encode("ascii").decode("unicode_escape").rsplit("/", 2)
                found.setdefault(task, {}).setdefault(key, {})[column] = columns[name]
        return {
            task: {
                key: Examples(str(one["metric"]), one["predicted"], one["gold"], one["groups"])
                for key, one in metrics.items()
            }
            for task, metrics in found.items()
        }
    except (ValueError, KeyError, zipfile.BadZipFile) as error:
        raise DataError(f"{path}: not the examples that python -m eval wrote ({error}): evaluate again") from None


def _is(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:60]!r} where a {kind.__name__} belongs")
    return value


def _number(value: Any) -> float:
    if value is None:
        return math.nan
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{str(value)[:60]!r} where a number belongs")
    return float(value)
