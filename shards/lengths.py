"""Histograms of example lengths, one for each column of lists, and tables of them for the terminal.

There are two bins per doubling of the length. The bins begin at 0, 1, 2, 3, 4, 6, 8, 12, 16, 24, ...
"""

import itertools
import re
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

from clearspan.common import terminal
from clearspan.shards.schema import add_up, ragged_columns

EDGES = np.array([0, 1, *sorted([2**k for k in range(1, 41)] + [3 * 2**k for k in range(40)])])
WIDTH = 40
"""Length of the longest bar of the text histogram, in characters."""
Histogram = dict[str, int]
"""Number of examples by the lower edge of a bin."""
Histograms = dict[str, Histogram]
"""Histogram by column."""


def measure(batch: pa.RecordBatch) -> Histograms:
    """Return a histogram of the lengths of the lists in each column of lists: column name -> histogram.

    A histogram maps the lower edge of a bin, as a string, to the number of rows: {"8": 3, "12": 1}. Empty bins are left
    out.
    """
    histograms = {}
    for name in ragged_columns(batch.schema):
        sizes = np.diff(batch.column(name).offsets.to_numpy())
        counts = np.bincount(np.searchsorted(EDGES, sizes, side="right") - 1)
        histograms[name] = {str(EDGES[edge]): int(counts[edge]) for edge in np.flatnonzero(counts)}
    return histograms


def add(parts: Iterable[Mapping[str, Mapping[str, int]]]) -> Histograms:
    """Add up the histograms of each column; return column name -> sum, with the bins in ascending order.

    Args:
        parts: results of `measure`, such as one for each shard.
    """
    total: Histograms = {}
    for part in parts:
        for column, histogram in part.items():
            total[column] = add_up(total.get(column, {}), histogram)
    return {column: dict(sorted(summed.items(), key=lambda item: int(item[0]))) for column, summed in total.items()}


def text(histograms: Mapping[str, Mapping[str, int]]) -> str:
    """Return a text with a table of bars for each column.

    Columns with an empty histogram, and columns whose name ends with a number, such as `negative_1`, are left out. The
    text is "" if no column remains.

    Args:
        histograms: the histogram of each column, by column name.
    """
    return "\n".join(
        f"  {column} per example\n{_text(histogram)}"
        for column, histogram in histograms.items()
        if histogram and not re.search(r"_\d+$", column)
    )


def _text(histogram: Mapping[str, int]) -> str:
    """Return the table of bars for one histogram, from the shortest to the longest length, including empty bins."""
    lowest, highest = np.searchsorted(EDGES, [min(map(int, histogram)), max(map(int, histogram))])
    rows = []
    most = max(histogram.values())
    for low, high in itertools.pairwise(EDGES[lowest : highest + 2].tolist()):
        count = histogram.get(str(low), 0)
        rows.append((f"{low:,}", f"{high - 1:,}", "#" * -(-WIDTH * count // most), f"{count:,}"))
    return terminal.table(("from", "to", "", "examples"), rows, right=(0, 1, 3), indent=4)
