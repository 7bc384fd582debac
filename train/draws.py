"""Randomness keyed by (seed, epoch, document id) on the device: `shards.keyed` for tensors.

A document gets the same spans and the same masked tokens in any batch, on any rank, after a resume, on CPU and CUDA.
"""

import torch
from torch import Tensor

from shards import keyed


def mix(*parts: int | Tensor) -> Tensor:
    """One int64 key from integers and int64 tensors, broadcast together; the order of the parts matters."""
    return torch.as_tensor(keyed.mix(*parts))


def uniform(keys: Tensor, num_draws: int) -> Tensor:
    """Uniform numbers in [0, 1): keys (...) int64 -> (..., num_draws) float64; a draw depends on its key and number."""
    draws = torch.arange(1, num_draws + 1, device=keys.device)
    return keyed.shift(keyed.draw(keys[..., None], draws), 11).double() * 2.0**-53


def below(uniforms: Tensor, bounds: Tensor) -> Tensor:
    """Uniform integers in [0, bound): float64 uniforms and int64 bounds >= 1 of one shape -> int64."""
    return torch.minimum((uniforms * bounds).long(), bounds - 1)


def integer_seed(*parts: int) -> int:
    """A non-negative seed for a generator that wants one number, e.g. dropout's at (seed, step, rank)."""
    return int(keyed.mix(*parts)) & ((1 << 63) - 1)
