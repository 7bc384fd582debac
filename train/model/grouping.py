"""Reorder a packed batch by length, so that sequences of one length share a call of attention on a CPU.

    Packed -> by_length -> the same sequences, shortest first, and the permutation that restores the encoder's output

On a CPU the overhead of a call is as large as the attention of a sentence, and examples come in any order of lengths.
"""

import dataclasses

import torch
from torch import Tensor

from clearspan.train.model.packing import Packed


def by_length(packed: Packed) -> tuple[Packed, Tensor | None]:
    """Return the batch sorted by length, and the new place of each former row, (T,) int64; or the batch itself and None
    if sequences of one length are neighbors already.

    Patches stay first, in their order. `blocks`, which refer to the former order, are left out.
    """
    assert packed.lengths is not None
    lengths = torch.tensor(packed.lengths)
    starts = lengths.cumsum(0) - lengths
    if 1 + int((lengths[1:] != lengths[:-1]).sum()) == len(set(packed.lengths)):  # runs of equal lengths
        return packed, None
    order = torch.where(starts < packed.patch_rows, 0, lengths).argsort(stable=True)
    sorted_lengths = lengths[order]
    cu_seqlens = torch.cat([lengths.new_zeros(1), sorted_lengths.cumsum(0)])
    at = torch.arange(len(packed.ids))
    rows = at + (starts[order] - cu_seqlens[:-1]).repeat_interleave(sorted_lengths)
    grouped = dataclasses.replace(
        packed,
        ids=packed.ids[rows],
        positions=packed.positions[rows],
        sequence=torch.arange(len(order)).repeat_interleave(sorted_lengths),
        content=packed.content[rows],
        cu_seqlens=cu_seqlens.int(),
        keys=packed.keys[order],
        blocks=[],
        lengths=sorted_lengths.tolist(),
    )
    return grouped, torch.empty_like(rows).scatter(0, rows, at)
