"""Write and read the files of an evaluation.

    Results  <──> results.json    scores, their intervals, and the settings that affect them
    Examples <──> examples.npz    the predictions from which the scores are computed, for `clearspan compare`

`results.json` holds the hash of the `examples.npz` of the same evaluation. The `examples.npz` of another evaluation is
refused.
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

from clearspan.common.checksummed import dump_checksummed, load_checksummed
from clearspan.common.files import sha256
from clearspan.common.records import DataError
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
    """The content of `results.json`: the evaluation of one model.

    Attributes:
        model: the name of the model in the results.
        spec: the value of `--model`, such as a folder, a file of word vectors or `module:function`; "" if unknown.
        scores: task -> metric -> value, unrounded; NaN if it is undefined, which is null in JSON. All metrics are
            percentages except alignment, uniformity and mean squared errors (mse).
        intervals: task -> metric -> (low, high), the 95 % interval of the value by bootstrap over the task's examples.
        subsets: task -> subset of the task's data -> metric -> value. Counts, such as `num_pairs`, are stored like
            metrics; their names begin with `num_`.
        counts: task -> what is counted in the task's data, such as `pairs` -> number.
        settings: task -> setting -> value, for settings other than data and model that affect the task's scores.
        data: task -> path of a data file -> SHA-256 of the file.
        averages: average -> {"value": percent, "tasks": tasks in the average, "missing": tasks that were not scored}.
        skipped: task -> the reason why it was not scored.
        truncated: task -> a remark on its data files that have fewer rows than the published files.
        warnings: problems that a reader should know before trusting the scores.
        environment: versions of packages, the device, the date and other facts about the machine and the run.
        examples: the SHA-256 of examples.npz; "" before the files are written.
        folder: the folder from which `results.json` was read; it is not written to the file.
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
        """Return the content of `results.json`: all attributes except `folder`."""
        return {name: value for name, value in asdict(self).items() if name != "folder"}

    def add(self, task: str, scores: TaskScores) -> None:
        """Add the scores of one task to this object, and compute and add their intervals by bootstrap."""
        self.scores[task] = scores.scores
        self.counts[task] = scores.counts
        self.intervals[task] = {metric: interval(examples) for metric, examples in scores.examples.items()}
        if scores.settings:
            self.settings[task] = scores.settings
        if scores.subsets:
            self.subsets[task] = scores.subsets

    def to_json(self) -> str:
        """Return the text of `results.json`: strict JSON in ASCII, which any terminal can show.

        The last field, `sha256`, is the hash of all other fields.
        """
        return dump_checksummed(json.loads(json_text(self.record())), indent=2).decode("ascii")


@dataclass(frozen=True)
class Scored:
    """The evaluation of one model, as the report shows it.

    Attributes:
        results: the content of the model's `results.json`.
        tasks: task -> its scores, in the order of `--tasks`.
        families: task -> the word of `--tasks` that selected the task, such as `sts`.
        differences: task -> this model's main score minus the main score of the first model of the same run; empty for
            the first model.
    """

    results: Results
    tasks: dict[str, TaskScores]
    families: dict[str, str] = field(default_factory=dict)
    differences: dict[str, Difference] = field(default_factory=dict)


def examples_bytes(tasks: Mapping[str, TaskScores]) -> bytes:
    """Return the bytes of `examples.npz`, with the examples of each score of each task.

    It has an array for each attribute of `Examples`, named `<task>/<score>/<attribute>`. The arrays can be loaded
    without pickle.

    Args:
        tasks: name of a task -> its scores.
    """
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
    """Return a description of the machine and the run.

    It has the date (UTC, ISO 8601), the platform, the versions of Python and of the packages that affect the scores
    (None if a package is not installed), `device`, and the entries of `more`.

    Args:
        device: the torch device on which the model computes.
        more: further entries of the description.
    """
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
    """Return the evaluations that the paths name, in the order of the paths.

    Args:
        paths: each is a `results.json`, a folder with a `results.json`, or the output folder of several models, which
            has a subfolder with a `results.json` for each model.

    Raises:
        DataError: there is no results.json at a path, or a results.json is malformed or was edited.
        OSError: a file cannot be read.
    """
    evaluations: list[Results] = []
    for path in paths:
        inner = sorted(path.glob(f"*/{RESULTS}")) if not (path / RESULTS).is_file() else []
        evaluations += map(read, inner or [path])
    return evaluations


def read(path: Path) -> Results:
    """Return the evaluation of one model, read from its `results.json`.

    Args:
        path: the `results.json`, or its folder.

    Raises:
        DataError: the file does not exist, is malformed, or was edited, so that its hash does not match.
        OSError: the file cannot be read.
    """
    file = path / RESULTS if path.is_dir() else path
    if not file.is_file():
        raise DataError(
            f"{file}: no such file: give an `output` folder of {_COMMAND}, or the folder of one model in it"
        )
    problem = f"{file}: not a results.json of {_COMMAND}"
    if file.stat().st_size > _MOST_BYTES:
        raise DataError(f"{problem}: larger than {_MOST_BYTES >> 20} MiB")
    try:  # json reads half of a surrogate pair, which a name may hold, and pydantic's own reader does not
        text = json.dumps(load_checksummed(file.read_bytes()), ensure_ascii=False).encode("utf-8", "replace")
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
    """Check by their hashes that a results.json and the examples.npz in the same folder were not changed.

    Args:
        path: the `results.json`, or its folder.

    Raises:
        DataError: one of the two files is missing or was changed.
        OSError: a file cannot be read.
    """
    evaluation = read(path)
    examples = evaluation.folder / EXAMPLES
    if not (examples.is_file() and sha256(examples) == evaluation.examples):
        raise DataError(f"{examples}: missing, damaged, or not of the same run as its {RESULTS}: evaluate again")


def read_examples(evaluation: Results) -> dict[str, dict[str, Examples]]:
    """Return task -> score -> its examples, from the `examples.npz` of an evaluation.

    Args:
        evaluation: an evaluation that `read` or `find` returned.

    Raises:
        DataError: the file does not exist, is malformed, or belongs to a different evaluation.
        OSError: the file cannot be read.
    """
    path = evaluation.folder / EXAMPLES
    if not path.is_file():
        raise DataError(f"{path}: no such file, and a comparison needs the examples: evaluate again")
    check(evaluation.folder)
    return _examples(path)


def _examples(path: Path) -> dict[str, dict[str, Examples]]:
    """Return task -> score -> its examples, from the `examples.npz` at `path`; DataError if it is malformed."""
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
