"""Results of an evaluation and their files, written and read back.

Results <──> results.json     scores, intervals, and the settings behind them
Examples <─> examples.npz     the examples that the scores are computed from, for `clearspan compare`
"""

import io
import json
import math
import platform
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, TypeAdapter, ValidationError

from clearspan.common.files import sha256
from clearspan.common.flags import flag
from clearspan.common.records import DataError
from clearspan.common.sealed import seal, unseal
from clearspan.common.terminal import one_line
from clearspan.eval.files import json_text
from clearspan.eval.scores import Difference, Examples, TaskScores, interval

RESULTS, EXAMPLES = "results.json", "examples.npz"
_COMMAND = "`clearspan eval`"
_MOST_BYTES = 1 << 26  # a limit on hostile files; a results.json takes some kilobytes
_PACKAGES = ("clearspan", "torch", "transformers", "sentence-transformers", "numpy", "scipy")


Figure = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


@dataclass
class Results:
    """The content of `results.json`.

    Attributes:
        model: the model's name.
        spec: the argument of `--model`: a folder, a file of word vectors, `module:function`.
        scores: task -> metric -> value in percent, unrounded; NaN (null in JSON) where undefined. Alignment,
            uniformity and squared errors (mse) are not percentages.
        intervals: task -> metric -> [low, high], 95 % by bootstrap over the task's examples, in percent.
        subsets: task -> subset -> metric -> value in percent, and `num_pairs`.
        counts: task -> sizes of the data behind its scores.
        settings: task -> settings, other than data and model, that affect its scores.
        data: task -> file -> SHA-256 of its bytes.
        averages: name -> {"value": percent, "tasks": the tasks covered, "missing": the tasks not scored}.
        skipped: task -> the reason why it was not scored.
        truncated: task -> its files that have fewer rows than the published files.
        warnings: problems to know of before trusting the scores.
        environment: versions, device, date and the like.
        examples: SHA-256 of examples.npz; "" in files of earlier versions.
        folder: the folder of the `results.json` that was read; it is not written to the file.
    """

    model: str
    spec: str = ""
    scores: dict[str, dict[str, Figure]] = field(default_factory=dict)
    intervals: dict[str, dict[str, tuple[Figure, Figure]]] = field(default_factory=dict)
    subsets: dict[str, dict[str, dict[str, Figure]]] = field(default_factory=dict)
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    data: dict[str, dict[str, str]] = field(default_factory=dict)
    averages: dict[str, dict[str, Any]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    truncated: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    environment: dict[str, Any] = field(default_factory=dict)
    examples: str = ""
    folder: Path = Path()

    def record(self) -> dict[str, Any]:
        """Return the content of `results.json`."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}

    def add(self, task: str, scores: TaskScores) -> None:
        """Add one task's scores."""
        self.scores[task] = scores.scores
        self.counts[task] = scores.counts
        self.intervals[task] = {metric: interval(examples) for metric, examples in scores.examples.items()}
        if scores.settings:
            self.settings[task] = scores.settings
        if scores.subsets:
            self.subsets[task] = scores.subsets

    def to_json(self) -> str:
        """Return strict JSON in ASCII, which any terminal can show, with one trailing newline; its last field is the
        hash of all others (`common.sealed`).
        """
        return seal(json.loads(json_text(self.record())), indent=2).decode("ascii")


@dataclass(frozen=True)
class Scored:
    """One model's evaluation.

    Attributes:
        tasks: task -> its scores, in the order of `--tasks`.
        families: task -> the word of `--tasks` that names its family.
        differences: task -> this model's main score minus the main score of the first model in the same run.
    """

    results: Results
    tasks: dict[str, TaskScores]
    families: dict[str, str] = field(default_factory=dict)
    differences: dict[str, Difference] = field(default_factory=dict)


def examples_bytes(tasks: Mapping[str, TaskScores]) -> bytes:
    """Return the content of `examples.npz`: arrays named `<task>/<metric>/<column>`, which load without pickle."""
    buffer = io.BytesIO()
    columns: dict[str, Any] = {}
    for task, scores in tasks.items():
        for key, examples in scores.examples.items():
            for column, value in vars(examples).items():
                # A folder's name may hold a lone surrogate, which a name in a zip file cannot.
                name = f"{task}/{key}/{column}".encode("unicode_escape").decode("ascii")
                columns[name] = np.asarray(value)
    np.savez_compressed(buffer, allow_pickle=False, **columns)
    return buffer.getvalue()


def environment(device: str, **more: object) -> dict[str, Any]:
    """Return versions of Python and of packages that affect the scores, platform, device and date (UTC, ISO 8601)."""
    versions: dict[str, str | None] = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = None
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": device,
        "platform": platform.platform(),
        "versions": versions,
        **more,
    }


