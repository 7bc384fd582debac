"""Mask tokens of a packed batch (Devlin et al. 2019): of the chosen tokens, 80 % are masked, 10 % random, 10 % kept.

The choice is keyed by the sequence's key and the token's position, so it is the same in any batch.
"""

import dataclasses

import torch
from torch import Tensor

from clearspan.train import draws
from clearspan.train.model.chunked_cross_entropy import IGNORED
from clearspan.train.model.packing import PackedBlocks


@dataclasses.dataclass(frozen=True)
class Masking:
    """The options of masking a block's tokens.

    Args:
        probability: the probability that a token is chosen; special tokens never are.
        mask: the id of the mask token.
        vocab_size: the bound of random ids.
        slots: the number of masked positions under a static budget.
    """

    probability: float
    mask: int
    vocab_size: int
    slots: int


@dataclasses.dataclass(frozen=True)
class Masked:
    """The masked rows of a packed batch, (k,) int64, and their original ids, (k,), -100 at unused slots.

    `cut` () int64 counts the chosen tokens for which there was no slot; they are not masked.
    """

    index: Tensor
    labels: Tensor
    cut: Tensor


def mask(packed: PackedBlocks, block: slice, masking: Masking) -> tuple[PackedBlocks, Masked]:
    """Return the batch with some tokens of the block's sequences masked, and the masked tokens (`Masked`)."""
    rows = slice(None)
    if packed.lengths is not None:  # the host knows the block's rows, and draws for these only
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
    original, used = packed.ids[index], chosen[at]
    _, fate, replacement = draws.uniform(keys[at], 3).unbind(-1)
    random_ids = (replacement * masking.vocab_size).long()
    become = torch.where(fate < 0.8, masking.mask, torch.where(fate < 0.9, random_ids, original))
    ids = packed.ids.scatter(0, index, torch.where(used, become, original))
    return dataclasses.replace(packed, ids=ids), Masked(index, torch.where(used, original, IGNORED), cut)
