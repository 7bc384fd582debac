"""The result of one forward pass: each objective reads its blocks, and what several objectives read is computed once.

    hidden states (T, h) -> Forward: a vector per sequence -> Encoded: one objective's blocks and masked positions

A block is the group of sequences that an objective requests under one name (`train.step.requests.Request`).
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch.nn.functional as F
from torch import Tensor

from clearspan.common.encoder.packing import Packed
from clearspan.train.model.masking import Masked

if TYPE_CHECKING:  # it imports transformers, which takes seconds, and a recipe is checked without it
    from clearspan.train.model.encoder import TrainableEncoder


class SequenceVectors:
    """The vectors of the sequences of all objectives' blocks.

    Args:
        pooled: the pooled vector of each sequence, (N, h) fp32.
        first: the state of each sequence's first token, (N, h) fp32.
        blocks: `OBJECTIVE/BLOCK` -> the range of the block's sequences among the N sequences.
    """

    def __init__(self, pooled: Tensor, first: Tensor, blocks: Mapping[str, slice]) -> None:
        self.pooled, self.first, self.blocks = pooled, first, blocks


class Forward(SequenceVectors):
    """The result of one forward pass for all objectives. Vectors are computed when the first objective reads them.

    Args:
        encoder: the encoder, whose pooling makes the vectors.
        packed: the batch of all sequences.
        hidden: the states of the batch's tokens, (T, h).
        blocks: `OBJECTIVE/BLOCK` -> the range of the block's sequences.
        masked: `OBJECTIVE/BLOCK` -> the masked positions, for each block that an objective masked.
    """

    def __init__(
        self,
        encoder: "TrainableEncoder",
        packed: Packed,
        hidden: Tensor,
        blocks: Mapping[str, slice],
        masked: Mapping[str, Masked],
    ) -> None:
        self.encoder, self.packed, self.hidden, self.blocks, self.masked = encoder, packed, hidden, blocks, masked

    @functools.cached_property
    def pooled(self) -> Tensor:  # type: ignore[override]
        return self.encoder.pool(self.hidden, self.packed)

    @functools.cached_property
    def first(self) -> Tensor:  # type: ignore[override]
        return self.encoder.first_states(self.hidden, self.packed)


@dataclasses.dataclass(frozen=True)
class Encoded:
    """The result of a forward pass for one objective, which calls the methods with the names of its blocks.

    An objective can also read a block of another objective, by the name `OBJECTIVE/BLOCK`. With gradient caching, a
    contrastive objective gets the pooled vectors and first states of several forward passes, but no other states.

    Args:
        forward: the vectors of all objectives' blocks.
        objective: the name of the objective.
        measured: whether the step is logged; if not, the objective may compute its loss only, without metrics.
        pools: whether the objective declares that it uses pooled vectors (`Objective.pools`).
        dim: the number of leading components to keep of each vector; the other components are set to 0. 0: keep all.
    """

    forward: SequenceVectors
    objective: str
    measured: bool = True
    pools: bool = True
    dim: int = 0

    @property
    def encoder(self) -> "TrainableEncoder":
        return self._whole.encoder

    @property
    def _whole(self) -> Forward:
        if not isinstance(self.forward, Forward):
            raise TypeError(f"objectives.{self.objective} contrasts, so its loss may read pooled and first states only")
        return self.forward

    def pooled(self, block: str) -> Tensor:
        """Return the pooled vector of each sequence of a block, (N, h) fp32.

        If the encoder has layers after the pooling, they have been applied.

        Raises:
            TypeError: the objective's class sets `pools = False`, so that these layers would not be trained.
        """
        if not self.pools:
            raise TypeError(f"objectives.{self.objective} reads pooled vectors, but its class sets pools = False")
        return self._prefix(self.forward.pooled[self.forward.blocks[qualified(self.objective, block)]])

    def first(self, block: str) -> Tensor:
        """Return the state of each sequence's first token, [CLS] or <s>, (N, h) fp32, whatever the model's pooling.

        A static encoder has no such token: return the mean of the sequence's token vectors.
        """
        return self._prefix(self.forward.first[self.forward.blocks[qualified(self.objective, block)]])

    def _prefix(self, vectors: Tensor) -> Tensor:
        return F.pad(vectors[:, : self.dim], (0, vectors.shape[1] - self.dim)) if self.dim else vectors

    def masked(self, block: str) -> tuple[Tensor, Tensor]:
        """Return the states at the block's masked positions, (k, h), and the original ids, (k,) int64.

        In a batch of fixed shape, k is fixed too; if fewer positions are masked, the remaining ids are -100.
        """
        masked = self._whole.masked[qualified(self.objective, block)]
        return self._whole.hidden[masked.index], masked.labels


def qualified(objective: str, block: str) -> str:
    """Return OBJECTIVE/BLOCK, the name of a block that is unique among all objectives; keep a name of this form."""
    return block if "/" in block else f"{objective}/{block}"
