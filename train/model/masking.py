"""Masks tokens of a packed batch (Devlin et al. 2019): of those chosen 80 % become the mask, 10 % random, 10 % stay.

Which tokens and what they become is keyed by their sequence's key and their position: the same in any batch.
"""

import dataclasses

import torch
from torch import Tensor

from train import draws
from train.losses import IGNORED
from train.model.packing import Packed


@dataclasses.dataclass(frozen=True)
class Masking:
    """How a block's tokens are masked.

    Args:
        probability: of each token, special tokens apart.
        mask: the mask's id. vocab_size: random ids are below it.
        slots: masked positions to make room for under a static budget.
    """

    probability: float
    mask: int
    vocab_size: int
    slots: int


@dataclasses.dataclass(frozen=True)
class Masked:
    """Where a packed batch was masked, (k,) int64, and which ids stood there, (k,): -100 at unused slots; `cut` ()
    int64 counts the masked tokens for which there was no slot.
    """

    index: Tensor
    labels: Tensor
    cut: Tensor


def mask(packed: Packed, block: slice, masking: Masking) -> tuple[Packed, Masked]:
    """The batch with some tokens of the block's sequences masked, and which those are."""
    candidate = packed.content & (packed.sequence >= block.start) & (packed.sequence < block.stop)
    keys = packed.keys[packed.sequence.clamp(max=len(packed.keys) - 1)]
    chance, fate, replacement = draws.uniform(draws.mix(keys, packed.positions), 3).unbind(-1)
    chosen = candidate & (chance < masking.probability)
    if packed.lengths is not None:
        index = chosen.nonzero()[:, 0]
        labels, cut = packed.ids[index], index.new_zeros(())
    else:
        slots = min(masking.slots, len(chosen))
        index = chosen.int().sort(descending=True, stable=True).indices[:slots]
        labels = torch.where(chosen[index], packed.ids[index], IGNORED)
        cut = (chosen.sum() - slots).clamp(min=0)
    random_ids = (replacement * masking.vocab_size).long()
    ids = torch.where(chosen & (fate < 0.8), masking.mask, packed.ids)
    ids = torch.where(chosen & (fate >= 0.8) & (fate < 0.9), random_ids, ids)
    return dataclasses.replace(packed, ids=ids), Masked(index, labels, cut)
