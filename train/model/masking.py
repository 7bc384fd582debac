"""Mask tokens of a packed batch (Devlin et al. 2019).

Of the chosen tokens, 80 % become the mask token, 10 % a random token, and 10 % stay unchanged. All choices
are drawn from the random key of a sequence and the position of a token, so they do not depend on the rest of the batch.
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
        vocab_size: random tokens have ids below this number.
        slots: the number of masked positions that a batch of a fixed shape has room for.
    """

    probability: float
    mask: int
    vocab_size: int
    slots: int


@dataclasses.dataclass(frozen=True)
class Masked:
    """The masked positions of a packed batch.

    Attributes:
        index: the row of each masked token in the batch, (k,) int64.
        labels: the original id of each masked token, (k,) int64; -100 at unused slots.
        cut: the number of chosen tokens for which there was no slot, () int64; they are not masked.
    """

    index: Tensor
    labels: Tensor
    cut: Tensor


def mask(packed: PackedBlocks, block: slice, masking: Masking) -> tuple[PackedBlocks, Masked]:
    """Mask tokens of a block's sequences; return the changed batch and the masked positions.

    Args:
        block: the range of the block's sequences in the batch.
    """
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
