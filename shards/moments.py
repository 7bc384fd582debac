"""Mean and standard deviation of all values of a float16 column, from exact sums that are added up over all shards.

The sums are integers, in units of 2^-24 for values and 2^-48 for squares. Therefore they are the same on any machine,
and the shards can be added up in any order.
"""

import math
from collections.abc import Mapping

import numpy as np
import pyarrow as pa

ONE = 1 << 24
"""1 / ONE is the smallest positive float16, so every float16 is an integer multiple of it."""


def measure(column: pa.Array) -> dict[str, int]:
    """Return the sums over all values of a column of float16 arrays.

    Returns:
        `values`: the number of values; `sum`: their sum, in units of 2^-24; `squares`: the sum of their squares, in
        units of 2^-48.
    """
    # A float16 has a sign bit, 5 bits of exponent and 10 of significand; above exponent 0 one more bit is implied.
    bits = column.flatten().flatten().to_numpy(zero_copy_only=True).view(np.uint16)
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
    """Return the mean (`mean`) and the population standard deviation (`std`) of values; empty if there is no value.

    Args:
        sums: the sums that `measure` returns for a column, or such sums added up over several columns.
    """
    if not sums or not sums["values"]:
        return {}
    number, total, squares = sums["values"], sums["sum"], sums["squares"]
    return {"mean": total / (number * ONE), "std": math.isqrt(number * squares - total * total) / (number * ONE)}
