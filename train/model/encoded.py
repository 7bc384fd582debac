"""The result of one forward: each objective reads its blocks, and what several objectives read is computed once.

hidden states (T, h) -> Forward: a vector a sequence -> Encoded: one objective's blocks and masked positions
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
    """One fp32 vector a sequence, of all objectives' blocks.

    Args:
        pooled, first: (N, h), see `Encoded`.
        blocks: each block's sequences, by `OBJECTIVE/BLOCK`.
    """

    def __init__(self, pooled: Tensor, first: Tensor, blocks: Mapping[str, slice]) -> None:
        self.pooled, self.first, self.blocks = pooled, first, blocks


class Forward(SequenceVectors):
    """The result of one forward, for all objectives; vectors are computed when the first objective reads them.

    Args:
        packed: the batch.
        hidden: its states (T, h).
        blocks: each block's sequences, by `OBJECTIVE/BLOCK`.
        masked: the masked positions of each block that was masked, by the same names.
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
    """The result of a forward for one objective: its blocks by name, other objectives' blocks as `OBJECTIVE/BLOCK`.

    With gradient caching, a contrastive objective gets the vectors of several forwards, and nothing else.

    Args:
        measured: whether the step is logged; if not, only the loss need be computed.
        pools: whether the objective declares that it uses pooled vectors (`Objective.pools`).
        dim: components of every vector after the first `dim` are set to 0; 0: no component is.
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
        """Return the block's sequences as fp32 vectors, (N, h): pooled, and through the encoder's head if it has one.

        Raises:
            TypeError: the objective's class sets `pools = False`, so that the head would not be trained.
        """
        if not self.pools:
            raise TypeError(f"objectives.{self.objective} reads pooled vectors, but its class sets pools = False")
        return self._prefix(self.forward.pooled[self.forward.blocks[qualified(self.objective, block)]])

    def first(self, block: str) -> Tensor:
        """Return the state of each sequence's first token, [CLS] or <s>, (N, h) fp32, whatever the model's pooling.

        A static encoder has no such token: return the mean of the sequence's vectors.
        """
        return self._prefix(self.forward.first[self.forward.blocks[qualified(self.objective, block)]])

    def _prefix(self, vectors: Tensor) -> Tensor:
        return F.pad(vectors[:, : self.dim], (0, vectors.shape[1] - self.dim)) if self.dim else vectors

    def masked(self, block: str) -> tuple[Tensor, Tensor]:
        """Return the states at the block's masked positions (k, h) and the original ids (k,), -100 at unused slots."""
        masked = self._whole.masked[qualified(self.objective, block)]
        return self._whole.hidden[masked.index], masked.labels


def qualified(objective: str, block: str) -> str:
    """Return a block's name in the whole forward, `OBJECTIVE/BLOCK`."""
    return block if "/" in block else f"{objective}/{block}"
