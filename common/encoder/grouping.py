"""Sort a packed batch by length, so that sequences of equal length share a call of attention on a CPU.

    Packed -> by_length -> the same sequences, shortest first, and indices that restore the order of the output

On a CPU, the overhead of a call takes as long as the attention of a sentence, and the sequences of a batch come in any
order of lengths.
"""

from typing import TypeVar

import torch
from torch import Tensor

from clearspan.common.encoder.packing import Packed

Batch = TypeVar("Batch", bound=Packed)


def by_length(packed: Batch) -> tuple[Batch, Tensor | None]:
    """Sort the sequences of a packed batch by length, shortest first.

    Sequences of patches, from images or audio, stay before all others, in their order.

    Args:
        packed: a batch of T rows, each a token or a patch; the host must know the lengths of its sequences.

    Returns:
        The sorted batch, and, for each row of `packed`, its index in the sorted batch, (T,) int64. If all sequences of
        equal length are adjacent in `packed`, nothing is sorted: `packed` and None are returned.
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
