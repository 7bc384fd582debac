"""Format a table as plain text, Markdown or LaTeX. Names may contain any characters, which each format escapes."""

import re
from collections.abc import Callable

from clearspan.common.terminal import printable
from clearspan.eval.details import Table
from clearspan.eval.report.text import text_table
from clearspan.eval.tables.beside import Grid, Line


def text(grid: Grid) -> str:
    """Format a table with aligned columns, subheadings on separate lines, and notes below."""
    rows = []
    for group, line in _grouped(grid):
        if group:
            rows.append([f"[{group}]", *[""] * len(line.cells)])
        rows.append([line.name, *line.cells])
    table = text_table(Table(grid.header, rows))
    return "\n".join([printable(grid.title), *table, *(printable(f"note: {note}") for note in grid.notes)]) + "\n"


def markdown(grid: Grid) -> str:
    """Format a GitHub table with subheadings in bold."""
    lines = [f"**{_markdown(grid.title)}**", "", _pipes([_markdown(head) for head in grid.header])]
    lines.append("|:--|" + "--:|" * (len(grid.header) - 1))
    for group, line in _grouped(grid):
        if group:
            lines.append(_pipes([f"**{_markdown(group)}**", *[""] * len(line.cells)]))
        lines.append(_pipes([_markdown(cell) for cell in (line.name, *line.cells)]))
    lines += ["", *(f"- {_markdown(note)}" for note in grid.notes)]
    return "\n".join(lines).rstrip() + "\n"


def latex(grid: Grid) -> str:
    r"""Format a `table` with `booktabs` rules (`\usepackage{booktabs}`) and notes below."""
    width = len(grid.header)
    lines = [r"\begin{table}", r"\centering", rf"\caption{{{_latex(grid.title)}}}"]
    lines += [rf"\begin{{tabular}}{{l{'r' * (width - 1)}}}", r"\toprule", _ampersands(grid.header), r"\midrule"]
    for number, (group, line) in enumerate(_grouped(grid)):
        if group:
            lines += [r"\midrule"] * (number > 0)
            lines.append(rf"\multicolumn{{{width}}}{{l}}{{\emph{{{_latex(group)}}}}} \\")
        lines.append(_ampersands((line.name, *line.cells)))
    lines += [r"\bottomrule", r"\end{tabular}"]
    lines += [rf"\par\footnotesize {_latex(note)}" for note in grid.notes]
    return "\n".join([*lines, r"\end{table}"]) + "\n"


FORMATS: dict[str, Callable[[Grid], str]] = {"text": text, "markdown": markdown, "latex": latex}


def _grouped(grid: Grid) -> list[tuple[str, Line]]:
    """Return each line with its subheading where a new one begins, else with ""."""
    before = ["", *(line.group for line in grid.lines)]
    return [(line.group if line.group != last else "", line) for line, last in zip(grid.lines, before, strict=False)]


def _pipes(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _markdown(words: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", printable(words))


_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
    "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}", "±": r"$\pm$", "Δ": r"$\Delta$", "∆": r"$\Delta$",
    **{mark: rf"\{mark}" for mark in "&%$#_"},
}  # fmt: skip


def _latex(words: str) -> str:
    return "".join(_LATEX.get(mark, mark) for mark in printable(words))


def _ampersands(cells: tuple[str, ...]) -> str:
    # After \\, LaTeX would read a bracket at the start of a cell as an optional length.
    escaped = [_latex(cell) for cell in cells]
    return " & ".join("{}" + cell if cell.startswith("[") else cell for cell in escaped) + r" \\"
