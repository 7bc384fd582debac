"""A packed batch: sequences of tokens end to end in one flat array, without padding.

    ids, lengths -> pack -> Packed: ids (T,), positions (T,), cumulative lengths (N + 1,)

Embedding packs here; the trainer's batches (`train.model.packing`) add what its objectives need.
"""

import dataclasses
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """One flat batch of N sequences in T rows.

    Attributes:
        ids: (T,), with special tokens.
        positions: (T,), from 0 in each sequence.
        sequence: (T,), the number of each row's sequence.
        cu_seqlens: (N + 1,) int32, cumulative lengths.
        num_sequences: number of sequences without the fillers at the end.
        longest: length of the longest sequence, or an upper bound.
        patch_rows: number of rows at the beginning that are patches of images or audio.
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
        """Return the batch with its sequences in a new order; the host must know their lengths.

        Args:
            order: (N,) int64, the index in this batch of each sequence of the new batch.
            rows: (T,) int64, the index in this batch of each row of the new batch.
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


def pack(ids: Tensor, lengths: NDArray[np.integer[Any]]) -> Packed:
    """Return a batch of sequences that lie end to end, without waiting for the device.

    Args:
        ids: (T,) int64, with special tokens.
        lengths: (N,), the lengths of the sequences, on the host.
    """
    device = ids.device
    host = torch.from_numpy(lengths.astype(np.int64))
    sizes = (host.pin_memory() if device.type == "cuda" else host).to(device, non_blocking=True)
    ends = sizes.cumsum(0)
    numbers = torch.arange(len(lengths), device=device)
    sequence = torch.repeat_interleave(numbers, sizes, output_size=len(ids))
    return Packed(
        ids=ids,
        positions=torch.arange(len(ids), device=device) - (ends - sizes)[sequence],
        sequence=sequence,
        cu_seqlens=torch.cat([ends.new_zeros(1), ends]).int(),
        num_sequences=len(lengths),
        longest=int(lengths.max(initial=0)),
        lengths=lengths.tolist(),
    )


def pack_ids(sequences: list[list[int]], device: torch.device | str = "cpu") -> Packed:
    """Return a batch of sequences that already hold their special tokens."""
    ids = torch.tensor([token for ids in sequences for token in ids], dtype=torch.int64)
    return pack(ids.to(device), np.array([len(ids) for ids in sequences], np.int64))
