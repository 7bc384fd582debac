"""Counter-based randomness: every draw is a hash of what it is for, never of when or where it was made.

A key is mixed from such as (seed, epoch, example id); draw number j under a key is a second hash. So an example gets
the same draws in any batch, on any worker or rank, after a resume, with no state to save. The hash is SplitMix64's
finaliser (Steele et al. 2014) in wrapping int64 arithmetic: the same for Python integers, numpy arrays and torch
tensors, on any device.
"""

from typing import Any

_WORD = 1 << 64
GOLDEN = 0x9E3779B97F4A7C15 - _WORD
_FIRST = 0xBF58476D1CE4E5B9 - _WORD
_SECOND = 0x94D049BB133111EB - _WORD


def _wrap(z: Any) -> Any:
    """What arrays do by themselves, for Python integers."""
    return (z + (_WORD >> 1)) % _WORD - (_WORD >> 1) if isinstance(z, int) else z


def shift(z: Any, bits: int) -> Any:
    """Logical right shift of int64."""
    shifted = z >> bits
    shifted &= (1 << (64 - bits)) - 1  # in place where it is an array: of small ones every allocation is felt
    return shifted


def finalise(z: Any) -> Any:
    """The hash: int64 -> int64, one to one."""
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
    """One int64 key from integers and int64 arrays, broadcast together; the order of the parts matters."""
    return extend(0, *parts)


def extend(key: Any, *parts: Any) -> Any:
    """The key of a key's parts and these after them: `mix(a, b, c) == extend(mix(a), b, c)`."""
    for part in parts:
        key = finalise(_wrap(_wrap(key * GOLDEN) + finalise(_wrap(part + GOLDEN))))
    return key


def draw(keys: Any, numbers: Any) -> Any:
    """Draws of these numbers (1, 2, ...) under these keys, broadcast together: uniform int64."""
    return finalise(_wrap(keys + numbers * GOLDEN))
