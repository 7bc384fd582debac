"""Catalog of evaluation data: which data sets a folder holds, whether they are complete, and where to obtain them.

    catalog.yaml + a data folder ──> Finding per data set: whole, not whole, absent

Files are streamed, not parsed: rows are counted, bytes hashed. A file is whole if it has the expected number of rows.
If its bytes differ from the known copy, a note says so: line ends or tokenization may differ, or the order of lines.
An evaluation compares the files of its tasks in the same way, with `compared`.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from clearspan.common.files import sha256
from clearspan.eval.data.senteval import find_downstream, find_probing
from clearspan.eval.files import MissingDataError

Count = Literal["lines", "header", "filled", "records", "bytes"]
State = Literal["whole", "not whole", "absent"]


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Attributes:
        count: what counts as a row: every line; every line but the first; every line that is not blank; every line that
            opens a record (`.I`); or nothing, as in a pickle.
        rows: expected number of rows; several if copies differ, none if it is unknown.
        like: a file in the same folder that must have the same number of lines.
        sha256: hash of the known copy.
    """

    name: str
    count: Count = "lines"
    rows: tuple[int, ...] = ()
    like: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A set of files from one source.

    Attributes:
        tasks: the tasks that use the files.
        root: the folder in DATA that contains `folder`, located as the tasks locate it.
        source: where to obtain the files.
        licence: as far as known.
    """

    name: str
    tasks: tuple[str, ...]
    root: str
    folder: str
    source: str
    licence: str
    files: tuple[File, ...]


@dataclass(frozen=True)
class Compared:
    """A task's file beside the known copy.

    Attributes:
        other_rows: a remark on its number of rows; empty if it is the expected number, or none is known.
        is_truncated: whether it has fewer rows than any known copy.
        differs: the file's name if it has the expected rows, but other bytes than the known copy; else empty.
    """

    sha256: str
    other_rows: str = ""
    is_truncated: bool = False
    differs: str = ""


@dataclass(frozen=True)
class Finding:
    """The state of a data set in a data folder.

    Attributes:
        place: the folder of its files, whether it exists or not.
        rows: file -> number of rows, for existing files that have rows of their own.
        problems: the reasons why it is not whole, one sentence each.
        notes: further remarks.
    """

    data_set: DataSet
    place: Path
    state: State
    rows: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@cache
def catalog() -> tuple[DataSet, ...]:
    """Return all data sets, SentEval's first."""
    content = yaml.safe_load(Path(__file__).with_name("catalog.yaml").read_text(encoding="utf-8"))
    return tuple(
        DataSet(
            name=name,
            tasks=tuple(entry.get("tasks", [name])),
            root=entry["root"],
            folder=entry.get("folder", ""),
            source=entry["source"],
            licence=entry["licence"],
            files=tuple(_file(file, **values) for file, values in entry["files"].items()),
        )
        for name, entry in content.items()
    )


def check(data: Path, data_sets: Iterable[DataSet] | None = None) -> list[Finding]:
    """Return the state of each data set (default: all of the catalog) in a data folder."""
    return [_check(data, data_set) for data_set in (catalog() if data_sets is None else data_sets)]


def compared(path: Path) -> Compared:
    """Hash a task's file, and compare it with the file of its name and folder in the catalog, if there is one."""
    file = next((_known()[end] for n in range(len(path.parts), 0, -1) if (end := path.parts[-n:]) in _known()), None)
    if file is None:
        return Compared(sha256(path))
    _, num_rows, checksum = _read(path, file.count)
    if file.rows and num_rows not in file.rows:
        remark = f"{path.name}: {num_rows:,} rows, not {' or '.join(f'{rows:,}' for rows in file.rows)}"
        return Compared(checksum, remark, is_truncated=num_rows < min(file.rows))
    return Compared(checksum, differs=path.name if file.sha256 and checksum != file.sha256 else "")


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
    present = [file for file in data_set.files if (place / file.name).is_file()]
    if not present:
        return Finding(data_set, place, "absent")
    finding = Finding(data_set, place, "whole")
    lines: dict[str, int] = {}
    for file in data_set.files:
        if file not in present:
            finding.problems.append(f"no {place / file.name}")
            continue
        try:
            lines[file.name], num_rows, checksum = _read(place / file.name, file.count)
        except OSError as error:
            finding.problems.append(f"{place / file.name}: cannot be read ({error.strerror})")
            continue
        if file.count != "bytes" and not file.like:
            finding.rows[file.name] = num_rows
        if file.rows and num_rows not in file.rows:
            expected = " or ".join(f"{rows:,}" for rows in file.rows)
            finding.problems.append(f"{place / file.name}: {num_rows:,} rows instead of {expected}")
        elif file.sha256 and checksum != file.sha256:
            finding.notes.append(f"{file.name} differs from the known copy")
        elif not file.rows and not file.like:
            finding.notes.append(f"{file.name}: the expected number of rows is unknown")
    for file in present:
        if file.like and file.like in lines and lines.get(file.name, 0) != lines[file.like]:
            finding.problems.append(
                f"{place / file.name}: {lines.get(file.name, 0):,} lines, but {file.like} has {lines[file.like]:,}"
            )
    return replace(finding, state="not whole") if finding.problems else finding


def _root(data: Path, root: str) -> Path:
    """Return the folder where the tasks look for the data, whether it exists or not."""
    if find := {"downstream": find_downstream, "probing": find_probing}.get(root):
        try:
            return find(data)
        except MissingDataError:
            return (data / "senteval" if (data / "senteval").is_dir() else data) / root
    is_itself = root == "stsb_multi_mt" == data.name and not (data / root).is_dir()
    return data if is_itself else data / root


def _read(path: Path, count: Count) -> tuple[int, int, str]:
    """Return (lines, rows, SHA-256) of a file, read once."""
    digest = hashlib.sha256()
    num_lines = num_filled = num_records = 0
    with path.open("rb") as file:
        for line in file:  # also for a pickle, of which only the hash matters
            digest.update(line)
            num_lines += 1
            num_filled += not line.isspace()
            num_records += line.startswith(b".I ")
    rows = {"header": max(0, num_lines - 1), "filled": num_filled, "records": num_records}
    return num_lines, rows.get(count, num_lines), digest.hexdigest()


def _file(name: str, rows: int | list[int] | None = None, **values: str) -> File:
    several = () if rows is None else tuple(rows) if isinstance(rows, list) else (rows,)
    count: Count = values.pop("count", "lines")  # type: ignore[assignment]
    return File(name, count, several, **values)
