"""How long examples are, in tokens: counts by length, two to an octave, as text and as a picture.

A length n counts under the largest of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... that is not above it; 0 under 0.
"""

import itertools
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import pyarrow as pa

from shards.schema import token_columns

EDGES = np.array([0, 1, *sorted([2**k for k in range(1, 41)] + [3 * 2**k for k in range(40)])])
WIDTH = 40


def measure(batch: pa.RecordBatch) -> dict[str, int]:
    """Counts by length of the first token column's lists, keyed by the lower edge."""
    offsets = batch.column(token_columns(batch.schema)[0]).offsets.to_numpy()
    edges, counts = np.unique(np.searchsorted(EDGES, np.diff(offsets), side="right") - 1, return_counts=True)
    return {str(EDGES[edge]): int(count) for edge, count in zip(edges, counts, strict=True)}


def add(histograms: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Their sum, shortest first."""
    total: dict[str, int] = {}
    for histogram in histograms:
        for edge, count in histogram.items():
            total[edge] = total.get(edge, 0) + count
    return dict(sorted(total.items(), key=lambda item: int(item[0])))


def _bars(histogram: Mapping[str, int]) -> list[tuple[int, int, int]]:
    """(first length, last length, count) from the shortest to the longest, empty ones between them included."""
    if not histogram:
        return []
    lowest, highest = np.searchsorted(EDGES, [min(map(int, histogram)), max(map(int, histogram))])
    edges = EDGES[lowest : highest + 2].tolist()
    return [(low, high - 1, histogram.get(str(low), 0)) for low, high in itertools.pairwise(edges)]


def text(histogram: Mapping[str, int]) -> list[str]:
    """One line a bar."""
    bars = _bars(histogram)
    most = max((count for *_, count in bars), default=0)
    return [
        f"{low:>9,} - {high:>9,}  {'#' * -(-WIDTH * count // most):<{WIDTH}}  {count:,}" for low, high, count in bars
    ]


def picture(histogram: Mapping[str, int], path: Path, title: str) -> None:
    """The same as a PNG (or whatever else the path's suffix names)."""
    import matplotlib.figure

    bars = _bars(histogram)
    figure = matplotlib.figure.Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    axes.bar(range(len(bars)), [count for *_, count in bars], width=1.0, align="edge", edgecolor="white")
    axes.set_xticks(range(len(bars)), [f"{low:,}" for low, *_ in bars], rotation=60, ha="right")
    axes.set(title=title, xlabel="tokens per example (from)", ylabel="examples")
    figure.savefig(path, dpi=120)
