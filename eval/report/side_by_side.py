"""Tables of one form, one a model, put beside each other.

same rows ──> one table, and of each column that differs one a model
other rows ──> one table, the models' rows under each other
other columns ──> a table each, which says whose it is
"""

from collections.abc import Mapping, Sequence

from clearspan.eval.report.table import Table


def side_by_side(tables: Mapping[str, Sequence[Table]]) -> list[Table]:
    """Model -> its tables, as tables of all models, in the order of the first model that has them.

    Tables belong together that bear the same caption, or without one stand at the same place.
    """
    found: dict[tuple[str, int], dict[str, Table]] = {}
    for model, own in tables.items():
        seen: dict[str, int] = {}
        for table in own:
            number = seen[table.caption] = seen.get(table.caption, -1) + 1
            found.setdefault((table.caption, number), {})[model] = table
    return [table for each in found.values() for table in _joined(each)]


def _joined(tables: Mapping[str, Table]) -> list[Table]:
    first = next(iter(tables.values()))
    each = list(tables.values())
    if len(each) == 1:
        return each
    if any(list(table.header) != list(first.header) for table in each):
        return [Table(t.header, t.rows, f"{t.caption} ({model})".strip(), t.groups) for model, t in tables.items()]
    if any(_column(table, 0) != _column(first, 0) for table in each):
        rows = [(model, *row) for model, table in tables.items() for row in table.rows]
        return [Table(("model", *first.header), rows, first.caption)]
    header, columns = [first.header[0]], [_column(first, 0)]
    differing = [
        i for i in range(1, len(first.header)) if any(_column(table, i) != _column(first, i) for table in each)
    ]
    for i in range(1, len(first.header)):
        if i not in differing:
            header.append(first.header[i])
            columns.append(_column(first, i))
            continue
        for model, table in tables.items():
            header.append(model if len(differing) == 1 else f"{first.header[i]}, {model}")
            columns.append(_column(table, i))
    caption = first.caption
    if len(differing) == 1:
        caption = f"{caption}: {first.header[differing[0]]}" if caption else first.header[differing[0]]
    return [Table(header, list(zip(*columns, strict=True)), caption, first.groups)]


def _column(table: Table, number: int) -> list[object]:
    """A column's cells; a NaN counts as equal to another."""
    return ["undefined" if row[number] != row[number] else row[number] for row in table.rows]
