"""Counter-based randomness: every draw is a hash of what it is for, never of when or where it was made.

A key is mixed from (seed, epoch, document id); draw number j under a key is a second hash. So a document gets the same
spans and the same masked tokens in any batch, on any rank, after a resume, on CPU and CUDA alike, with no state to
save. The hash is SplitMix64's finaliser (Steele et al. 2014), in wrapping int64 arithmetic.
"""

import torch
from torch import Tensor

_GOLDEN = 0x9E3779B97F4A7C15 - (1 << 64)
_FIRST = 0xBF58476D1CE4E5B9 - (1 << 64)
_SECOND = 0x94D049BB133111EB - (1 << 64)


def _shift(z: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (z >> bits) & ((1 << (64 - bits)) - 1)


def _finalise(z: Tensor) -> Tensor:
    z = (z ^ _shift(z, 30)) * _FIRST
    z = (z ^ _shift(z, 27)) * _SECOND
    return z ^ _shift(z, 31)


def mix(*parts: int | Tensor) -> Tensor:
    """One int64 key from integers and int64 tensors, broadcast together; the order of the parts matters."""
    key = torch.zeros((), dtype=torch.int64)
    for part in parts:
        part = part if isinstance(part, Tensor) else torch.tensor(part, dtype=torch.int64)
        key = _finalise(key * _GOLDEN + _finalise(part + _GOLDEN))
    return key


def uniform(keys: Tensor, num_draws: int) -> Tensor:
    """Uniform numbers in [0, 1): keys (...) int64 -> (..., num_draws) float64; a draw depends on its key and number."""
    draws = torch.arange(1, num_draws + 1, device=keys.device)
    return _shift(_finalise(keys[..., None] + draws * _GOLDEN), 11).double() * 2.0**-53


def below(uniforms: Tensor, bounds: Tensor) -> Tensor:
    """Uniform integers in [0, bound): float64 uniforms and int64 bounds >= 1 of one shape -> int64."""
    return torch.minimum((uniforms * bounds).long(), bounds - 1)


def integer_seed(*parts: int) -> int:
    """A non-negative seed for a generator that wants one number, e.g. dropout's at (seed, step, rank)."""
    return int(mix(*parts)) & ((1 << 63) - 1)
