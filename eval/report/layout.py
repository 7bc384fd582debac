"""Layout of a table on the page: which columns hold numbers, which name their row, and how a narrow screen shows it.

A wide table fits a narrow screen in one of two ways: up to a phone's width its rows become cards, with each cell under
its column's name; above that, a table that is still too wide scrolls within its own box. No script is needed.
"""

import re
from collections.abc import Sequence, Set
from typing import Any

from clearspan.eval.details import Cell, Table, cell_text

_CARDS_FROM = 47  # characters per row: about what 400 px hold
_SCROLLS_FROM = 80  # characters per row; such a table may scroll on a small screen, so the keyboard must reach it
_LONG_WORD = 24  # characters without a break opportunity; a longer word may break anywhere


def layout(table: Table, label: str) -> dict[str, Any]:
    """Return a table as the template reads it; its groups are (heading or "", rows of cells).

    Args:
        label: the name for screen readers of a table without a caption.

    Raises:
        ValueError: a row is not as long as the header.
    """
    for row in table.rows:
        if len(row) != len(table.header):
            raise ValueError(f"a row of {len(row)} cells under a header of {len(table.header)}: {row!r}")
    rows = [[value if isinstance(value, Cell) else Cell(value) for value in row] for row in table.rows]
    columns = [[row[i] for row in rows] for i in range(len(table.header))]
    classes = [_classes(cells) for cells in columns]
    names = next((i for i, of_column in enumerate(classes[: table.names]) if "number" in of_column), table.names)
    starts = sorted({0, *table.groups})
    width = sum(map(_width, table.header, columns))
    return {
        "name": table.caption or label,
        "caption": table.caption,
        "columns": [
            {"heading": heading, "classes": of_column, "names_row": i < names}
            for i, (heading, of_column) in enumerate(zip(table.header, classes, strict=True))
        ],
        "groups": [
            (table.groups.get(start, ""), rows[start:end])
            for start, end in zip(starts, [*starts[1:], len(rows)], strict=True)
        ],
        "cards": width > _CARDS_FROM,
        "scrolls": width > _SCROLLS_FROM,
    }


def css(classes: Set[str], text: str) -> str | None:
    """Return the class attribute of a cell with this text, in a column of these classes, or None."""
    long = {"long"} if any(len(word) > _LONG_WORD for word in re.split(r"[\s-]", text)) else set()
    return " ".join(sorted(classes | long)) or None


def _classes(cells: Sequence[Cell]) -> Set[str]:
    """Return a column's CSS classes: `number`, `text` (some long text), `noted` (some cell has a note)."""
    values = [cell.value for cell in cells if cell.value is not None]
    classes = {"noted"} if any(cell.note for cell in cells) else set()
    if values and all(isinstance(value, int | float) for value in values):
        return classes | {"number"}
    return classes | {"text"} if any(len(cell_text(cell)) > _LONG_WORD for cell in cells) else classes


def _width(heading: str, cells: Sequence[Cell]) -> int:
    """Return about how many characters a column takes where text is wrapped as far as possible."""
    texts = [cell_text(cell) for cell in cells]
    longest = max((len(word) for text in [heading, *texts] for word in text.split()), default=0)
    return 3 + max([min(longest, _LONG_WORD), *(min(len(text), 30) for text in texts)])
