"""Read the result tables of papers from `papers/*.yaml`, one file for each paper.

A file holds all published scores of the paper's tables. For each column, it also defines which score of a user's model
is comparable with the published scores.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Cell = float | int | str | tuple[float, ...] | None
"""A figure as printed, a tuple of several figures (such as MRPC's accuracy and F1), a text, or None if it is empty."""

_FOLDER = Path(__file__).parent / "papers"


@dataclass(frozen=True)
class Column:
    """A column of a table: its heading, and the definition of its cells in the rows of the user's models.

    At most one of the attributes other than `head` is set. If none is set, the cells of the user's models stay empty.

    Attributes:
        head: the heading of the column.
        of: (task, metric) of each score of the model that a cell shows; empty if a cell shows no scores.
        average: the name of the average that a cell shows, such as `sts_simcse`; None if it shows no average.
        minus: the heading of another column, and the name of a published row. A cell shows the model's value in that
            column minus the published value in that row and column. None if it shows no such difference.
        environment: the entry of `environment` in the model's results.json that a cell shows, such as `embedding_dim`,
            the dimension of the embeddings; None if it shows no such entry.
    """

    head: str
    of: tuple[tuple[str, str], ...] = ()
    average: str | None = None
    minus: tuple[str, str] | None = None
    environment: str | None = None


@dataclass(frozen=True)
class TableRow:
    """A row of a result table.

    Attributes:
        group: the subheading that the row stands under; "" if there is none. Adjacent rows with the same group share
            it.
        name: the name of the model.
        cells: one cell for each column after the column of names: a number, a tuple of numbers such as accuracy and F1,
            a text, or None if it is empty.
    """

    group: str
    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, as published.

    Attributes:
        name: the name by which `clearspan tables` selects the table, such as `declutr-2`.
        paper: the short name, the authors and the year of the paper.
        title: the number and the caption of the table.
        decimals: the number of decimals of its scores.
        columns: the columns after the first one, which has the names of the models.
        rows: the published rows.
        notes: remarks on the table, one sentence each.
    """

    name: str
    paper: str
    title: str
    decimals: int
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()

    def cell(self, row: str, head: str) -> Cell:
        """Return the published cell in the first row with the name `row` and the column with the heading `head`.

        The caller ensures that both exist.
        """
        column = [column.head for column in self.columns].index(head)
        return next(line for line in self.rows if line.name == row).cells[column]


@cache
def tables() -> dict[str, PaperTable]:
    """Return name of a table -> table, for all tables of all papers, in the order of the papers' file names."""
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
