"""The papers' result tables, as printed: `papers/*.yaml`, one file a paper.

A column defines which of our figures is comparable with the paper's. The file holds all published figures of a table.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Cell = float | int | str | tuple[float, ...] | None
"""A figure as printed; several figures, such as MRPC's accuracy and F1; text; or nothing."""

_FOLDER = Path(__file__).parent / "papers"
_PAPERS = ("declutr", "declutr-v1", "clear", "nonling")


@dataclass(frozen=True)
class Column:
    """A column, and the source of our cells in it: at most one of the four attributes besides `head`.

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
class Row:
    """A model and its cells, one per column, under the paper's subheading `group` ("" if there is none)."""

    name: str
    cells: tuple[Cell, ...]
    group: str


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper; `decimals` is its number of decimals."""

    name: str
    paper: str
    title: str
    decimals: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def cell(self, row: str, head: str) -> Cell:
        """Return the published cell in the first row of that name."""
        column = [column.head for column in self.columns].index(head)
        return self.row(row).cells[column]

    def row(self, name: str) -> Row:
        """Return the first row of that name."""
        return next(row for row in self.rows if row.name == name)


@cache
def tables() -> dict[str, PaperTable]:
    """Return all tables by name, in the papers' order."""
    by_name: dict[str, PaperTable] = {}
    for file in _PAPERS:
        content = yaml.load((_FOLDER / f"{file}.yaml").read_text(encoding="utf-8"), _loader())
        paper = content.pop("paper")
        by_name |= {name: _table(name, paper, entry) for name, entry in content.items()}
    return by_name


_BASELINES: dict[str, tuple[tuple[str, str], ...]] = {
    "GloVe": (("declutr-2", "GloVe"), ("declutr-3", "GloVe")),
    "RoBERTa-base": (("clear-1", "RoBERTa-base"), ("declutr-2", "Transformer-base"), ("declutr-3", "Transformer-base")),
    "DeCLUTR-base": (("declutr-2", "DeCLUTR-base"), ("declutr-3", "DeCLUTR-base")),
    "CLEAR del-span+reorder": (("clear-1", "MLM+del-span+reorder"),),
    "SimCSE-BERT-base": (
        ("nonling-1", "SimCSE-BERT-base"), ("nonling-e1", "SimCSE-BERT-base"), ("nonling-5", "SimCSE"),
    ),
    "VisualCSE-BERT-base": (
        ("nonling-1", "VisualCSE-BERT-base"), ("nonling-e1", "VisualCSE-BERT-base"), ("nonling-5", "VisualCSE"),
    ),
    "SimCSE-BERT-base, supervised": (("nonling-6", "SimCSE-BERT-base"),),
}  # fmt: skip
"""Model -> the rows with its figures; if two rows hold the same figure, the first counts."""


def baselines(wanted: Iterable[tuple[str, str]]) -> dict[str, dict[tuple[str, str], float]]:
    """Return the published figures of selected models, for comparison.

    Args:
        wanted: pairs of task and metric. A figure must be published for exactly this metric: a model with STS12's
            `spearman_mean` has no figure for `spearman_all`.

    Returns:
        Model -> (task, metric) -> percent, as far as published; without models that have no such figure.
    """
    wanted = set(wanted)
    by_model: dict[str, dict[tuple[str, str], float]] = {}
    for model, places in _BASELINES.items():
        for name, row in places:
            for key, value in _figures(tables()[name], row).items():
                if key in wanted:
                    by_model.setdefault(model, {}).setdefault(key, value)
    return by_model


def _figures(table: PaperTable, name: str) -> dict[tuple[str, str], float]:
    figures: dict[tuple[str, str], float] = {}
    for column, cell in zip(table.columns, table.row(name).cells, strict=True):
        values = cell if isinstance(cell, tuple) else (cell,)
        if column.of and None not in values:
            figures |= {key: float(value) for key, value in zip(column.of, values, strict=True) if value is not None}
    return figures


def _table(name: str, paper: str, entry: dict[str, Any]) -> PaperTable:
    columns = tuple(_column(**column) for column in entry["columns"])
    rows: list[Row] = []
    group = ""
    for row in entry["rows"]:
        if isinstance(row, dict):
            group = row["group"]
            continue
        model, *cells = row
        if len(cells) != len(columns):
            raise ValueError(f"{name}, row {model}: {len(cells)} cells for {len(columns)} columns")
        rows.append(Row(model, tuple(tuple(cell) if isinstance(cell, list) else cell for cell in cells), group))
    notes = tuple(entry.get("notes", ()))
    return PaperTable(name, paper, entry["title"], entry["decimals"], columns, tuple(rows), notes)


def _column(head: str, of: str | list[str] = "", minus: list[str] | None = None, **more: str) -> Column:
    keys = [of] if isinstance(of, str) else of
    pairs = tuple((task, metric) for task, metric in (key.split() for key in keys if key))
    return Column(head, pairs, minus=(minus[0], minus[1]) if minus else None, **more)


def _loader() -> type[yaml.SafeLoader]:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the fast loader, where PyYAML has it
