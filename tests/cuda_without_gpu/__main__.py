"""Print the table: `python -m tests.cuda_without_gpu [PART ...]`."""

import sys
import tempfile
from pathlib import Path

from tests.cuda_without_gpu.answers import HEAD, PARTS, Row, measured

MORE = ("padding", "launches/text")
"""Further columns: rows of queries in attention for each token; kernels for each text, at least."""


def columns(lines: list[list[str]]) -> str:
    """Return lines of cells as a table; a cell after the last column may be as long as it likes."""
    widths = [max(len(line[at]) for line in lines if len(line) > at + 1) for at in range(len(lines[0]) - 1)]
    padded = ([text.ljust(width) for text, width in zip(line, [*widths, 0], strict=False)] for line in lines)
    return "\n".join("  ".join(line).rstrip() for line in padded)


def table(rows: list[Row]) -> str:
    """Return the rows as a table."""
    lines = [[*HEAD, *MORE]]
    for row in rows:
        more = [] if row.refused else [f"{row.padding:.2f}", f"{row.launches / row.texts:.1f}"]
        lines.append([*row.cells(), *more])
    return columns(lines)


if __name__ == "__main__":
    folder = Path(tempfile.gettempdir()) / "clearspan-cuda-without-gpu"
    print(table(list(measured(folder, sys.argv[1:] or [part for part in PARTS if part != "device"]).values())))
