"""One forward's result, as the objectives see it: each asks for its own blocks, and what two ask for is computed once.

hidden states (T, h) -> Forward: a vector a sequence -> Encoded: an objective's blocks, and masked positions
"""

import dataclasses
import functools
from collections.abc import Mapping

from torch import Tensor

from clearspan.train.model.encoder import Encoder
from clearspan.train.model.masking import Masked
from clearspan.train.model.packing import Packed


class Vectors:
    """One fp32 vector a sequence, of all objectives' blocks.

    Args:
        pooled, first: (N, h), see `Encoded`. blocks: which sequences a block has, by `OBJECTIVE/BLOCK`.
    """

    def __init__(self, pooled: Tensor, first: Tensor, blocks: Mapping[str, slice]) -> None:
        self.pooled, self.first, self.blocks = pooled, first, blocks


class Forward(Vectors):
    """One forward's result, of all objectives: what several of them ask for is computed once.

    Args:
        packed: the batch. hidden: its states (T, h). blocks: which sequences a block has, by `OBJECTIVE/BLOCK`.
        masked: where a block was masked, by the same names.
    """

    def __init__(
        self,
        encoder: Encoder,
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
    """One forward's result as an objective sees it: blocks by its own names, or `OBJECTIVE/BLOCK`.

    Of several forwards, whose gradients are cached, there are vectors alone. `measured`: the step is one that is
    logged; of any other, metrics beside the loss are not looked at, and need not be computed.
    """

    forward: Vectors
    objective: str
    measured: bool = True

    @property
    def encoder(self) -> Encoder:
        return self._whole.encoder

    @property
    def _whole(self) -> Forward:
        if not isinstance(self.forward, Forward):
            raise TypeError(f"objectives.{self.objective} contrasts, so its loss is of pooled and first states alone")
        return self.forward

    def pooled(self, block: str) -> Tensor:
        """The block's sequences as fp32 vectors, (N, h)."""
        return self.forward.pooled[self.forward.blocks[qualified(self.objective, block)]]

    def first(self, block: str) -> Tensor:
        """The fp32 state of each sequence's first token, [CLS] or <s>, (N, h), however the model pools."""
        return self.forward.first[self.forward.blocks[qualified(self.objective, block)]]

    def masked(self, block: str) -> tuple[Tensor, Tensor]:
        """States at the block's masked positions (k, h), and the ids that stood there (k,), -100 at unused slots."""
        masked = self._whole.masked[qualified(self.objective, block)]
        return self._whole.hidden[masked.index], masked.labels


def qualified(objective: str, block: str) -> str:
    """A block's name in the whole forward."""
    return block if "/" in block else f"{objective}/{block}"
