"""Catalog of evaluation data: which data sets a folder holds, whether they are complete, and where to obtain them.

    catalog.yaml + a data folder ──> Finding per data set: whole, not whole, absent

Files are streamed, not parsed: rows are counted, bytes hashed. A file is whole if it has the expected number of rows.
If its bytes differ from the known copy, a note says so: line ends or tokenization may differ, or the order of lines.
An evaluation compares the files of its tasks in the same way, with `compared`.
"""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from clearspan.common.records import MissingDataError
from clearspan.eval.data.senteval import find_downstream, find_probing

Count = Literal["lines", "header", "filled", "records"]
_IS_ROW: dict[Count, Callable[[int, bytes], bool]] = {
    "lines": lambda number, line: True,
    "header": lambda number, line: number > 0,
    "filled": lambda number, line: not line.isspace(),
    "records": lambda number, line: line.startswith(b".I "),
}
State = Literal["whole", "not whole", "absent"]


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Attributes:
        count: what counts as a row: every line; every line but the first; every line that is not blank; every line that
            opens a record (`.I`).
        rows: expected numbers of rows: several if copies differ, none if they are unknown.
        sha256: hash of the known copy.
    """

    name: str
    count: Count = "lines"
    rows: tuple[int, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A set of files from one source.

    Attributes:
        root: the folder in DATA that contains `folder`, found by the same rules as in the tasks.
        source: where to obtain the files.
        licence: as far as known.
        tasks: the tasks that use the files.
    """

    name: str
    root: str
    source: str
    licence: str
    files: tuple[File, ...]
    tasks: tuple[str, ...]
    folder: str = ""


@dataclass(frozen=True)
class Compared:
    """A data file, compared with the known copy in the catalog.

    Attributes:
        num_rows: number of rows of the file, if the file is in the catalog.
        remark: difference from the known copy, in the number of rows or in bytes; "" if there is none.
        has_other_rows: whether the number of rows differs from all known copies.
        is_truncated: whether the file has fewer rows than any known copy.
    """

    sha256: str
    num_rows: int = 0
    remark: str = ""
    has_other_rows: bool = False
    is_truncated: bool = False


@dataclass(frozen=True)
class Finding:
    """The state of a data set in a data folder.

    Attributes:
        place: the folder of its files, whether it exists or not.
        rows: file -> number of rows, for existing files whose expected number is known.
        problems: the reasons why it is not whole, one sentence each.
        notes: further remarks.
    """

    data_set: DataSet
    place: Path
    state: State
    rows: dict[str, int]
    problems: list[str]
    notes: list[str]


@cache
def catalog() -> tuple[DataSet, ...]:
    """Return all data sets, SentEval's first."""
    content = yaml.safe_load(Path(__file__).with_name("catalog.yaml").read_text(encoding="utf-8"))
    sets = []
    for name, entry in content.items():
        files = tuple(File(file, **values) for file, values in entry.pop("files").items())
        sets.append(DataSet(name, files=files, **{"tasks": (name,), **entry}))
    return tuple(sets)


def check(data: Path, data_sets: Iterable[DataSet] | None = None) -> list[Finding]:
    """Return the state of each data set (default: all of the catalog) in a data folder."""
    return [_check(data, data_set) for data_set in (catalog() if data_sets is None else data_sets)]


def compared(path: Path, file: File | None = None) -> Compared:
    """Compare a task's file with `file`, or with the catalog's entry of the same name and folder, if there is one.

    Raises:
        OSError: the file cannot be read.
    """
    ends = (path.parts[-n:] for n in range(len(path.parts), 0, -1))
    file = file or next((_known()[end] for end in ends if end in _known()), File(""))
    digest = hashlib.sha256()
    num_rows = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines):
            digest.update(line)
            num_rows += _IS_ROW[file.count](number, line)
    checksum = digest.hexdigest()
    if file.rows and num_rows not in file.rows:
        remark = f"{path.name}: {num_rows:,} rows, not {' or '.join(f'{rows:,}' for rows in file.rows)}"
        return Compared(checksum, num_rows, remark, True, num_rows < min(file.rows))
    differs = file.sha256 is not None and checksum != file.sha256
    return Compared(checksum, num_rows, f"{path.name} differs from the known copy" if differs else "")


@cache
def _known() -> dict[tuple[str, ...], File]:
    """Return the files of the catalog by the last parts of their paths."""
    return {
        (*Path(data_set.folder).parts, *Path(file.name).parts): file
        for data_set in catalog()
        for file in data_set.files
    }


def _check(data: Path, data_set: DataSet) -> Finding:
    place = _root(data, data_set.root) / data_set.folder
    rows: dict[str, int] = {}
    problems: list[str] = []
    notes: list[str] = []
    if not any((place / file.name).is_file() for file in data_set.files):
        return Finding(data_set, place, "absent", rows, problems, notes)
    for file in data_set.files:
        path = place / file.name
        try:
            result = compared(path, file)
        except OSError as error:
            problems.append(f"{path}: cannot be read ({error.strerror})" if path.is_file() else f"no {path}")
            continue
        if file.rows:
            rows[file.name] = result.num_rows
        if result.has_other_rows:
            problems.append(f"{path.parent}/{result.remark}")
        elif result.remark:
            notes.append(result.remark)
    return Finding(data_set, place, "not whole" if problems else "whole", rows, problems, notes)


def _root(data: Path, root: str) -> Path:
    """Return the folder where the tasks look for the data, whether it exists or not."""
    if find := {"downstream": find_downstream, "probing": find_probing}.get(root):
        try:
            return find(data)
        except MissingDataError:
            return (data / "senteval" if (data / "senteval").is_dir() else data) / root
    is_itself = root == "stsb_multi_mt" == data.name and not (data / root).is_dir()
    return data if is_itself else data / root
