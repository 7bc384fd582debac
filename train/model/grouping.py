"""Sequences of one length side by side, so that they share a call of attention on a CPU.

    Packed -> by_length -> the same sequences, shortest first, and the rows that undo it on what the encoder gives

There a call's own cost is that of a sentence's attention, and examples come in any order of lengths. Once a forward the
rows change places, and once they change back.
"""

import torch
from torch import Tensor

from clearspan.train.model.packing import Packed


def by_length(packed: Packed) -> tuple[Packed, Tensor | None]:
    """(the batch by length, (T,) int64: where each of its former rows lies now); None where lengths lie together as it
    is. Patches stay first, in their order. `blocks` are of the order before, and left out.
    """
    assert packed.lengths is not None
    lengths = torch.tensor(packed.lengths)
    starts = lengths.cumsum(0) - lengths
    if _runs(lengths) == len(lengths.unique()):
        return packed, None
    order = torch.where(starts < packed.patch_rows, 0, lengths).argsort(stable=True)
    sorted_lengths = lengths[order]
    cu_seqlens = torch.cat([lengths.new_zeros(1), sorted_lengths.cumsum(0)])
    at = torch.arange(len(packed.ids))
    rows = at + (starts[order] - cu_seqlens[:-1]).repeat_interleave(sorted_lengths)
    grouped = Packed(
        ids=packed.ids[rows],
        positions=packed.positions[rows],
        sequence=torch.arange(len(order)).repeat_interleave(sorted_lengths),
        content=packed.content[rows],
        cu_seqlens=cu_seqlens.int(),
        keys=packed.keys[order],
        num_sequences=packed.num_sequences,
        longest=packed.longest,
        blocks=[],
        cut=packed.cut,
        patch_rows=packed.patch_rows,
        lengths=sorted_lengths.tolist(),
    )
    return grouped, torch.empty_like(rows).scatter(0, rows, at)


def _runs(lengths: Tensor) -> int:
    """How many stretches of one length follow each other."""
    return 1 + int((lengths[1:] != lengths[:-1]).sum())