def find(paths: Iterable[Path]) -> list[Results]:
    """Read the evaluations at each path: a `results.json`, its folder, or a folder whose subfolders hold evaluations.

    Raises:
        DataError: there is no results.json, or a file is malformed.
        OSError: a file cannot be read.
    """
    evaluations: list[Results] = []
    for path in paths:
        inner = sorted(path.glob(f"*/{RESULTS}")) if not (path / RESULTS).is_file() else []
        evaluations += map(read, inner or [path])
    return evaluations


def read(path: Path) -> Results:
    """Read one evaluation from its `results.json` or that file's folder.

    Raises:
        DataError: there is no such file, or it is malformed.
        OSError: the file cannot be read.
    """
    file = path / RESULTS if path.is_dir() else path
    if not file.is_file():
        raise DataError(
            f"{file}: no such file: give an {flag('--output')} folder of {_COMMAND}, of several models one in it"
        )
    problem = f"{file}: not a results.json of {_COMMAND}"
    if file.stat().st_size > _MOST_BYTES:
        raise DataError(f"{problem}: larger than {_MOST_BYTES >> 20} MiB")
    try:  # json reads half of a surrogate pair, which a name may hold, and pydantic's own reader does not
        text = json.dumps(unseal(file.read_bytes(), optional=True), ensure_ascii=False).encode("utf-8", "replace")
        results = TypeAdapter(Results).validate_json(text, strict=True)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        place = "".join(f"{key}: " for key in first["loc"])
        raise DataError(f"{problem}: {place}{first['msg']}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{problem}: {one_line(error)}") from None
    results.folder = file.parent
    return results


def is_results(path: Path) -> bool:
    """Return whether the file is a well-formed results.json."""
    try:
        read(path)
    except DataError:
        return False
    return True


def is_examples(path: Path) -> bool:
    """Return whether the file is a well-formed examples.npz."""
    try:
        _examples(path)
    except DataError:
        return False
    return True


def check(path: Path) -> None:
    """Check that the results.json at a path, and the examples.npz beside it, are as they were written.

    Raises:
        DataError: one of the two files is missing or damaged.
        OSError: a file cannot be read.
    """
    evaluation = read(path)
    examples = evaluation.folder / EXAMPLES
    if evaluation.examples and not (examples.is_file() and sha256(examples) == evaluation.examples):
        raise DataError(f"{examples}: missing, damaged, or not of the same run as its {RESULTS}: evaluate again")


def read_examples(evaluation: Results) -> dict[str, dict[str, Examples]]:
    """Read task -> metric -> examples from the `examples.npz` of an evaluation that `read` returned.

    Raises:
        DataError: the file does not exist, is malformed, or belongs to another evaluation.
        OSError: the file cannot be read.
    """
    path = evaluation.folder / EXAMPLES
    if not path.is_file():
        raise DataError(f"{path}: no such file, and a comparison needs the examples: evaluate again")
    check(evaluation.folder)
    return _examples(path)


def _examples(path: Path) -> dict[str, dict[str, Examples]]:
    """Return task -> metric -> examples of a file; raise DataError if it is malformed."""
    arrays: dict[tuple[str, str], dict[str, Any]] = {}
    examples: dict[str, dict[str, Examples]] = {}
    try:
        with np.load(path, allow_pickle=False) as columns:
            for name in columns.files:
                task, key, column = name.encode("ascii").decode("unicode_escape").rsplit("/", 2)
                arrays.setdefault((task, key), {})[column] = columns[name]
        for (task, key), each in arrays.items():
            examples.setdefault(task, {})[key] = Examples(str(each.pop("metric")), **each)
        return examples
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path}: not an examples.npz of {_COMMAND} ({error}): evaluate again") from None
