"""A report that is one HTML file: it opens anywhere, offline, and can be mailed.

    sections (text, tables, matplotlib figures) ──> write_report ──> report.html, charts inlined as SVG

Knows nothing of evaluation: whatever has tables and figures can write one. The same input gives the same bytes.
"""

import base64
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.figure import Figure

from eval.files import write_text

_MARK = '<meta name="generator" content="clearspan">'
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c1e21; background: #fff; max-width: 60rem; margin: 2rem auto;
       padding: 0 1rem; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; border-bottom: 1px solid #ddd; }
table { border-collapse: collapse; margin: 0.8rem 0; display: block; overflow-x: auto; }
caption { text-align: left; color: #555; } th, td { padding: 0.2rem 0.8rem; text-align: left; }
th { border-bottom: 2px solid #888; } td { border-bottom: 1px solid #e4e4e4; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
img { max-width: 100%; display: block; margin: 0.6rem 0; }
"""


@dataclass(frozen=True)
class Table:
    """A table. Floats are shown with two decimals (NaN as `undefined`), None as an empty cell, other values as text."""

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    caption: str = ""


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, in this order. An empty line in `text` parts paragraphs."""

    heading: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()


def write_report(path: str | Path, title: str, sections: Sequence[Section]) -> None:
    """Write `sections` under `title` as one self-contained HTML file, replacing `path` in one step.

    Text is escaped, so titles, cells and paragraphs may hold anything.

    Raises:
        ValueError: a table's row is not as long as its header.
        OSError: the file cannot be written.
    """
    body = "".join(_section(section) for section in sections)
    write_text(
        Path(path),
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{_MARK}\n'
        f"<title>{html.escape(title)}</title>\n"
        f"<style>{_STYLE}</style>\n</head>\n<body>\n<h1>{html.escape(title)}</h1>\n{body}</body>\n</html>\n",
    )


def is_report(path: Path) -> bool:
    """Whether a file was written by `write_report`."""
    with path.open("rb") as file:
        return _MARK.encode() in file.read(1000)


def cell_text(value: object) -> str:
    """How tables show a value, on the terminal as in HTML."""
    if value is None:
        return ""
    if isinstance(value, float):
        return "undefined" if value != value else f"{value:.2f}"
    return str(value)


def _section(section: Section) -> str:
    paragraphs = [f"<p>{html.escape(text)}</p>\n" for text in section.text.split("\n\n") if text.strip()]
    tables = [_table(table) for table in section.tables]
    figures = [
        f'<img alt="{html.escape(section.heading)}, chart {number}" src="{_data_uri(figure)}">\n'
        for number, figure in enumerate(section.figures, start=1)
    ]
    return f"<h2>{html.escape(section.heading)}</h2>\n" + "".join(paragraphs + tables + figures)


def _table(table: Table) -> str:
    for row in table.rows:
        if len(row) != len(table.header):
            raise ValueError(f"a row of {len(row)} cells under a header of {len(table.header)}: {row!r}")
    numeric = [
        any(row[i] is not None for row in table.rows)
        and all(row[i] is None or isinstance(row[i], (int, float)) for row in table.rows)
        for i in range(len(table.header))
    ]

    def line(tag: str, cells: Sequence[object]) -> str:
        classes = [' class="number"' if is_number else "" for is_number in numeric]
        return "<tr>" + "".join(
            f"<{tag}{c}>{html.escape(cell_text(cell))}</{tag}>" for c, cell in zip(classes, cells, strict=True)
        )

    caption = f"<caption>{html.escape(table.caption)}</caption>\n" if table.caption else ""
    rows = "".join(line("td", row) + "</tr>\n" for row in table.rows)
    return f"<table>\n{caption}<thead>{line('th', table.header)}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"


def _data_uri(figure: Figure) -> str:
    """The figure as an image of its own: the ids of several SVGs within one page would collide."""
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "clearspan"}):
        figure.savefig(buffer, format="svg", dpi=150, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
