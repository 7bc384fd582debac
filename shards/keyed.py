"""Counter-based random numbers: a draw is a hash of a key and a counter, so it depends on neither time nor place.

A key is mixed from integers such as (seed, epoch, example id). Draw number j under a key is a hash of the key and j. So
an example gets the same draws in any batch, on any worker or rank and after a resume, and there is no state to save.
The hash is the finalizer of SplitMix64 (Steele et al. 2014) in wrapping int64 arithmetic, with equal results for Python
integers, numpy arrays and torch tensors on any device.
"""

from typing import Any

_WORD = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15 - _WORD
_FIRST = 0xBF58476D1CE4E5B9 - _WORD
_SECOND = 0x94D049BB133111EB - _WORD


def _wrap(z: Any) -> Any:
    """Wrap a Python integer to the range of int64. Arrays are returned as they are, since their arithmetic wraps."""
    return (z + (_WORD >> 1)) % _WORD - (_WORD >> 1) if isinstance(z, int) else z


def shift(z: Any, bits: int) -> Any:
    """Return `z` shifted right by `bits`, with zeros shifted in (a logical shift of int64)."""
    shifted = z >> bits
    shifted &= (1 << (64 - bits)) - 1  # in place for arrays: allocations dominate for small ones
    return shifted


def finalize(z: Any) -> Any:
    """Hash int64 values to int64 values. Different values have different hashes.

    Args:
        z: a Python integer in the range of int64, or an int64 array of numpy or tensor of torch, whose elements are
            hashed. The result has the same type and shape.
    """
    once = shift(z, 30)
    once ^= z
    once *= _FIRST
    once = _wrap(once)
    twice = shift(once, 27)
    twice ^= once
    twice *= _SECOND
    twice = _wrap(twice)
    last = shift(twice, 31)
    last ^= twice
    return last


def mix(*parts: Any) -> Any:
    """Mix integers and int64 arrays (broadcast together) into an int64 key. The order of the parts matters."""
    return extend(0, *parts)


def extend(key: Any, *parts: Any) -> Any:
    """Mix more parts into a key: `mix(a, b, c) == extend(mix(a), b, c)`."""
    for part in parts:
        key = finalize(_wrap(_wrap(key * GOLDEN) + finalize(_wrap(part + GOLDEN))))
    return key


def draw(keys: Any, numbers: Any) -> Any:
    """Return a uniform random int64 value for each key and number. An equal key and number give an equal value.

    Args:
        keys: int64 keys, from `mix`.
        numbers: for each key, the number of the draw under this key, counted from 1; broadcast with `keys`.
    """
    return finalize(_wrap(keys + numbers * GOLDEN))
