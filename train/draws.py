"""Random draws as hashes of keys: `shards.keyed` for tensors.

A draw is keyed by (seed, dataset, epoch, example), by the objective and by the draw's purpose. So an example gets the
same spans, views and masks in any batch, on any rank, after a resume, on CPU and CUDA; two datasets, and two objectives
of one type, draw differently. `Purpose` gives every purpose a separate number.
"""

import contextlib
import enum
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from clearspan.shards import keyed


class Purpose(enum.IntEnum):
    """The purpose of a draw."""

    SHARDS = 1  # the order of an epoch's shards
    WINDOW = 2  # the order of a window's examples
    SPANS = 3  # a document's spans; the next five are parts of it
    ANCHOR_LENGTH = 4
    ANCHOR_BLOCK = 5  # the block of an anchor (grid), or the gaps between anchors (uniform)
    ANCHOR_START = 6  # within its block
    POSITIVE_LENGTH = 7
    POSITIVE_START = 8
    SEQUENCE = 9  # the masks of a request's sequence
    VIEW = 10  # a view that is made on the fly
    STORED_VIEWS = 11  # the pair among more than two stored views
    HEAD = 12  # the initial weights of an objective
    EMBEDDING = 13  # the initial weights of a patch embedding
    DROPOUT = 14
    SHARE = 15  # the examples in a share of a dataset
    NEGATIVE = 16  # the hard negatives of a row that has more than a step uses
    POSITIVE = 17  # the positive of a row with several


def mix(*parts: int | Tensor) -> Tensor:
    """Return an int64 key made of integers and int64 tensors, broadcast together; the order of the parts matters."""
    return torch.as_tensor(keyed.mix(*parts))


def extend(key: Tensor, *parts: int | Tensor) -> Tensor:
    """Return `key` extended by these parts."""
    return torch.as_tensor(keyed.extend(key, *parts))


def uniform(keys: Tensor, num_draws: int) -> Tensor:
    """Return uniforms in [0, 1): keys (...) int64 -> (..., num_draws) float64; a draw depends on its key and number."""
    draws = torch.arange(1, num_draws + 1, device=keys.device)
    bits: Tensor = keyed.shift(keyed.draw(keys[..., None], draws), 11)
    return bits.double() * 2.0**-53


def below(uniforms: Tensor, bounds: Tensor) -> Tensor:
    """Return uniform integers in [0, bound): float64 uniforms and int64 bounds >= 1 of one shape -> int64."""
    return torch.minimum((uniforms * bounds).long(), bounds - 1)


def name_key(name: str) -> int:
    """Return a dataset's or an objective's name as a part of a key."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Return a context in which torch's CPU generator has this seed, e.g. for a module's initial weights."""
    with torch.random.fork_rng(devices=[]):  # with devices, every rank would initialize every GPU, and warn
        torch.default_generator.manual_seed(seed)
        yield


def integer_seed(*parts: int) -> int:
    """Return a non-negative seed for a generator, e.g. dropout's of (seed, DROPOUT, step, rank)."""
    return int(keyed.mix(*parts)) & ((1 << 63) - 1)
