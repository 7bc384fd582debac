"""Details of a task's scores: texts, tables and the data of charts, as plain values.

    Task.score ──> TaskScores.details ──> sections ──> report/, which renders them

Tasks import nothing that renders. `Table` and `Cell` are also what summaries are made of, on the terminal and in HTML.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]


@dataclass(frozen=True)
class Cell:
    """A table's value with its annotations.

    Attributes:
        note: small print after the value, such as its interval.
        strong: whether the value is set in bold.
    """

    value: object
    note: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table. Floats are shown with two decimals (NaN as `undefined`), None as an empty cell, other values as text.

    Attributes:
        rows: rows of cells, each a plain value or a `Cell`.
        names: number of leading columns that name their row; a column of numbers never does. Rows without a name stand
            below each other where tables of several models are merged.
        groups: index of a row -> heading before that row, for all rows up to the next heading.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    groups: Mapping[int, str] = field(default_factory=dict)
    names: int = 1


@dataclass(frozen=True)
class Scatter:
    """A point cloud: group -> (x (n,), y (n,)), one color per group."""

    groups: Mapping[str, tuple[Floats, Floats]]
    xlabel: str
    ylabel: str


@dataclass(frozen=True)
class RankCurve:
    """The share of queries whose first relevant document is within rank k, over k.

    Attributes:
        first_ranks: 1-based rank of each query's best relevant document, int64 (num_queries,).
    """

    first_ranks: NDArray[np.int64]
    num_documents: int


@dataclass(frozen=True)
class Details:
    """The parts of a task that a report shows besides its scores. An empty line in `text` separates paragraphs."""

    text: str = ""
    tables: Sequence[Table] = ()
    charts: Sequence[Scatter | RankCurve] = ()


def cell_text(value: object) -> str:
    """Return the text of a table's value, the same on the terminal and in HTML."""
    if isinstance(value, Cell):
        return f"{cell_text(value.value)} {value.note}".strip()
    if value is None:
        return ""
    if isinstance(value, float):
        return "undefined" if value != value else f"{value:.2f}"
    return str(value)
