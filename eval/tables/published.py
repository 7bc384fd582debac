"""The papers' result tables, as printed: `papers/*.yaml`, one file per paper.

A column defines which of our figures is comparable with the paper's. The file holds all published figures of a table.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Cell = float | int | str | tuple[float, ...] | None
"""A figure as printed; several figures, such as MRPC's accuracy and F1; text; or nothing."""

_FOLDER = Path(__file__).parent / "papers"


@dataclass(frozen=True)
class Column:
    """A column of a table. At most one attribute other than `head` is set: the source of our own cells in the column.

    Attributes:
        of: the task and metric of each figure in a cell.
        average: a name in `eval.tables.averages`.
        minus: head of another column and name of a row: our value in that column minus the row's published value.
        environment: a key of `environment` in results.json.
    """

    head: str
    of: tuple[tuple[str, str], ...] = ()
    average: str | None = None
    minus: tuple[str, str] | None = None
    environment: str | None = None


@dataclass(frozen=True)
class TableRow:
    """A model and its cells, one per column, under the paper's subheading `group` ("" if there is none)."""

    group: str
    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper; `decimals` is its number of decimals."""

    name: str
    paper: str
    title: str
    decimals: int
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    def cell(self, row: str, head: str) -> Cell:
        """Return the published cell in the first row of that name."""
        column = [column.head for column in self.columns].index(head)
        return next(line for line in self.rows if line.name == row).cells[column]


@cache
def tables() -> dict[str, PaperTable]:
    """Return all tables by name, in the order of the files' names."""
    by_name: dict[str, PaperTable] = {}
    for path in sorted(_FOLDER.glob("*.yaml"), key=lambda path: path.stem):
        content = yaml.load(path.read_text(encoding="utf-8"), _loader())
        paper = content.pop("paper")
        by_name |= {name: _table(name, paper, entry) for name, entry in content.items()}
    return by_name


def _table(name: str, paper: str, entry: dict[str, Any]) -> PaperTable:
    columns = tuple(_column(**column) for column in entry["columns"])
    rows: list[TableRow] = []
    group = ""
    for row in entry["rows"]:
        if isinstance(row, dict):
            group = row["group"]
            continue
        model, *cells = row
        rows.append(TableRow(group, model, tuple(tuple(cell) if isinstance(cell, list) else cell for cell in cells)))
    notes = tuple(entry.get("notes", ()))
    return PaperTable(name, paper, entry["title"], entry["decimals"], columns, tuple(rows), notes)


def _column(head: str, of: str | Sequence[str] = (), minus: list[str] | None = None, **more: str) -> Column:
    keys = [of] if isinstance(of, str) else of
    pairs = tuple((task, metric) for task, metric in map(str.split, keys))
    return Column(head, pairs, minus=(minus[0], minus[1]) if minus else None, **more)


def _loader() -> type[yaml.SafeLoader]:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast loader, where PyYAML has it
