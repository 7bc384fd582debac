"""Add rows for the user's models to a result table of a paper.

    PaperTable, Results of each model ──> TextTable ──> plain text, Markdown or LaTeX

If a task was not scored, the cells for it are empty, and a note below the table names the task.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tabulate import tabulate

from clearspan.common.terminal import printable
from clearspan.eval.details import Table
from clearspan.eval.report.text import text_table
from clearspan.eval.results import Results
from clearspan.eval.tables.averages import CAPTIONS, average, missing_tasks
from clearspan.eval.tables.published import Cell, Column, PaperTable, TableRow

YOURS = "Yours"


@dataclass(frozen=True)
class TextTable:
    """A table whose cells are text.

    Attributes:
        title: the paper and the title of its table.
        header: the headings of the columns, of which the first is `Model`.
        lines: the published rows, followed by the rows of the user's models. A row's name is its first column.
        notes: remarks on the table, one sentence each.
    """

    title: str
    header: tuple[str, ...]
    lines: tuple[TableRow, ...]
    notes: tuple[str, ...]


def beside(table: PaperTable, models: Sequence[Results]) -> TextTable:
    """Return a paper's table with its published rows, followed by a row for each of the user's models.

    All scores are shown with as many decimals as the paper has.
    """
    rows = list(table.rows)
    metrics = _metrics_note(table)
    notes = list(table.notes)
    if metrics:
        notes.append(f"by metric: {metrics}")
    names = [model.model for model in models]
    for model in models:
        name = model.model if names.count(model.model) == 1 else f"{model.model} ({model.folder})"
        rows.append(TableRow(YOURS, name, tuple(_cell(column, table, model) for column in table.columns)))
        notes += [f"{name}: {note}" for note in _missing_notes(table, model)]
        if model.environment.get("protocol") == "fast":
            notes.append(f"{name}: scored by the fast protocol, the paper's by the full one")
    lines = tuple(TableRow(row.group, row.name, tuple(_text(cell, table) for cell in row.cells)) for row in rows)
    header = ("Model", *(column.head for column in table.columns))
    return TextTable(f"{table.paper}, {table.title}", header, lines, tuple(notes))


def _cell(column: Column, table: PaperTable, model: Results) -> Cell:
    """Return the cell of one of the user's models in a column of a paper's table.

    Return None, for an empty cell, if a score that the cell needs is missing, or if `column` does not define what its
    cells show. There is one exception: an average that lacks only the scores of COCO's captions is shown.
    """
    if column.of:
        figures = tuple(model.scores.get(task, {}).get(metric) for task, metric in column.of)
        return None if None in figures else tuple(figure for figure in figures if figure is not None)
    if column.average:
        result = average(column.average, model.scores)
        return result["value"] if result and set(result["missing"]) <= {CAPTIONS} else None
    if column.minus:
        head, row = column.minus
        minuend = next(other for other in table.columns if other.head == head)
        value = _cell(minuend, table, model)
        published = table.cell(row, head)
        return value - published if isinstance(value, float) and isinstance(published, float) else None
    value = model.environment.get(column.environment) if column.environment else None
    return value if isinstance(value, int | float) else None


def _text(cell: Cell, table: PaperTable) -> str:
    if cell is None or isinstance(cell, str):
        return cell or ""
    if isinstance(cell, tuple):
        return "/".join(_text(part, table) for part in cell)
    if math.isnan(cell):
        return "undefined"
    return str(cell) if isinstance(cell, int) else f"{cell:.{table.decimals}f}"  # such as dimensions


def _metrics_note(table: PaperTable) -> str:
    """Return a note on the columns' metrics: `acc: CR, MR; acc/f1: MRPC; spearman: STS-B (STSBenchmark-finetune)`.

    A column is followed by its task in brackets if the task's name differs from the column's heading. The columns of
    averages come under `average`, each followed by the average's name in brackets.
    """
    heads: dict[str, list[str]] = {}
    for column in table.columns:
        if column.of:
            tasks = dict.fromkeys(task for task, _ in column.of)
            task = "" if column.head in tasks else f" ({'/'.join(tasks)})"
            heads.setdefault("/".join(metric for _, metric in column.of), []).append(column.head + task)
        elif column.average:
            heads.setdefault("average", []).append(f"{column.head} ({column.average})")
    return "; ".join(f"{metric}: {', '.join(columns)}" for metric, columns in heads.items())


def _missing_notes(table: PaperTable, model: Results) -> list[str]:
    """Return a note on a model's missing scores, and one for each average that has missing tasks; [] if none."""
    lacking = [
        f"{task} {metric}" for column in table.columns for task, metric in column.of
        if metric not in model.scores.get(task, {})
    ]  # fmt: skip
    notes = [f"no {', '.join(lacking)}"] if lacking else []
    for column in table.columns:
        missing = missing_tasks(column.average, model.scores) if column.average else []
        if missing == [CAPTIONS]:
            notes.append(
                f"{column.head} ({column.average}) is without COCO's captions, the published ones with them: add "
                f"`tasks` captions"
            )
        elif missing:
            notes.append(f"no {column.head} ({column.average}) without {', '.join(missing)}")
    return notes


def formatted(grid: TextTable, form: str) -> str:
    """Return a table as text, with its title above and its notes below.

    Args:
        form: the format: `text`, `markdown` or `latex`. LaTeX needs `\\usepackage{booktabs}`.
    """
    rows = []
    last = ""
    for line in grid.lines:
        if line.group not in ("", last):
            group = f"[{line.group}]" if form == "text" else line.group  # LaTeX takes a bracket for a length
            rows.append([group] + [""] * len(line.cells))
        rows.append([line.name, *map(str, line.cells)])
        last = line.group
    notes = [f"note: {note}" for note in grid.notes]
    if form == "text":
        return "\n".join([printable(grid.title), *text_table(Table(grid.header, rows)), *map(printable, notes)]) + "\n"
    mark = _markdown if form == "markdown" else printable
    align = ["left"] + ["right"] * (len(grid.header) - 1)
    cells = [[mark(cell) for cell in row] for row in (grid.header, *rows)]
    table = tabulate(cells[1:], cells[0], FORMATS[form], disable_numparse=True, colalign=align)
    table = re.sub("[Δ∆]", r"$\\Delta$", table) if form == "latex" else table
    before = "% " if form == "latex" else ""
    title = before + mark(grid.title)
    notes = [(before or "- ") + mark(note) for note in notes]
    return "\n".join([title, "", table, "", *notes]).rstrip() + "\n"


FORMATS = {"text": "", "markdown": "github", "latex": "latex_booktabs"}
"""Format -> name of the format in the `tabulate` library; "" if another function formats it."""


def _markdown(words: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", printable(words))
