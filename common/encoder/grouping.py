"""Reorder a packed batch by length, so that sequences of one length share a call of attention on a CPU.

    Packed -> by_length -> the same sequences, shortest first, and the permutation that restores the encoder's output

On a CPU the overhead of a call is as large as the attention of a sentence, and examples come in any order of lengths.
"""

from typing import TypeVar

import torch
from torch import Tensor

from clearspan.common.encoder.packing import Packed

Batch = TypeVar("Batch", bound=Packed)


def by_length(packed: Batch) -> tuple[Batch, Tensor | None]:
    """Return the batch sorted by length, and for each row of the given batch its new position, (T,) int64.

    If sequences of equal length are already adjacent, return the given batch and None. Patches stay first, in their
    order.
    """
    assert packed.lengths is not None
    lengths = torch.tensor(packed.lengths)
    starts = lengths.cumsum(0) - lengths
    if 1 + int((lengths[1:] != lengths[:-1]).sum()) == len(set(packed.lengths)):  # runs of equal lengths
        return packed, None
    order = torch.where(starts < packed.patch_rows, 0, lengths).argsort(stable=True)
    sorted_lengths = lengths[order]
    at = torch.arange(len(packed.ids))
    shift = starts[order] - (sorted_lengths.cumsum(0) - sorted_lengths)
    rows = at + shift.repeat_interleave(sorted_lengths)
    return packed.reordered(order, rows), torch.empty_like(rows).scatter(0, rows, at)
