"""Counts of examples by length, in each of their ragged columns: two to an octave, as text and as a picture.

A length n counts under the largest of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is not above it; 0 under 0.
"""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from clearspan.common import terminal
from clearspan.shards.schema import ragged_columns

EDGES = np.array([0, 1, *sorted([2**k for k in range(1, 41)] + [3 * 2**k for k in range(40)])])
WIDTH = 40
Histogram = dict[str, int]
"""Counts by the lower edge of the lengths counted."""
Histograms = dict[str, Histogram]
"""The histogram of each column."""


def measure(batch: pa.RecordBatch) -> Histograms:
    """Counts the lists in a batch's ragged columns by length."""
    found = {}
    for name in ragged_columns(batch.schema):
        sizes = np.diff(batch.column(name).offsets.to_numpy())
        counts = np.bincount(np.searchsorted(EDGES, sizes, side="right") - 1)
        found[name] = {str(EDGES[edge]): int(counts[edge]) for edge in np.flatnonzero(counts)}
    return found


def add(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> Histograms:
    """The sum of the histograms of each column, shortest first."""
    total: Histograms = {}
    for part in parts:
        for column, histogram in part.items():
            into = total.setdefault(column, {})
            for edge, count in histogram.items():
                into[edge] = into.get(edge, 0) + count
    return {column: dict(sorted(into.items(), key=lambda item: int(item[0]))) for column, into in total.items()}


def _bars(histogram: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """(first length, last length, count) from the shortest to the longest, empty ones between them included."""
    if not histogram:
        return []
    lowest, highest = np.searchsorted(EDGES, [min(map(int, histogram)), max(map(int, histogram))])
    edges = EDGES[lowest : highest + 2].tolist()
    return [(low, high - 1, histogram.get(str(low), 0)) for low, high in itertools.pairwise(edges)]


def text(histograms: Mapping[str, Mapping[str, int]]) -> str:
    """A table of each column's lengths with a line a bar, the views of a sentence apart; empty where there are none."""
    return "\n".join(
        f"  {column} per example\n{_text(histogram)}"
        for column, histogram in histograms.items()
        if histogram and not column.startswith("view_")
    )


def _text(histogram: Mapping[str, int]) -> str:
    bars = _bars(histogram)
    most = max(count for *_, count in bars)
    rows = [(f"{low:,}", f"{high:,}", "#" * -(-WIDTH * count // most), f"{count:,}") for low, high, count in bars]
    return terminal.table(("from", "to", "", "examples"), rows, right=(0, 1, 3), indent=4)


def picture(histograms: Mapping[str, Mapping[str, int]], path: Path, title: str) -> None:
    """The first column's as a PNG (or whatever else the path's suffix names)."""
    import matplotlib.figure

    column, histogram = next(iter(histograms.items()), ("values", {}))
    bars = _bars(histogram)
    figure = matplotlib.figure.Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(len(bars)), [count for *_, count in bars], width=1.0, align="edge", edgecolor="white")
    axes.set_xticks(range(len(bars)), [f"{low:,}" for low, *_ in bars], rotation=60, ha="right")
    axes.set(title=title, xlabel=f"{column} per example (from)", ylabel="examples")
    figure.savefig(path, dpi=120)
