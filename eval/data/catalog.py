"""Catalog of evaluation data: which data sets a folder holds, whether they are complete, and where to obtain them.

    catalog.yaml + a data folder ──> one Finding for each data set: whole, not whole, or absent

A file is read once, to count its rows and to hash its bytes; it is not parsed. A file is whole if it has the expected
number of rows. A whole file may still differ in bytes from the copy that the catalog knows, for example in line ends,
tokenization or the order of lines. A note reports this difference. An evaluation checks the files of its tasks with
the same function, `compared`.
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
    """A file of a data set, as the catalog describes it.

    Attributes:
        name: the file's path in the folder of the data set.
        count: which lines count as rows. `lines`: every line; `header`: every line except the first, which is a header;
            `filled`: every line that is not blank; `records`: every line that begins with `.I`, as records do.
        rows: the numbers of rows that published copies of the file have; empty if the number is unknown.
        sha256: the SHA-256 of one published copy; None if it is unknown.
    """

    name: str
    count: Count = "lines"
    rows: tuple[int, ...] = ()
    sha256: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A set of files from one source.

    Attributes:
        name: the name of the data set.
        root: the name of a folder in the user's data folder, such as `downstream` or `glue`; it contains `folder`.
        source: the address from which to obtain the files.
        licence: the license, as the files or the page at `source` state it.
        files: the files that belong to the data set.
        tasks: the names of the tasks that use the files.
        folder: the path of the files' folder in `root`; "" if the files are in `root` itself.
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
    """The comparison of a data file with the copies that the catalog knows.

    Attributes:
        sha256: the SHA-256 of the file.
        num_rows: the number of rows in the file, without lines that the catalog does not count, such as a header; the
            number of all lines if the file is not in the catalog.
        remark: the difference from the known copies, in the number of rows or in bytes; "" if there is none.
        has_other_rows: whether the number of rows differs from the number in every known copy.
        is_truncated: whether the file has fewer rows than every known copy.
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
        data_set: the data set.
        place: the folder in which the tasks look for the files; it need not exist.
        state: `whole` if all files exist and have the expected numbers of rows; `absent` if no file exists; `not whole`
            otherwise.
        rows: file name -> number of rows, for the files that exist and whose expected number of rows is known.
        problems: the reasons why the data set is not whole, one sentence each.
        notes: remarks on files that have the expected number of rows but differ in bytes from the published copy.
    """

    data_set: DataSet
    place: Path
    state: State
    rows: dict[str, int]
    problems: list[str]
    notes: list[str]


@cache
def catalog() -> tuple[DataSet, ...]:
    """Return all data sets of `catalog.yaml`, in the order of the file."""
    content = yaml.safe_load(Path(__file__).with_name("catalog.yaml").read_text(encoding="utf-8"))
    sets = []
    for name, entry in content.items():
        files = tuple(File(file, **values) for file, values in entry.pop("files").items())
        sets.append(DataSet(name, files=files, **{"tasks": (name,), **entry}))
    return tuple(sets)


def check(data: Path, data_sets: Iterable[DataSet] | None = None) -> list[Finding]:
    """Return the state of each data set in a data folder.

    Args:
        data_sets: the data sets to check; None for all data sets in the catalog.
    """
    return [_check(data, data_set) for data_set in (catalog() if data_sets is None else data_sets)]


def compared(path: Path, file: File | None = None) -> Compared:
    """Count the rows of a data file, hash its bytes, and compare both with the catalog.

    Args:
        file: the catalog's entry for the data file; None to find the entry by the last parts of `path`. If there is no
            entry, the file is counted and hashed but not compared.

    Raises:
        OSError: the file cannot be read.
    """
    ends = (path.parts[-n:] for n in range(len(path.parts), 0, -1))
    file = file or next((_files_by_path()[end] for end in ends if end in _files_by_path()), File(""))
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
def _files_by_path() -> dict[tuple[str, ...], File]:
    """Return all files in the catalog by their paths in the folder `DataSet.root`. A path is a tuple of its parts."""
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
    """Return the path at which tasks look for the folder named `root` in a data folder; the folder need not exist.

    It is `data / root`, with two exceptions: `downstream` and `probing` may also be in `data/senteval`, or be `data`
    itself, and `stsb_multi_mt` may be `data` itself.
    """
    if find := {"downstream": find_downstream, "probing": find_probing}.get(root):
        try:
            return find(data)
        except MissingDataError:
            return (data / "senteval" if (data / "senteval").is_dir() else data) / root
    is_itself = root == "stsb_multi_mt" == data.name and not (data / root).is_dir()
    return data if is_itself else data / root
