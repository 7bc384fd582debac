"""A report as one HTML file: it opens anywhere, offline, and can be mailed.

    sections (text, figures, tables) ──> templates/report.html ──> report.html

Knows nothing of evaluation: any program that has tables can write a report. The same input gives the same
bytes. The page holds no script, and its content security policy forbids whatever is not inlined.
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
    """A heading with its content: text, commands, figures, tables, subsections.

    Attributes:
        text: paragraphs, separated by empty lines.
        sections: subsections, one heading level lower.
        folded: whether the section is collapsed until a click, or a link to it, opens it; it is printed open.
        note: text beside the heading of a folded section.
        commands: lines to copy into a terminal, each on a line of its own.
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
    path: str | Path, title: str, sections: Sequence[Section], lead: str = "", warnings: Sequence[str] = ()
) -> None:
    """Write `sections` under `title` as one self-contained HTML file, replacing `path` atomically.

    All text is escaped, so titles, cells and paragraphs may hold anything. Long reports get a table of contents.

    Args:
        lead: a paragraph under the title.
        warnings: paragraphs that stand out under the title.

    Raises:
        OSError: the file cannot be written.
    """
    from markupsafe import Markup

    anchors: set[str] = set()
    views = [_view(section, 2, anchors) for section in sections]
    contents = len(anchors) >= _CONTENTS_FROM
    template = _environment().get_template("report.html")
    page = template.render(
        mark=Markup(_MARK), title=title, lead=lead, warnings=warnings, sections=views, contents=contents
    )
    write_text(Path(path), page)


def is_report(path: Path) -> bool:
    """Return whether `write_report` wrote the file."""
    with path.open("rb") as file:
        return _MARK.encode() in file.read(1000)


@functools.cache
def _environment() -> "jinja2.Environment":
    shared = environment()
    shared.filters |= {"text": cell_text, "cell": as_cell, "numeric": _numeric, "drawn": drawn}
    return shared


def _view(section: Section, level: int, anchors: set[str]) -> dict[str, Any]:
    """Return a section as the template reads it; add its anchor and its subsections' anchors to `anchors`."""
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
    """Return whether each column holds only numbers and empty cells."""
    rows = [[as_cell(value).value for value in row] for row in table.rows]
    columns = [[row[i] for row in rows if row[i] is not None] for i in range(len(table.header))]
    return [bool(filled) and all(isinstance(value, int | float) for value in filled) for filled in columns]
