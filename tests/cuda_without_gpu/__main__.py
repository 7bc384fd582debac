"""Print the table: `python -m tests.cuda_without_gpu [PART ...]`."""

import sys
import tempfile
from pathlib import Path

from tests.cuda_without_gpu.answers import PARTS, Row, measured

HEAD = ("name", "precision", "way", "kernel", "q k v", "waits", "graphs", "padding", "blind", "casts", "launches/text")


def cells(row: Row) -> list[str]:
    """Return a row as texts."""
    start = [row.name, row.precision, row.way]
    if row.refused:
        return [*start, f"refused: {row.refused}"]
    waits = "; ".join(f"{count} x {wait}" for wait, count in row.waits.items()) or "0"
    casts = f"{row.casts[0]}/{row.casts[1]}" if row.casts[0] else ""
    graphs = "" if row.graphs is None else str(row.graphs)
    return [
        *start,
        ", ".join(row.kernels) or "-",
        ", ".join(row.given),
        waits,
        graphs,
        f"{row.padding:.2f}",
        str(row.blind),
        casts,
        f"{row.launches / row.texts:.1f}",
    ]


def table(rows: list[Row]) -> str:
    """Return the table as lines of columns."""
    lines = [list(HEAD), *(cells(row) for row in rows)]
    widths = [max(len(line[at]) for line in lines if len(line) > at + 1) for at in range(len(HEAD) - 1)]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, [*widths, 0], strict=False)).rstrip() for line in lines)


if __name__ == "__main__":
    folder = Path(tempfile.gettempdir()) / "clearspan-cuda-without-gpu"
    print(table(list(measured(folder, sys.argv[1:] or [part for part in PARTS if part != "device"]).values())))
