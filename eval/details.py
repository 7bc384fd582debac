"""Tables and texts that a task adds to its scores, as plain values.

    Task.score ──> TaskScores.details ──> report/, which renders them as text or HTML

Tasks create these values, so that they need not import the code that renders them. A report's summary of all tasks is
rendered from cells of the same class.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True)
class Cell:
    """A value in a table, with a note or with emphasis.

    Attributes:
        value: the value. A table shows it as if it were not in a `Cell`, for example a float with two decimals.
        note: text in small print after the value, such as the confidence interval of a score; "" for none.
        strong: whether the value is emphasized: in bold in HTML, with a star in text.
    """

    value: object
    note: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table. A float is shown with two decimals, NaN as `undefined`, None as an empty cell, and other values as text.

    Attributes:
        header: the names of the columns.
        rows: the rows, each a list of plain values or `Cell`s.
        caption: the caption; "" for none.
        groups: row index -> heading above this row; it applies to all rows until the next heading.
        names: the number of leading columns that name the row. The other columns hold values.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    groups: Mapping[int, str] = field(default_factory=dict)
    names: int = 1


class Answer(NamedTuple):
    """A model's result for one query, as the report shows it.

    Attributes:
        query: the text of the query.
        right: the text of the query's first relevant document, in the order of the collection's documents; "" if the
            collection lacks all of them.
        rank: the rank of the relevant document that the model ranks best, from 1; 0 if none is among the first
            1,000.
        first: the text of the document that the model ranks first; "" if no document is ranked.
    """

    query: str
    right: str
    rank: int
    first: str


@dataclass(frozen=True)
class Details:
    """The details of a task that a report shows in addition to the task's scores.

    Attributes:
        text: remarks, in paragraphs that an empty line separates; "" for none.
        tables: tables to show.
        answers: the model's result for each query, in the same order for every model. A report on several models shows
            the queries whose results differ.
    """

    text: str = ""
    tables: Sequence[Table] = ()
    answers: Sequence[Answer] = ()


def as_cell(value: object) -> Cell:
    """Return a value of a table as a `Cell`. A value that is a `Cell` is returned unchanged."""
    return value if isinstance(value, Cell) else Cell(value)


def cell_text(value: object) -> str:
    """Return a value of a table as text, with the note of a `Cell` but without its emphasis."""
    if isinstance(value, Cell):
        return f"{cell_text(value.value)} {value.note}".strip()
    if value is None:
        return ""
    if isinstance(value, float):
        return "undefined" if value != value else f"{value:.2f}"
    return str(value)


def merged(tables: Mapping[str, Sequence[Table]]) -> list[Table]:
    """Merge the tables of several models into tables with a new first column, which names the model.

    Tables with the same caption and header become one table. It has the first rows of all models, then their second
    rows, and so on. It has no headings between rows (`Table.groups`). If there is only one model, its tables are
    returned unchanged.

    Args:
        tables: the name of each model -> its tables.
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
