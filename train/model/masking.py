"""Mask tokens of a packed batch (Devlin et al. 2019).

Tokens are chosen at random. Of the chosen tokens, 80 % become the mask token, 10 % a random token, and 10 % stay
unchanged. All draws depend only on the random key of a sequence and the position of a token in it, so the rest of the
batch does not change them.
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
        slots: the number of masked positions for which a batch of fixed shape has room; not used for other batches.
    """

    probability: float
    mask: int
    vocab_size: int
    slots: int


@dataclasses.dataclass(frozen=True)
class Masked:
    """The k masked positions of a block in a packed batch.

    In a batch of fixed shape, k is the number of slots, i.e. of masked positions for which there is room
    (`Masking.slots`). If fewer tokens are masked, the remaining slots are unused.

    Attributes:
        index: the row of each masked token in the batch, (k,) int64; the row of another token in an unused slot.
        labels: the original id of each masked token, (k,) int64; -100 in an unused slot.
        num_cut: the number of chosen tokens for which there was no slot, () int64; they are not masked.
    """

    index: Tensor
    labels: Tensor
    num_cut: Tensor


def mask(packed: PackedBlocks, block: slice, masking: Masking) -> tuple[PackedBlocks, Masked]:
    """Mask tokens of a block's sequences; return a changed copy of the batch, and the masked positions.

    Args:
        packed: the batch, which is not changed.
        block: the range of the block's sequences in the batch.
        masking: the probability that a token is chosen, and the other options.
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
