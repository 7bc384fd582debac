"""Rolling hash: hashes of any slices of a sequence, from prefix sums that are computed once.

The hash of items a, a + 1, ..., b - 1 is the sum of item_i x G^(i - a) modulo 2^64, where G is `keyed.GOLDEN`. G is
odd, so it has an inverse modulo 2^64. The hash is therefore the difference of two prefix sums of item_i x G^i, times
the inverse of G^a. Slices may overlap, and equal slices have equal hashes wherever they begin. The low bits of the hash
are weak, so callers hash it once more, e.g. with `keyed.mix`.

Items are int64 values, whose arithmetic wraps around. NumPy arrays and torch tensors on any device give equal results.
"""

from typing import Any

from clearspan.shards.keyed import GOLDEN

INVERSE = (pow(GOLDEN, -1, 1 << 64) ^ 1 << 63) - (1 << 63)
"""The inverse of `keyed.GOLDEN`: their product is 1 in int64."""


def powers(factors: Any, base: int) -> Any:
    """Return the powers of `base` with exponents 0, 1, ..., n - 1, modulo 2^64, (n,) int64.

    Args:
        factors: scratch memory, whose values are overwritten: an int64 array, or a tensor on any device, of length n.
            The result is of the same type and on the same device.
    """
    factors[:] = base
    factors[:1] = 1
    return factors.cumprod(0)


def hashes(sums: Any, inverse: Any, starts: Any, ends: Any) -> Any:
    """Return the hashes of m slices of a sequence of n integers, (m,) int64.

    Slice j consists of the items starts[j], ..., ends[j] - 1 of the sequence.

    Args:
        sums: prefix sums of item_i x GOLDEN^i over the n items, (n + 1,) int64, beginning with 0. GOLDEN is an odd
            constant (`keyed`).
        inverse: at least the first n powers of INVERSE, with exponents 0, 1, ...; INVERSE is the inverse of GOLDEN
            modulo 2^64.
        starts, ends: indices of items, (m,) integers.
    """
    return (sums[ends] - sums[starts]) * inverse[starts]
