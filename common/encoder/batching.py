"""Batches of texts, for encoders that limit the tokens of a forward pass: with padding, or without."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray


def batches_in_order(lengths: NDArray[np.integer[Any]], batch_tokens: int) -> Iterator[slice]:
    """Yield slices of consecutive rows with at most `batch_tokens` tokens in all; a longer row gets its own slice."""
    ends = np.cumsum(lengths, dtype=np.int64)
    first = 0
    while first < len(lengths):
        before = ends[first - 1] if first else 0
        last = max(first + 1, int(np.searchsorted(ends, before + batch_tokens, side="right")))
        yield slice(first, last)
        first = last


def batches_by_length(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Yield the row numbers, longest row first, in batches of at most `batch_tokens` tokens including padding.

    A row longer than `batch_tokens` has a batch of its own. A batch also ends where lengths fall below seven eighths of
    its longest row; otherwise, if there are few, large batches, a quarter of their tokens would be padding.
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
