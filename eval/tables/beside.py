"""A paper's table with one's own models under its rows.

    PaperTable + Saved, one a model ──> Grid: cells as text ──> formats

A cell of one's own is empty where the figure is not there, and a note names what is missing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from clearspan.eval.saved import Saved
from clearspan.eval.tables.averages import AVERAGES, HALVES, average
from clearspan.eval.tables.published import Cell, Column, PaperTable

YOURS = "Yours"


@dataclass(frozen=True)
class Line:
    """One row as text, under its subheading."""

    group: str
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Grid:
    """A table as text, in no format yet."""

    title: str
    header: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def beside(table: PaperTable, models: Sequence[Saved]) -> Grid:
    """The published rows, then one row a model, to as many decimals as the paper prints."""
    lines = [Line(row.group, row.name, tuple(_text(cell, table) for cell in row.cells)) for row in table.rows]
    notes = [*table.notes, f"by metric: {_metrics_note(table)}"] if _metrics_note(table) else list(table.notes)
    names = [model.model for model in models]
    for model in models:
        name = model.model if names.count(model.model) == 1 else f"{model.model} ({model.folder})"
        cells = [_own(column, table, model) for column in table.columns]
        lines.append(Line(YOURS, name, tuple(_text(cell, table) for cell in cells)))
        notes += [f"{name}: {note}" for note in _missing_notes(table, model)]
        if model.environment.get("protocol") == "fast":
            notes.append(f"{name}: scored by the fast protocol, the paper's by the full one")
    return Grid(
        f"{table.paper}, {table.title}", ("Model", *(c.head for c in table.columns)), tuple(lines), tuple(notes)
    )


def _own(column: Column, table: PaperTable, model: Saved) -> Cell:
    """One's own cell, None where there is nothing to stand in it."""
    if column.of:
        figures = tuple(model.scores.get(task, {}).get(metric) for task, metric in column.of)
        return None if None in figures else tuple(figure for figure in figures if figure is not None)
    if column.average:
        found = average(column.average, model.scores)
        return found["value"] if found and not found["missing"] else None
    if column.minus:
        head, row = column.minus
        other = next(one for one in table.columns if one.head == head)
        value, published = _own(other, table, model), table.cell(row, head)
        return value - published if isinstance(value, float) and isinstance(published, float) else None
    value = model.environment.get(column.environment) if column.environment else None
    return value if isinstance(value, int | float) else None


def _text(cell: Cell, table: PaperTable) -> str:
    if cell is None or isinstance(cell, str):
        return cell or ""
    if isinstance(cell, tuple):
        return "/".join(_text(one, table) for one in cell)
    if math.isnan(cell):
        return "undefined"
    return str(cell) if isinstance(cell, int) else f"{cell:.{table.decimals}f}"  # parameters, dimensions are whole


def _metrics_note(table: PaperTable) -> str:
    """Which figure stands in each column: `acc: CR, MR; acc/f1: MRPC; spearman: STS-B (STSBenchmark-finetune)`."""
    heads: dict[str, list[str]] = {}
    for column in table.columns:
        if column.of:
            tasks = dict.fromkeys(task for task, _ in column.of)
            task = "" if column.head in tasks else f" ({'/'.join(tasks)})"
            heads.setdefault("/".join(metric for _, metric in column.of), []).append(column.head + task)
        elif column.average:
            heads.setdefault("average", []).append(f"{column.head} ({column.average})")
    return "; ".join(f"{metric}: {', '.join(columns)}" for metric, columns in heads.items())


def _missing_notes(table: PaperTable, model: Saved) -> list[str]:
    lacking = [
        f"{task} {metric}" for column in table.columns for task, metric in column.of
        if metric not in model.scores.get(task, {})
    ]  # fmt: skip
    without, notes = [], []
    for column in table.columns:
        if column.average:
            found = average(column.average, model.scores)
            missing = found["missing"] if found else _tasks(column.average, model)
            if missing and {key.split()[0] for key in lacking} >= set(missing):
                without.append(column.head)
            elif missing:
                notes.append(f"no {column.head} ({column.average}) without {', '.join(missing)}")
    if lacking:
        notes.insert(0, f"no {', '.join(lacking)}" + (f", so no {', '.join(without)}" if without else ""))
    return notes


def _tasks(name: str, model: Saved) -> list[str]:
    """The tasks of an average that are missing where so many are that none is given."""
    rules = [AVERAGES[half] for half in HALVES.get(name, (name,))]
    return [
        task
        for rule in rules
        for task, metrics in rule.metrics.items()
        if any(metric not in model.scores.get(task, {}) for metric in metrics)
    ]
