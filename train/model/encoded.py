"""The result of one forward pass of the encoder, from which each objective reads the vectors of its blocks.

    hidden states (T, h) -> Forward: a vector per sequence -> Encoded: one objective's blocks and masked positions

T is the number of tokens in the packed batch, h the hidden size. A block is the group of sequences that an objective
requests under one name (`train.step.requests.Request`). A vector that several objectives read is computed once.
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
    """The vectors of the N sequences in the blocks of all objectives.

    Args:
        pooled: the pooled vector of each sequence, (N, h) fp32, where h is the hidden size.
        first: the state of each sequence's first token, (N, h) fp32.
        blocks: `OBJECTIVE/BLOCK` -> the range of the block's sequences among the N sequences.
    """

    def __init__(self, pooled: Tensor, first: Tensor, blocks: Mapping[str, slice]) -> None:
        self.pooled, self.first, self.blocks = pooled, first, blocks


class Forward(SequenceVectors):
    """The result of one forward pass for all objectives. Vectors are computed when the first objective reads them.

    Args:
        encoder: the encoder, whose pooling makes the vectors.
        packed: the packed batch, with the N sequences of all blocks, which have T tokens.
        hidden: what `encoder` returned for the batch: the hidden states of these tokens, (T, h), where h is the hidden
            size; from a static encoder, the mean token vector of each of the N sequences, (N, h).
        blocks: `OBJECTIVE/BLOCK` -> the range of the block's sequences in the batch.
        masked: `OBJECTIVE/BLOCK` -> the masked positions and their original ids, for each block that is masked.
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
    """The result of a forward pass as one objective reads it: each method takes a block's name and returns its states.

    An objective can also read a block of another objective, by the name `OBJECTIVE/BLOCK`. With gradient caching, a
    contrastive objective gets the pooled vectors and first states of several forward passes, but no other states.

    Args:
        forward: the vectors of all objectives' blocks.
        objective: the name of the objective.
        measured: whether the step is logged. If False, the objective may leave out its metrics.
        pools: whether the objective declares that it uses pooled vectors (`Objective.pools`). If False, `pooled` raises
            TypeError.
        dim: the number of leading components that `pooled` and `first` keep of each vector; they set the other
            components to 0. If `dim` is 0, they keep all components.
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
        """Return the pooled vector of each of a block's N sequences, (N, h) fp32, where h is the hidden size.

        If the encoder has layers after the pooling, they have been applied.

        Raises:
            TypeError: the objective's class declares, by `pools = False`, that it does not use pooled vectors.
        """
        if not self.pools:
            raise TypeError(f"objectives.{self.objective} reads pooled vectors, but its class sets pools = False")
        return self._prefix(self.forward.pooled[self.forward.blocks[full_block_name(self.objective, block)]])

    def first(self, block: str) -> Tensor:
        """Return the state of the first token, [CLS] or <s>, of each of a block's N sequences, (N, h) fp32.

        This does not depend on the model's pooling. A static encoder has no such token: for it, return the mean of each
        sequence's token vectors.
        """
        return self._prefix(self.forward.first[self.forward.blocks[full_block_name(self.objective, block)]])

    def _prefix(self, vectors: Tensor) -> Tensor:
        return F.pad(vectors[:, : self.dim], (0, vectors.shape[1] - self.dim)) if self.dim else vectors

    def masked(self, block: str) -> tuple[Tensor, Tensor]:
        """Return the states at a block's k masked positions, (k, h), and the original ids there, (k,) int64.

        h is the hidden size. In a batch of fixed shape, k is fixed too. If fewer positions are masked, the remaining
        ids are -100, and the states there must be ignored.
        """
        masked = self._whole.masked[full_block_name(self.objective, block)]
        return self._whole.hidden[masked.index], masked.labels


def full_block_name(objective: str, block: str) -> str:
    """Return a block's name in the form OBJECTIVE/BLOCK, which is unique among the blocks of all objectives.

    A `block` that has this form already is returned unchanged.
    """
    return block if "/" in block else f"{objective}/{block}"
