"""Tables as plain text for a terminal: columns aligned, nothing cut.

cells ──> folded: long cells over several lines ──> fitting: as many columns as a line holds ──> text_table: lines
"""

import io
import textwrap
from collections.abc import Iterator, Sequence
from typing import Literal

import rich.box
import rich.table
from rich.cells import cell_len
from rich.console import Console

from clearspan.common.terminal import printable

_HEADING_CELLS, _TEXT_CELLS = 12, 36
_GAP = 3  # cells between two columns


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1) -> list[str]:
    """Return the lines of a table; the first `num_left` columns are aligned left, all others right.

    A cell may have several lines. Other control characters are escaped.
    """
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, header_style="", pad_edge=False, padding=(0, 1))
    for number, heading in enumerate(header):
        side: Literal["left", "right"] = "left" if number < num_left else "right"
        grid.add_column(_shown(heading), justify=side, vertical="bottom", no_wrap=True)
    for row in rows:
        grid.add_row(*map(_shown, row))
    shown = io.StringIO()
    Console(file=shown, width=1 << 16, color_system=None, markup=False, emoji=False).print(grid)
    return [line.rstrip() for line in textwrap.dedent(shown.getvalue()).splitlines() if line.strip()]


def folded(header: Sequence[str], rows: Sequence[Sequence[str]]) -> tuple[list[str], list[list[str]]]:
    """Return (header, rows) with long cells wrapped over several lines, and headings to their column's width."""
    widest = [min(max(map(len, column), default=0), _TEXT_CELLS) for column in zip(*rows, strict=True)]
    headings = [_wrapped(text, max(_HEADING_CELLS, most)) for text, most in zip(header, widest, strict=True)]
    return headings, [[_wrapped(text, _TEXT_CELLS) for text in row] for row in rows]


def fitting(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int, width: int) -> Iterator[list[int]]:
    """Yield the columns of each table that fits into `width` cells.

    Every table has the first `num_left` columns, then as many of the others as its lines hold, at least one.
    """
    widths = [
        _GAP + max(cell_len(part) for text in column for part in text.splitlines() or [""])
        for column in zip(header, *rows, strict=True)
    ]
    first = list(range(num_left))
    columns = first
    for i in range(num_left, len(widths)):
        if columns != first and sum(widths[j] for j in columns) + widths[i] - _GAP > width:
            yield columns
            columns = first
        columns = [*columns, i]
    yield columns


def _wrapped(text: str, limit: int) -> str:
    return "\n".join(textwrap.wrap(printable(text), limit))


def _shown(cell: str) -> str:
    return "\n".join(map(printable, cell.split("\n")))
