"""Mean and standard deviation of all values of the spectrograms of a dataset, from exact sums of its shards.

The sums are whole numbers of 2^-24 and 2^-48, exact: they are the same on any machine, and those of parts add up to
those of the whole, in any order.
"""

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

ONE = 1 << 24
"""The least float16 above zero is 1 / ONE, so every float16 is a whole number of them."""
COLUMN = "frames"


def measure(batch: pa.RecordBatch) -> dict[str, int]:
    """The sums over a batch: how many `values`, their `sum` and that of their `squares`; empty without spectrograms."""
    if COLUMN not in batch.schema.names:
        return {}
    # A float16 is its sign, 5 bits of exponent and 10 of significand; above exponent 0, one more bit is implied.
    bits = batch.column(COLUMN).flatten().flatten().to_numpy(zero_copy_only=True).view(np.uint16)
    plus, minus = np.bincount(bits, minlength=1 << 16).reshape(2, 32, 1024)
    significands = np.arange(1024) + 1024 * (np.arange(32) > 0)[:, None]
    sums = ((plus - minus) * significands).sum(axis=1).tolist()
    squares = ((plus + minus) * significands**2).sum(axis=1).tolist()
    shifts = [max(0, exponent - 1) for exponent in range(32)]
    return {
        "values": len(bits),
        "sum": sum(number << shift for number, shift in zip(sums, shifts, strict=True)),
        "squares": sum(number << 2 * shift for number, shift in zip(squares, shifts, strict=True)),
    }


def statistics(sums: Mapping[str, int]) -> dict[str, float]:
    """The `mean` and the `std` (of all values, not estimated) of what was summed; empty where nothing was."""
    if not sums or not sums["values"]:
        return {}
    number, total, squares = sums["values"], sums["sum"], sums["squares"]
    return {"mean": total / (number * ONE), "std": math.isqrt(number * squares - total * total) / (number * ONE)}
