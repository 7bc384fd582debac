"""Divide texts into batches of a limited number of tokens, for encoders with or without padding."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def batches_in_order(lengths: NDArray[np.integer[Any]], batch_tokens: int) -> Iterator[slice]:
    """Yield slices of consecutive rows, each of at most `batch_tokens` tokens; a longer row gets a slice of its own.

    Args:
        lengths: the number of tokens of each row, (n,).
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    first = 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + batch_tokens, side="right")))
        yield slice(first, last)
        first = last


def batches_by_length(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield batches of row indices, longest row first, each of at most `batch_tokens` tokens including padding.

    A row longer than `batch_tokens` has a batch of its own. To limit padding, a batch also ends before a row that is
    shorter than seven eighths of the longest row in the batch. Without this rule, a quarter of the tokens would be
    padding if all rows fit into a few large batches.

    Args:
        lengths: the number of tokens of each row.
    """
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        longest = lengths[rows[0]] if rows else 0
        if rows and (longest * (len(rows) + 1) > batch_tokens or lengths[row] < longest * 7 // 8):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
