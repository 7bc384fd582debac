"""Random numbers, as tensors, that are computed from keys by hashing, without a generator's state.

The hash functions are in `shards.keyed`, which also works on arrays.

The key of a draw consists of the seed, the dataset, the epoch, the example, the objective, and the draw's purpose
(`Purpose`). An example therefore gets the same spans, views and masks in any batch, on any rank, on CPU and CUDA, and
after a resume. Two datasets get different draws, and so do two objectives of one type.
"""

import contextlib
import enum
import hashlib
from collections.abc import Iterator

import torch
from torch import Tensor

from clearspan.shards import keyed


class Purpose(enum.IntEnum):
    """The purpose of a random draw, which is a part of the draw's key."""

    SHARDS = 1  # the order of an epoch's shards
    WINDOW = 2  # the order of a window's examples
    SPANS = 3  # the spans of a document; the next five purposes extend this key
    ANCHOR_LENGTH = 4
    ANCHOR_CELL = 5  # the cell of an anchor (grid), or the gaps between anchors (uniform)
    ANCHOR_START = 6  # the offset of an anchor in its cell
    POSITIVE_LENGTH = 7
    POSITIVE_START = 8
    SEQUENCE = 9  # the masks of a sequence that an objective requests
    VIEW = 10  # a view that is made on the fly
    STORED_VIEWS = 11  # the pair among more than two stored views
    HEAD = 12  # the initial weights of an objective
    EMBEDDING = 13  # the initial weights of a patch embedding
    DROPOUT = 14
    SHARE = 15  # whether an example is in the fraction `share` of a dataset
    NEGATIVE = 16  # the hard negatives of a row that has more than a step uses
    POSITIVE = 17  # the positive of a row that has several
    ADAPTER = 18  # the initial weights of a low-rank adapter


def mix(*parts: int | Tensor) -> Tensor:
    """Return a random key, int64, made by hashing integers and int64 tensors, which are broadcast.

    The same parts in another order give another key.
    """
    return torch.as_tensor(keyed.mix(*parts))


def extend(key: Tensor, *parts: int | Tensor) -> Tensor:
    """Add parts to a key that `mix` returned: `mix(a, b, c)` equals `extend(mix(a), b, c)`."""
    return torch.as_tensor(keyed.extend(key, *parts))


def uniform(keys: Tensor, num_draws: int) -> Tensor:
    """Return `num_draws` random numbers in [0, 1) for each key: keys (...) int64 -> (..., num_draws) float64.

    The i-th number of a key depends on the key and on i only, not on `num_draws`.
    """
    draws = torch.arange(1, num_draws + 1, device=keys.device)
    bits: Tensor = keyed.shift(keyed.draw(keys[..., None], draws), 11)
    return bits.double() * 2.0**-53


def below(uniforms: Tensor, bounds: Tensor) -> Tensor:
    """Turn uniform numbers into random integers from 0 to bound - 1, all equally likely; int64, of the same shape.

    Args:
        uniforms: numbers in [0, 1), float64, of any shape.
        bounds: the bound for each number, at least 1; int64, of the same shape.
    """
    return torch.minimum((uniforms * bounds).long(), bounds - 1)


def name_key(name: str) -> int:
    """Return a non-negative hash of the name of a dataset or an objective, to use as a part of a random key."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest()) >> 1


@contextlib.contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Return a context in which torch's CPU generator starts from a seed, e.g. to initialize the weights of a module.

    The generator's earlier state is restored at the end.
    """
    with torch.random.fork_rng(devices=[]):  # with devices, every rank would initialize every GPU, and warn
        torch.default_generator.manual_seed(seed)
        yield


def integer_seed(*parts: int) -> int:
    """Return a non-negative seed for a random generator, made by hashing integers.

    Args:
        parts: e.g. for dropout: the run's seed, the purpose `DROPOUT`, the number of the forward pass, the rank, and
            the index of the turn.
    """
    return int(keyed.mix(*parts)) & ((1 << 63) - 1)
