"""Write a report as one HTML file, which can be opened offline and sent by mail.

    sections (text, figures, tables) ──> templates/report.html ──> report.html

This module does not depend on evaluations: any program that has tables can write a report. The same input gives the
same bytes. The page contains no script, and its content security policy forbids loading anything from other files.
"""

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearspan.common.files import write_text
from clearspan.eval.details import Table, as_cell, cell_text
from clearspan.eval.report.figures import Figure, drawn, environment

if TYPE_CHECKING:  # takes a fraction of a second to import, which --help must not
    import jinja2

_MARK = '<meta name="generator" content="clearspan">'
_CONTENTS_FROM = 4  # sections; a shorter report needs no table of contents


@dataclass(frozen=True)
class Section:
    """A section of a report.

    Attributes:
        heading: the heading.
        text: paragraphs, separated by empty lines; "" for none.
        tables: tables to show.
        sections: subsections, one heading level lower.
        folded: whether the section is collapsed until the reader opens it. On paper, it is always shown in full.
        note: text beside the heading of a collapsed section; "" for none.
        figures: bar charts and plots to show.
        commands: shell commands to show, one per line, which the reader can copy into a terminal.
    """

    heading: str
    text: str = ""
    tables: Sequence[Table] = ()
    sections: Sequence["Section"] = ()
    folded: bool = False
    note: str = ""
    figures: Sequence[Figure] = ()
    commands: Sequence[str] = ()


def write_report(
    path: str | Path, title: str, sections: Sequence[Section], introduction: str = "", warnings: Sequence[str] = ()
) -> None:
    """Write a report as one self-contained HTML file. An existing file is replaced atomically.

    All text is escaped, so it may contain HTML's special characters. If there are at least four sections, including
    subsections, the report has a table of contents.

    Args:
        sections: the content of the report.
        introduction: paragraphs below the title, separated by empty lines; "" for none.
        warnings: emphasized paragraphs, below the title.

    Raises:
        OSError: the file cannot be written.
    """
    from markupsafe import Markup

    anchors: set[str] = set()
    views = [_view(section, 2, anchors) for section in sections]
    contents = len(anchors) >= _CONTENTS_FROM
    template = _environment().get_template("report.html")
    page = template.render(
        mark=Markup(_MARK), title=title, lead=introduction, warnings=warnings, sections=views, contents=contents
    )
    write_text(Path(path), page)


def is_report(path: Path) -> bool:
    """Return whether a file was written by `write_report`."""
    with path.open("rb") as file:
        return _MARK.encode() in file.read(1000)


@functools.cache
def _environment() -> "jinja2.Environment":
    shared = environment()
    shared.filters |= {"text": cell_text, "cell": as_cell, "numeric": _numeric, "drawn": drawn}
    return shared


def _view(section: Section, level: int, anchors: set[str]) -> dict[str, Any]:
    """Return a section's values for the template, its heading at <hLEVEL>; link targets are added to `anchors`."""
    stem = re.sub(r"[^a-z0-9]+", "-", section.heading.lower()).strip("-") or "section"
    anchor = stem
    number = 1
    while anchor in anchors:
        number += 1
        anchor = f"{stem}-{number}"
    anchors.add(anchor)
    return {
        **vars(section),
        "anchor": anchor,
        "level": level,
        "sections": [_view(inner, level + 1, anchors) for inner in section.sections],
    }


def _numeric(table: Table) -> list[bool]:
    """Return for each column whether it has cells that are not empty, and all of them are numbers."""
    rows = [[as_cell(value).value for value in row] for row in table.rows]
    columns = [[row[i] for row in rows if row[i] is not None] for i in range(len(table.header))]
    return [bool(filled) and all(isinstance(value, int | float) for value in filled) for filled in columns]
