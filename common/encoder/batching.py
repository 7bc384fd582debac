"""Divide texts into batches of a limited number of tokens, for encoders with or without padding."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def batches_in_order(lengths: NDArray[np.integer[Any]], batch_tokens: int) -> Iterator[slice]:
    """Divide rows (texts) into batches in their order; yield the slice of the rows of each batch.

    Args:
        lengths: the number of tokens of each row, (n,).
        batch_tokens: the largest number of tokens in a batch; a longer row has a batch of its own.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    first = 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + batch_tokens, side="right")))
        yield slice(first, last)
        first = last


def batches_by_length(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Divide rows (texts) into batches by length, the longest row first; yield the indices of the rows of each batch.

    To limit padding, a batch also ends before a row that is shorter than seven eighths of the longest row in the batch.
    Without this rule, a quarter of the tokens would be padding if all rows fit into a few large batches.

    Args:
        lengths: the number of tokens of each row.
        batch_tokens: the largest number of tokens in a batch, including padding; a longer row has a batch of its own.
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
