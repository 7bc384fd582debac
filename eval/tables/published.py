"""The papers' result tables, as printed: `papers/*.yaml`, one file a paper.

A column says which of our figures stands beside the paper's. All figures of a table lie in its file and nowhere else.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import yaml

Cell = float | int | str | tuple[float, ...] | None
"""A figure as printed; several in one cell, such as MRPC's accuracy and F1; words; or nothing."""

_FOLDER = Path(__file__).parent / "papers"
_PAPERS = ("declutr", "declutr-v1", "clear", "nonling")


@dataclass(frozen=True)
class Column:
    """A column, and what of ours stands in it: at most one of these four.

    Attributes:
        of: the task and metric of each figure in a cell.
        average: a name of `eval.tables.averages`.
        minus: another column's head, and a row's name: that column's value less the row's published one.
        environment: a key of results.json's `environment`.
    """

    head: str
    of: tuple[tuple[str, str], ...] = ()
    average: str | None = None
    minus: tuple[str, str] | None = None
    environment: str | None = None


@dataclass(frozen=True)
class Row:
    """A model and its cells, one a column, under the paper's subheading `group` ("" where there is none)."""

    name: str
    cells: tuple[Cell, ...]
    group: str


@dataclass(frozen=True)
class PaperTable:
    """One table of one paper; `decimals` as it prints them."""

    name: str
    paper: str
    title: str
    decimals: int
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def cell(self, row: str, head: str) -> Cell:
        """The published cell of the first row of that name."""
        column = [column.head for column in self.columns].index(head)
        return next(one for one in self.rows if one.name == row).cells[column]


@cache
def tables() -> dict[str, PaperTable]:
    """Every table by its name, in the papers' order."""
    found: dict[str, PaperTable] = {}
    for file in _PAPERS:
        content = yaml.load((_FOLDER / f"{file}.yaml").read_text(encoding="utf-8"), _loader())
        paper = content.pop("paper")
        found |= {name: _table(name, paper, entry) for name, entry in content.items()}
    return found


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
"""Model -> the rows that hold its figures; where two hold the same figure, the first counts."""


def baselines(wanted: Iterable[tuple[str, str]]) -> dict[str, dict[tuple[str, str], float]]:
    """A few telling published models' figures, to stand beside one's own.

    Args:
        wanted: tasks with a metric. The metric must be the one by which the paper takes the task: a baseline that has
            only STS12's `spearman_mean` has nothing under its `spearman_all`.

    Returns:
        Model -> (task, metric) -> percent, of those wanted that were published; models without any are left out.
    """
    asked = set(wanted)
    found: dict[str, dict[tuple[str, str], float]] = {}
    for model, places in _BASELINES.items():
        for name, row in places:
            for key, value in _figures(tables()[name], row).items():
                if key in asked:
                    found.setdefault(model, {}).setdefault(key, value)
    return found


def _figures(table: PaperTable, name: str) -> dict[tuple[str, str], float]:
    row = next(one for one in table.rows if one.name == name)
    figures: dict[tuple[str, str], float] = {}
    for column, cell in zip(table.columns, row.cells, strict=True):
        values = cell if isinstance(cell, tuple) else (cell,)
        if column.of and None not in values:
            figures |= {key: float(value) for key, value in zip(column.of, values, strict=True) if value is not None}
    return figures


def _table(name: str, paper: str, entry: dict[str, Any]) -> PaperTable:
    columns = tuple(_column(**column) for column in entry["columns"])
    rows: list[Row] = []
    group = ""
    for one in entry["rows"]:
        if isinstance(one, dict):
            group = one["group"]
            continue
        model, *cells = one
        if len(cells) != len(columns):
            raise ValueError(f"{name}, row {model}: {len(cells)} cells for {len(columns)} columns")
        rows.append(Row(model, tuple(tuple(cell) if isinstance(cell, list) else cell for cell in cells), group))
    notes = tuple(entry.get("notes", ()))
    return PaperTable(name, paper, entry["title"], entry["decimals"], columns, tuple(rows), notes)


def _column(head: str, of: str | list[str] = "", minus: list[str] | None = None, **more: str) -> Column:
    keys = [of] if isinstance(of, str) else of
    pairs = tuple((task, metric) for task, metric in (key.split() for key in keys if key))
    return Column(head, pairs, minus=(minus[0], minus[1]) if minus else None, **more)


def _loader() -> Any:
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)
