"""Random draws: each is a hash of what it is for, `shards.keyed` for tensors.

A draw is keyed by (seed, dataset, epoch, example), the objective that it is for, and its purpose. So an example gets
the same spans, views and masks in any batch, on any rank, after a resume, on CPU and CUDA; two datasets, and two
objectives of one type, draw differently. Every purpose is named here, and no two have one number.
"""

import contextlib
import enum
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from clearspan.shards import keyed


class Purpose(enum.IntEnum):
    """What is drawn."""

    SHARDS = 1  # the order of an epoch's shards
    WINDOW = 2  # the order of a window's examples
    SPANS = 3  # a document's spans, all that follows of them
    ANCHOR_LENGTH = 4
    ANCHOR_BLOCK = 5  # the block that an anchor lies in (grid), or the room between anchors (uniform)
    ANCHOR_START = 6  # within its block
    POSITIVE_LENGTH = 7
    POSITIVE_START = 8
    SEQUENCE = 9  # a sequence of a request: its masks
    VIEW = 10  # a view made on the fly
    STORED_VIEWS = 11  # which of more than two
    HEAD = 12  # an objective's first weights
    EMBEDDING = 13  # a patch embedding's first weights
    DROPOUT = 14
    SHARE = 15  # which examples a share of a dataset has


def mix(*parts: int | Tensor) -> Tensor:
    """One int64 key from integers and int64 tensors, broadcast together; the order of the parts matters."""
    return torch.as_tensor(keyed.mix(*parts))


def extend(key: Tensor, *parts: int | Tensor) -> Tensor:
    """The key of a key's parts and these after them."""
    return torch.as_tensor(keyed.extend(key, *parts))


def uniform(keys: Tensor, num_draws: int) -> Tensor:
    """Uniform numbers in [0, 1): keys (...) int64 -> (..., num_draws) float64; a draw depends on its key and number."""
    draws = torch.arange(1, num_draws + 1, device=keys.device)
    return keyed.shift(keyed.draw(keys[..., None], draws), 11).double() * 2.0**-53


def below(uniforms: Tensor, bounds: Tensor) -> Tensor:
    """Uniform integers in [0, bound): float64 uniforms and int64 bounds >= 1 of one shape -> int64."""
    return torch.minimum((uniforms * bounds).long(), bounds - 1)


def name_key(name: str) -> int:
    """A dataset's or an objective's name as a part of a key."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Within it, what torch draws on the host, such as a module's first weights, is of this seed."""
    with torch.random.fork_rng(devices=[]):  # else every rank would start every GPU, and say so
        torch.default_generator.manual_seed(seed)
        yield


def integer_seed(*parts: int) -> int:
    """A non-negative seed for a generator that wants one number, e.g. dropout's at (seed, DROPOUT, step, rank)."""
    return int(keyed.mix(*parts)) & ((1 << 63) - 1)
