"""Tables as plain values: what tasks add to their scores, and what summaries are made of.

    Task.score ──> TaskScores.details ──> sections ──> report/, which renders them as text or HTML

Tasks import nothing that renders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Cell:
    """A table's value with its annotations.

    Attributes:
        note: small print after the value, such as its interval.
        strong: whether the value stands out: bold in HTML, with a star in text.
    """

    value: object
    note: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table. Floats are shown with two decimals (NaN as `undefined`), None as an empty cell, other values as text.

    Attributes:
        rows: rows of cells, each a plain value or a `Cell`.
        names: number of leading columns that name the row; all further columns hold the row's figures or texts.
        groups: index of a row -> heading before that row, for all rows up to the next heading.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    groups: Mapping[int, str] = field(default_factory=dict)
    names: int = 1


class Answer(NamedTuple):
    """Answer of a model to a query: the query, the first of its right texts, the rank of the best right text from 1 (0:
    none is ranked), and the text that the model ranks first.
    """

    query: str
    right: str
    rank: int
    first: str


@dataclass(frozen=True)
class Details:
    """The parts of a task that a report shows beside its scores. An empty line in `text` separates paragraphs.

    Attributes:
        answers: an answer for each query, in the same order for every model; a report shows answers that differ.
    """

    text: str = ""
    tables: Sequence[Table] = ()
    answers: Sequence[Answer] = ()


def as_cell(value: object) -> Cell:
    """Return a table's value as a `Cell`."""
    return value if isinstance(value, Cell) else Cell(value)


def cell_text(value: object) -> str:
    """Return the text of a table's value, the same on the terminal and in HTML."""
    if isinstance(value, Cell):
        return f"{cell_text(value.value)} {value.note}".strip()
    if value is None:
        return ""
    if isinstance(value, float):
        return "undefined" if value != value else f"{value:.2f}"
    return str(value)


def merged(tables: Mapping[str, Sequence[Table]]) -> list[Table]:
    """Merge the tables of several models, each row followed by the same row of the next model.

    Tables belong together if they have the same caption and header. A single model's tables stay as they are.
    """
    if len(tables) == 1:
        return list(*tables.values())
    alike: dict[tuple[str, ...], list[tuple[str, Table]]] = {}
    for model, of_model in tables.items():
        for table in of_model:
            alike.setdefault((table.caption, *table.header), []).append((model, table))
    together = []
    for members in alike.values():
        first = members[0][1]
        most = max(len(table.rows) for _, table in members)
        rows = [(model, *table.rows[i]) for i in range(most) for model, table in members if i < len(table.rows)]
        together.append(Table(("model", *first.header), rows, first.caption, names=first.names + 1))
    return together
