"""Mean and standard deviation of all values of the spectrograms of a dataset, from exact sums of its shards.

The sums are whole numbers of 2^-24 and 2^-48, exact: they are the same on any machine, and those of parts add up to
those of the whole, in any order.
"""

import math
from collections.abc import Iterable, Mapping

import numpy as np
import pyarrow as pa

ONE = 1 << 24
"""The least float16 above zero is 1 / ONE, so every float16 is a whole number of them."""
COLUMN = "frames"


def measure(batch: pa.RecordBatch) -> dict[str, int]:
    """The sums over a batch: how many `values`, their `sum` and that of their `squares`; empty without spectrograms."""
    if COLUMN not in batch.schema.names:
        return {}
    values = batch.column(COLUMN).flatten().flatten().to_numpy(zero_copy_only=True)
    numbers = np.bincount(values.view(np.uint16), minlength=1 << 16)
    (found,) = np.nonzero(numbers)
    whole = [int(value) for value in np.ldexp(found.astype(np.uint16).view(np.float16).astype(np.float64), 24)]
    counts = [int(number) for number in numbers[found]]
    return {
        "values": sum(counts),
        "sum": sum(value * number for value, number in zip(whole, counts, strict=True)),
        "squares": sum(value * value * number for value, number in zip(whole, counts, strict=True)),
    }


def add(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sums over all; empty where there are none."""
    total: dict[str, int] = {}
    for part in parts:
        for name, number in part.items():
            total[name] = total.get(name, 0) + number
    return total


def statistics(sums: Mapping[str, int]) -> dict[str, float]:
    """The `mean` and the `std` (of all values, not estimated) of what was summed; empty where nothing was."""
    if not sums or not sums["values"]:
        return {}
    number, total, squares = sums["values"], sums["sum"], sums["squares"]
    return {"mean": total / (number * ONE), "std": math.isqrt(number * squares - total * total) / (number * ONE)}
