"""A packed batch: sequences of tokens end to end in one flat array, without padding.

    sequences of ids -> pack_ids -> Packed: ids (T,), positions (T,), cumulative lengths (N + 1,)

Embedding packs here; the trainer's batches (`train.model.packing`) add what its objectives need.
"""

import dataclasses
from typing import Self

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """One flat batch of N sequences in T rows.

    Attributes:
        ids: (T,), with special tokens.
        positions: (T,), from 0 in each sequence.
        sequence: (T,), the number of each row's sequence.
        cu_seqlens: (N + 1,) int32, cumulative lengths.
        num_sequences: N without fillers, which come last.
        longest: the longest sequence, or a bound of it.
        patch_rows: the first rows, which are patches of images or audio.
        lengths: the host's copy of the sequence lengths; None if the host does not know them.
    """

    ids: Tensor
    positions: Tensor
    sequence: Tensor
    cu_seqlens: Tensor
    num_sequences: int
    longest: int
    patch_rows: int = 0
    lengths: list[int] | None = None

    @property
    def num_tokens(self) -> Tensor:
        """The number of rows without fillers, () int."""
        return self.cu_seqlens[self.num_sequences]

    def reordered(self, order: Tensor, rows: Tensor) -> Self:
        """Return the batch with its sequences in another order, whose lengths the host knows.

        Args:
            order: (N,) int64, the former number of each sequence.
            rows: (T,) int64, the former place of each row.
        """
        lengths = torch.tensor(self.lengths)[order]
        return dataclasses.replace(
            self,
            ids=self.ids[rows],
            positions=self.positions[rows],
            sequence=torch.arange(len(order)).repeat_interleave(lengths),
            cu_seqlens=torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).int(),
            lengths=lengths.tolist(),
        )


def pack_ids(sequences: list[list[int]], device: torch.device | str = "cpu") -> Packed:
    """Return a batch of sequences that already hold their special tokens."""
    lengths = torch.tensor([len(ids) for ids in sequences], dtype=torch.int64)
    ends = lengths.cumsum(0)
    sequence = torch.arange(len(lengths)).repeat_interleave(lengths)
    return Packed(
        ids=torch.tensor([token for ids in sequences for token in ids], dtype=torch.int64).to(device),
        positions=(torch.arange(len(sequence)) - (ends - lengths)[sequence]).to(device),
        sequence=sequence.to(device),
        cu_seqlens=torch.cat([ends.new_zeros(1), ends]).int().to(device),
        num_sequences=len(lengths),
        longest=int(lengths.max()),
        lengths=lengths.tolist(),
    )
