"""A table as plain text, for a terminal: columns aligned, nothing cut or wrapped."""

import io
import textwrap
from collections.abc import Sequence

import rich.box
import rich.table
from rich.console import Console

from eval.files import printable


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int = 1) -> list[str]:
    """The lines of a table; the first `num_left` columns are flush left, the others right, as figures are.

    What would steer a terminal is written out.
    """
    grid = rich.table.Table(box=rich.box.SIMPLE_HEAD, header_style="", pad_edge=False, padding=(0, 1))
    for number, heading in enumerate(header):
        grid.add_column(printable(heading), justify="left" if number < num_left else "right", no_wrap=True)
    for row in rows:
        grid.add_row(*(printable(cell) for cell in row))
    shown = io.StringIO()
    Console(file=shown, width=1 << 16, color_system=None, markup=False, emoji=False).print(grid)
    return [line.rstrip() for line in textwrap.dedent(shown.getvalue()).splitlines() if line.strip()]
