"""Tables of one form, one per model, merged for comparison.

same rows ──> one table; each column that differs becomes one column per model
other rows, or rows without a name ──> one table; the models' rows below each other
other columns ──> one table per model, whose caption names the model
"""

from collections.abc import Mapping, Sequence

from clearspan.eval.details import Table


def side_by_side(tables: Mapping[str, Sequence[Table]]) -> list[Table]:
    """Merge the tables of each model into tables of all models, in the order of the first model that has them.

    Tables belong together if they have the same caption; among tables of one caption, the position decides.
    """
    together: dict[tuple[str, int], dict[str, Table]] = {}
    for model, of_model in tables.items():
        seen: dict[str, int] = {}
        for table in of_model:
            number = seen[table.caption] = seen.get(table.caption, -1) + 1
            together.setdefault((table.caption, number), {})[model] = table
    return [table for by_model in together.values() for table in _merged(by_model)]


def _merged(tables: Mapping[str, Table]) -> list[Table]:
    first, *others = tables.values()
    if not others:
        return [first]
    if any(list(table.header) != list(first.header) for table in others):
        return [Table(t.header, t.rows, f"{t.caption} ({model})".strip(), t.groups) for model, t in tables.items()]
    if not first.names or any(_column(table, 0) != _column(first, 0) for table in others):
        rows = [(model, *row) for model, table in tables.items() for row in table.rows]
        return [Table(("model", *first.header), rows, first.caption)]
    differing = [i for i in range(len(first.header)) if any(_column(table, i) != _column(first, i) for table in others)]
    header, columns = [], []
    for i, heading in enumerate(first.header):
        if i not in differing:
            header.append(heading)
            columns.append(_column(first, i))
            continue
        for model, table in tables.items():
            header.append(model if len(differing) == 1 else f"{heading}, {model}")
            columns.append(_column(table, i))
    caption = first.caption
    if len(differing) == 1:
        caption = f"{caption}: {first.header[differing[0]]}" if caption else first.header[differing[0]]
    return [Table(header, list(zip(*columns, strict=True)), caption, first.groups)]


def _column(table: Table, number: int) -> list[object]:
    """Return a column's cells, with NaN replaced by a value that equals itself."""
    return ["undefined" if row[number] != row[number] else row[number] for row in table.rows]
