"""Masks tokens of a packed batch (Devlin et al. 2019): of those chosen 80 % become the mask, 10 % random, 10 % stay.

Which tokens and what they become is keyed by their sequence's key and their position: the same in any batch.
"""

import dataclasses

import torch
from torch import Tensor

from clearspan.train import draws
from clearspan.train.losses import IGNORED
from clearspan.train.model.packing import Packed


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
    int64 counts the chosen tokens that had no slot, and so were not masked.
    """

    index: Tensor
    labels: Tensor
    cut: Tensor


def mask(packed: Packed, block: slice, masking: Masking) -> tuple[Packed, Masked]:
    """The batch with some tokens of the block's sequences masked, and which those are; one without a slot stays."""
    rows = slice(None)
    if packed.lengths is not None:  # the host knows where the block lies, and draws for no other token
        first = sum(packed.lengths[: block.start])
        rows = slice(first, first + sum(packed.lengths[block.start : block.stop]))
    sequence, positions = packed.sequence[rows], packed.positions[rows]
    keys = draws.mix(packed.keys[sequence.clamp(max=len(packed.keys) - 1)], positions)
    chosen = packed.content[rows] & (sequence >= block.start) & (sequence < block.stop)
    chosen = chosen & (draws.uniform(keys, 1)[..., 0] < masking.probability)
    if packed.lengths is not None:
        at = chosen.nonzero()[:, 0]
        index = at + rows.start
        cut = index.new_zeros(())
    else:
        slots = min(masking.slots, len(chosen))
        index = at = chosen.int().sort(descending=True, stable=True).indices[:slots]
        cut = (chosen.sum() - slots).clamp(min=0)
    stood, used = packed.ids[index], chosen[at]
    _, fate, replacement = draws.uniform(keys[at], 3).unbind(-1)
    random_ids = (replacement * masking.vocab_size).long()
    become = torch.where(fate < 0.8, masking.mask, torch.where(fate < 0.9, random_ids, stood))
    ids = packed.ids.scatter(0, index, torch.where(used, become, stood))
    return dataclasses.replace(packed, ids=ids), Masked(index, torch.where(used, stood, IGNORED), cut)
