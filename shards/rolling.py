"""Rolling hash: hashes of any runs of a sequence, from prefix sums over it that are computed once.

The hash of items a..b is sum(item_i x G^(i - a)) modulo 2^64. G is odd and so has an inverse: prefix sums of
item_i x G^i, times power a of the inverse, give the hash of any run, and runs may overlap. Equal runs have equal hashes
wherever they begin. A caller hashes the result once more (e.g. `keyed.mix`), since its low bits are weak.

Items are int64 values, whose arithmetic wraps around. NumPy arrays and torch tensors on any device give equal results.
"""

from typing import Any

from clearspan.shards.keyed import GOLDEN

INVERSE = (pow(GOLDEN, -1, 1 << 64) ^ 1 << 63) - (1 << 63)
"""The number whose product with `keyed.GOLDEN` is 1 in int64."""


def powers(factors: Any, base: int) -> Any:
    """Return the powers of `base` with exponents 0, 1, ..., n - 1, as int64 (n,).

    Args:
        factors: an int64 array or tensor (n,), which is overwritten; its content does not matter.
    """
    factors[:] = base
    factors[:1] = 1
    return factors.cumprod(0)


def hashes(sums: Any, inverse: Any, starts: Any, ends: Any) -> Any:
    """Return the hashes of the runs of items starts..ends - 1, (m,) int64.

    Args:
        sums: prefix sums of item i x GOLDEN^i over the n items, (n + 1,) int64, beginning with 0.
        inverse: the first n powers of INVERSE, or more, from `powers`.
        starts, ends: integers (m,).
    """
    return (sums[ends] - sums[starts]) * inverse[starts]
