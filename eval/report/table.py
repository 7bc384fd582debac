"""A table, and how its cells read as text and as HTML.

A wide table keeps to a narrow screen in one of two ways: up to a phone's width its rows become cards, each cell under
its column's name; above that, where its columns still do not fit, it scrolls within a box of its own. No script.
"""

import html
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_CARDS_FROM = 47  # characters a row: about what 400 px hold
_SCROLLS_FROM = 80  # characters: such may scroll on a small screen, which the keyboard shall be able to do
_LONG_WORD = 24  # characters without a place to break; such may be broken anywhere


@dataclass(frozen=True)
class Cell:
    """A value with what belongs to it.

    Attributes:
        note: small, after the value: its interval.
        strong: whether it stands out.
    """

    value: object
    note: str = ""
    strong: bool = False


@dataclass(frozen=True)
class Table:
    """A table. Floats are shown with two decimals (NaN as `undefined`), None as an empty cell, other values as text.

    Attributes:
        rows: of cells, each a value or a `Cell`.
        names: how many columns, from the first, name their row; a column of numbers names none.
        groups: the number of a row -> a heading that stands before it and is of the rows from there on.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""
    groups: Mapping[int, str] = field(default_factory=dict)
    names: int = 1


def cell_text(value: object) -> str:
    """How tables show a value, on the terminal as in HTML."""
    if isinstance(value, Cell):
        return f"{cell_text(value.value)} {value.note}".strip()
    if value is None:
        return ""
    if isinstance(value, float):
        return "undefined" if value != value else f"{value:.2f}"
    return str(value)


def table_html(table: Table, label: str) -> str:
    """The table as HTML; everything in it is escaped.

    Args:
        label: what a screen reader calls the table where it has no caption.

    Raises:
        ValueError: a row is not as long as the header.
    """
    for row in table.rows:
        if len(row) != len(table.header):
            raise ValueError(f"a row of {len(row)} cells under a header of {len(table.header)}: {row!r}")
    columns = [[row[i] for row in table.rows] for i in range(len(table.header))]
    kinds = {"number": _is_numeric, "text": _is_text, "noted": _has_notes}
    classes = [" ".join(kind for kind, holds in kinds.items() if holds(cells)) for cells in columns]
    names = next((i for i, c in enumerate(classes[: table.names]) if "number" in c), table.names)
    body, rows = "", ""
    for number, row in enumerate(table.rows):
        if number in table.groups:
            body += f"<tbody>\n{rows}</tbody>\n" if rows else ""
            rows = _group_row(table.groups[number], table.header, classes, again=number > 0)
        rows += _row(row, table.header, classes, names)
    body += f"<tbody>\n{rows}</tbody>\n"
    heading = "".join(
        f'<th scope="col" role="columnheader"{_class(c + _long(name))}>{html.escape(name)}</th>'
        for c, name in zip(classes, table.header, strict=True)
    )
    caption = f"<caption>{html.escape(table.caption)}</caption>\n" if table.caption else ""
    width, name = _width(table.header, columns), html.escape(table.caption or label)
    form = " cards" * (width > _CARDS_FROM)
    reach = f' role="region" tabindex="0" aria-label="{name}"' if width > _SCROLLS_FROM else ""
    called = "" if caption else f' aria-label="{name}"'
    return (
        f'<div class="scroll"{reach}>\n<table role="table"{_class(form)}{called}>\n{caption}'
        f'<thead><tr role="row">{heading}</tr></thead>\n{body}</table>\n</div>\n'
    )


def _row(row: Sequence[object], header: Sequence[str], classes: Sequence[str], names: int) -> str:
    cells = ""
    for number, (value, column, c) in enumerate(zip(row, header, classes, strict=True)):
        if number < names:
            cells += f'<th scope="row" role="rowheader"{_class(c + _long(value))}>{_cell(value, c)}</th>'
        else:
            cells += (
                f'<td role="cell"{_class(c + _long(value))} data-label="{html.escape(column)}">{_cell(value, c)}</td>'
            )
    return f'<tr role="row">{cells}</tr>\n'


def _group_row(name: str, header: Sequence[str], classes: Sequence[str], again: bool) -> str:
    """The group's heading, and the columns' names again: above dozens of rows they would be out of sight."""
    span = "" if again else f' colspan="{len(header)}"'
    names = [
        f'<td aria-hidden="true"{_class(c + _long(column))}>{html.escape(column)}</td>'
        for c, column in zip(classes[1:], header[1:], strict=True)
    ]
    heading = f'<th scope="rowgroup" role="rowheader"{span}>{html.escape(name)}</th>'
    return f'<tr role="row" class="group">{heading}{"".join(names) if again else ""}</tr>\n'


def _cell(value: object, kinds: str) -> str:
    note = value.note if isinstance(value, Cell) else ""
    text = html.escape(cell_text(value.value if isinstance(value, Cell) else value))
    # An empty note keeps the values of a column of which others have one under each other.
    after = f" <small>{html.escape(note)}</small>" if note or (text and "noted" in kinds) else ""
    return (f"<b>{text}</b>" if isinstance(value, Cell) and value.strong else text) + after


def _class(words: str) -> str:
    return f' class="{words.strip()}"' if words.strip() else ""


def _is_numeric(cells: Sequence[object]) -> bool:
    values = [cell.value if isinstance(cell, Cell) else cell for cell in cells]
    given = [value for value in values if value is not None]
    return bool(given) and all(isinstance(value, (int, float)) for value in given)


def _has_notes(cells: Sequence[object]) -> bool:
    return any(isinstance(cell, Cell) and cell.note for cell in cells)


def _long(value: object) -> str:
    return " long" * any(len(word) > _LONG_WORD for word in re.split(r"[\s-]", cell_text(value)))


def _is_text(cells: Sequence[object]) -> bool:
    return any(len(cell_text(cell)) > _LONG_WORD for cell in cells) and not _is_numeric(cells)


def _width(header: Sequence[str], columns: Sequence[Sequence[object]]) -> int:
    """About how many characters a row takes where text is wrapped as far as it may be."""
    width = 0
    for name, cells in zip(header, columns, strict=True):
        texts = [cell_text(cell) for cell in cells]
        words = [len(word) for text in [name, *texts] for word in text.split()]
        width += 3 + max([min(max(words, default=0), _LONG_WORD), *(min(len(text), 30) for text in texts)])
    return width
