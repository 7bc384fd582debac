"""A report that is one HTML file: it opens anywhere, offline, and can be mailed.

    sections (text, tables, matplotlib figures) ──> write_report ──> report.html, charts inlined as SVG

Knows nothing of evaluation: whatever has tables and figures can write one. The same input gives the same bytes. Nothing
in the page can run or ask for anything: a content security policy forbids what is not inlined.
"""

import base64
import html
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from clearspan.common.files import write_text
from clearspan.eval.report.style import STYLE
from clearspan.eval.report.table import Table, table_html

if TYPE_CHECKING:  # whose import takes half a second, which no command's --help should
    from matplotlib.figure import Figure

_MARK = '<meta name="generator" content="clearspan">'
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_CONTENTS_FROM = 4  # sections; fewer are seen at a glance
_PIXELS_PER_INCH = 96


@dataclass(frozen=True)
class Section:
    """A heading and what stands under it, in this order. An empty line in `text` parts paragraphs.

    Attributes:
        figures: a figure's label (`Figure.set_label`) says in words what it shows, for those who do not see it.
        sections: under headings one level lower.
        folded: whether it opens by a click (or by a link to it) only; shown open on paper.
        note: beside the heading of a folded section.
    """

    heading: str
    text: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence["Figure"] = ()
    sections: Sequence["Section"] = ()
    folded: bool = False
    note: str = ""


def write_report(
    path: str | Path, title: str, sections: Sequence[Section], lead: str = "", warnings: Sequence[str] = ()
) -> None:
    """Write `sections` under `title` as one self-contained HTML file, replacing `path` in one step.

    Text is escaped, so titles, cells and paragraphs may hold anything. Long reports get a table of contents.

    Args:
        lead: a paragraph under the title.
        warnings: what a reader must know first, above all else.

    Raises:
        ValueError: a table's row is not as long as its header.
        OSError: the file cannot be written.
    """
    anchors = _Anchors()
    body = "".join(_section(section, 2, anchors) for section in sections)
    top = _paragraphs(lead) + "".join(
        f'<p class="warning"><strong>Warning:</strong> {html.escape(text)}</p>\n' for text in warnings
    )
    write_text(
        Path(path),
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{_MARK}\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f"<title>{html.escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<header>\n"
        f"<h1>{html.escape(title)}</h1>\n{top}</header>\n{_contents(sections)}<main>\n{body}</main>\n</body>\n</html>\n",
    )


def is_report(path: Path) -> bool:
    """Whether a file was written by `write_report`."""
    with path.open("rb") as file:
        return _MARK.encode() in file.read(1000)


class _Anchors:
    """Names for the sections, in the order of the page: of their headings, each once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def next(self, heading: str) -> str:
        name = stem = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-") or "section"
        number = 1
        while name in self._taken:
            number += 1
            name = f"{stem}-{number}"
        self._taken.add(name)
        return name


def _contents(sections: Sequence[Section]) -> str:
    """Links to the sections, those of a second level in their first level's line."""
    if sum(1 for _ in _all(sections)) < _CONTENTS_FROM:
        return ""
    anchors = _Anchors()  # walks the page as its body does, so that names agree

    def link(section: Section) -> str:
        return f'<a href="#{anchors.next(section.heading)}">{html.escape(section.heading)}</a>'

    def line(section: Section) -> str:
        first = link(section)
        below = []
        for inner in section.sections:
            below.append(link(inner))
            for deeper in _all(inner.sections):
                anchors.next(deeper.heading)
        return f'<li class="whole">{first}<span>{" ".join(below)}</span></li>\n' if below else f"<li>{first}</li>\n"

    return f'<nav aria-label="Contents">\n<ul>\n{"".join(line(section) for section in sections)}</ul>\n</nav>\n'


def _all(sections: Sequence[Section]) -> Iterator[Section]:
    for section in sections:
        yield section
        yield from _all(section.sections)


def _section(section: Section, level: int, anchors: _Anchors) -> str:
    anchor, heading = anchors.next(section.heading), html.escape(section.heading)
    content = _paragraphs(section.text)
    if section.tables or section.figures:
        tables = "".join(table_html(table, section.heading) for table in section.tables)
        figures = f'<div class="figures">\n{_images(section)}</div>\n' if section.figures else ""
        content += f'<div class="content">\n{tables}{figures}</div>\n'
    content += "".join(_section(inner, level + 1, anchors) for inner in section.sections)
    if not section.folded:
        return f'<section>\n<h{level} id="{anchor}">{heading}</h{level}>\n{content}</section>\n'
    note = f"<span>{html.escape(section.note)}</span>" if section.note else ""
    # The anchor is inside what is folded: a browser that follows a link to it opens it.
    return (
        f"<details>\n<summary><h{level}>{heading}</h{level}>{note}</summary>\n"
        f'<div id="{anchor}">\n{content}</div>\n</details>\n'
    )


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{html.escape(part)}</p>\n" for part in text.split("\n\n") if part.strip())


def _images(section: Section) -> str:
    images = ""
    for number, figure in enumerate(section.figures, start=1):
        shows = str(figure.get_label()) or f"{section.heading}, chart {number}"
        width, height = (round(inches * _PIXELS_PER_INCH) for inches in figure.get_size_inches())
        images += (
            f'<img alt="{html.escape(shows)}" width="{width}" height="{height}" decoding="async" '
            f'src="{_data_uri(figure)}">\n'
        )
    return images


def _data_uri(figure: "Figure") -> str:
    """The figure as an image of its own: the ids of several SVGs within one page would collide."""
    import matplotlib

    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "clearspan"}):
        figure.savefig(buffer, format="svg", dpi=150, metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")
