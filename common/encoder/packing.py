"""A packed batch: sequences of tokens end to end in one flat array, without padding.

    ids, lengths -> pack -> Packed: ids (T,), positions (T,), cumulative lengths (N + 1,)

T is the number of tokens, N the number of sequences. The trainer's batches (`train.model.packing`) are a subclass with
further fields, which objectives need.
"""

import dataclasses
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclasses.dataclass(frozen=True, kw_only=True)
class Packed:
    """A flat batch of N sequences with T tokens in all, one token in each row.

    Fillers are included in N and T: sequences at the end that only bring the batch to a fixed number of rows.

    Attributes:
        ids: the token ids, special tokens included, (T,).
        positions: the position of each token in its sequence, from 0, (T,).
        sequence: the index of the sequence of each token, (T,).
        cu_seqlens: the cumulative lengths of the sequences, (N + 1,) int32.
        num_sequences: the number of sequences that are not fillers.
        longest: the length of the longest sequence, or an upper bound of it.
        patch_rows: the number of rows at the beginning that hold patches of images or audio in place of tokens.
        lengths: the lengths of the N sequences, on the host; None if the host does not know them.
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
        """The number of tokens, without filler sequences at the end of the batch, as a scalar tensor on the device."""
        return self.cu_seqlens[self.num_sequences]

    def reordered(self, order: Tensor, rows: Tensor) -> Self:
        """Return the batch with its sequences in a new order. The attribute `lengths` must not be None.

        Args:
            order: for each sequence of the new batch, its index in this batch, (N,) int64, on the CPU.
            rows: the same order for the tokens or patches: for each of them in the new batch, its index in this batch,
                (T,) int64.
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
    """Create a packed batch from the ids of sequences that lie end to end, without waiting for the device.

    Args:
        ids: the token ids, special tokens included, (T,) int64.
        lengths: the lengths of the sequences, (N,), on the host.
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
    """Create a packed batch from the token ids of each sequence, special tokens included."""
    ids = torch.tensor([token for ids in sequences for token in ids], dtype=torch.int64)
    return pack(ids.to(device), np.array([len(ids) for ids in sequences], np.int64))
