"""Rolling hash: hashes of any runs of a sequence, from prefix sums over it that are computed once.

The hash of items a..b is sum(item_i x G^(i - a)) modulo 2^64. G is odd and so has an inverse: prefix sums of
item_i x G^i, times the inverse's power a, give the hash of any run, however runs overlap. Equal runs have equal hashes
wherever they begin. A caller hashes the result once more (e.g. `keyed.mix`), since its low bits are weak.

Items are int64 that wrap, of NumPy on a host or of torch on any device, with equal results.
"""

from typing import Any

from clearspan.shards.keyed import GOLDEN

INVERSE = (pow(GOLDEN, -1, 1 << 64) ^ 1 << 63) - (1 << 63)
"""The number whose product with `keyed.GOLDEN` is 1 in int64."""


def powers(factors: Any, base: int) -> Any:
    """Return the powers 0, 1, ... of a number in int64, (n,).

    Args:
        factors: (n,) int64 of any content, an array or a tensor, which is overwritten.
    """
    factors[:] = base
    factors[:1] = 1
    return factors.cumprod(0)


def hashes(sums: Any, inverse: Any, starts: Any, ends: Any) -> Any:
    """Return the hashes of the runs of items starts..ends - 1, (m,) int64.

    Args:
        sums: prefix sums of the n items, each times the power of GOLDEN of its place, (n + 1,) int64; the first is 0.
        inverse: powers of INVERSE, at least n.
        starts, ends: (m,) integers.
    """
    return (sums[ends] - sums[starts]) * inverse[starts]
