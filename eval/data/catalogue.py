"""Which data an evaluation needs, whether it is there and whole, and where it is obtained.

    catalogue.yaml + a data folder ──> Finding, one a data set: whole, not whole, absent

Files are read as streams and never parsed: rows are counted, bytes hashed. Row counts decide: a file that has its rows
but other bytes than the copy we know is whole, and said to differ: line ends and tokenization do that.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal

import yaml

from clearspan.eval.data.senteval import find_downstream, find_probing
from clearspan.eval.files import MissingDataError

Count = Literal["lines", "header", "filled", "records", "bytes"]
State = Literal["whole", "not whole", "absent"]


@dataclass(frozen=True)
class File:
    """A file of a data set.

    Attributes:
        count: what is a row: a line; a line but the first; a line that is not blank; a line that opens a record (`.I`);
            or nothing is, as in a pickle.
        rows: how many there are; several where copies differ, none where we do not know.
        like: a file beside it that must have as many lines.
        sha256: of the copy we know.
    """

    name: str
    count: Count = "lines"
    rows: tuple[int, ...] = ()
    like: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class DataSet:
    """Files that are obtained together.

    Attributes:
        tasks: what is scored on them.
        root: the folder of DATA that holds `folder`, found as the tasks find it.
        source: where they are obtained.
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
class Finding:
    """What a data folder holds of a data set.

    Attributes:
        place: where it is, or belongs.
        rows: file -> how many it has, of those that are there and have rows of their own.
        problems: what makes it not whole, a sentence each.
        notes: what else should be known.
    """

    data_set: DataSet
    place: Path
    state: State
    rows: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


@cache
def catalogue() -> tuple[DataSet, ...]:
    """Every data set, SentEval's first."""
    content = yaml.safe_load(Path(__file__).with_name("catalogue.yaml").read_text(encoding="utf-8"))
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
    """What a data folder holds of each data set (default: of all)."""
    return [_check(data, one) for one in (catalogue() if data_sets is None else data_sets)]


def other_rows(files: Iterable[Path]) -> list[str]:
    """Of files that a task was read from, those without the rows that are known to belong there, a few words each."""
    known = {
        (*Path(data_set.folder).parts, *Path(file.name).parts): file
        for data_set in catalogue()
        for file in data_set.files
    }
    longest = max(map(len, known))
    found = []
    for path in files:
        file = next((known[end] for n in range(longest, 0, -1) if (end := path.parts[-n:]) in known), None)
        if file and file.rows and (num_rows := _read(path, file.count)[1]) not in file.rows:
            found.append(f"{path.name}: {num_rows:,} rows, not {' or '.join(f'{rows:,}' for rows in file.rows)}")
    return found


def _check(data: Path, data_set: DataSet) -> Finding:
    place = _root(data, data_set.root) / data_set.folder
    present = [file for file in data_set.files if (place / file.name).is_file()]
    if not present:
        return Finding(data_set, place, "absent")
    found = Finding(data_set, place, "whole")
    lines: dict[str, int] = {}
    for file in data_set.files:
        if file not in present:
            found.problems.append(f"no {place / file.name}")
            continue
        try:
            lines[file.name], num_rows, checksum = _read(place / file.name, file.count)
        except OSError as error:
            found.problems.append(f"{place / file.name}: cannot be read ({error.strerror})")
            continue
        if file.count != "bytes" and not file.like:
            found.rows[file.name] = num_rows
        if file.rows and num_rows not in file.rows:
            expected = " or ".join(f"{rows:,}" for rows in file.rows)
            found.problems.append(f"{place / file.name}: {num_rows:,} rows, and {expected} belong there")
        elif file.sha256 and checksum != file.sha256:
            found.notes.append(f"{file.name} has other bytes than the copy we know")
        elif not file.rows and not file.like:
            found.notes.append(f"{file.name}: how many rows belong there is not known")
    for file in present:
        if file.like and file.like in lines and lines.get(file.name, 0) != lines[file.like]:
            found.problems.append(
                f"{place / file.name}: {lines.get(file.name, 0):,} lines for the {lines[file.like]:,} of {file.like}"
            )
    if not found.problems:
        return found
    return Finding(data_set, place, "not whole", found.rows, found.problems, found.notes)


def _root(data: Path, root: str) -> Path:
    """Where the tasks would find it, else where it belongs."""
    if find := {"downstream": find_downstream, "probing": find_probing}.get(root):
        try:
            return find(data)
        except MissingDataError:
            return (data / "senteval" if (data / "senteval").is_dir() else data) / root
    is_itself = root == "stsb_multi_mt" == data.name and not (data / root).is_dir()
    return data if is_itself else data / root


def _read(path: Path, count: Count) -> tuple[int, int, str]:
    """(lines, rows, SHA-256) of a file, in one reading."""
    digest = hashlib.sha256()
    num_lines = num_filled = num_records = 0
    with path.open("rb") as file:
        for line in file:  # a pickle too: its bytes are hashed, whatever its lines
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
