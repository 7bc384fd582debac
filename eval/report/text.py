"""Format tables as plain text for a terminal, with aligned columns. No text is cut."""

from rich.cells import cell_len

from clearspan.common import terminal
from clearspan.common.terminal import visible
from clearspan.eval.details import Cell, Table, as_cell, cell_text


def text_table(table: Table, width: int = 1 << 16, notes: bool = True) -> list[str]:
    """Return the lines of a table as plain text. Emphasized values (`Cell.strong`) have a star before them.

    If the table is wider than `width`, it is divided into several tables, one below the other. Each of them repeats the
    columns that name the rows, and has at least one of the other columns.

    Args:
        width: the number of terminal columns. The default is wider than any table.
        notes: whether to show the notes of the cells (`Cell.note`), such as intervals, after their values.
    """
    rows = [[terminal.printable(_text(as_cell(value), notes)) for value in row] for row in table.rows]
    widths = [
        terminal.GAP + max(cell_len(visible(text)) for text in column)
        for column in zip(table.header, *rows, strict=True)
    ]
    names = list(range(table.names))
    parts = [names]
    for i in range(table.names, len(widths)):
        if parts[-1] == names or sum(widths[j] for j in [*parts[-1], i]) - terminal.GAP <= width:
            parts[-1] = [*parts[-1], i]
        else:
            parts.append([*names, i])
    lines = []
    for columns in parts:
        header, cells = [table.header[i] for i in columns], [[row[i] for i in columns] for row in rows]
        right = range(table.names, len(columns))
        lines += terminal.table(header, cells, right=right, indent=0).splitlines()
    return lines


def _text(cell: Cell, notes: bool) -> str:
    text = cell_text(cell if notes else cell.value)
    return f"*{text}" if cell.strong else text
