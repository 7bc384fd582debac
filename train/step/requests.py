"""Requests of objectives, gathered, packed and masked: what one forward of the encoder computes.

each objective's `Request`: named blocks of sequences, blocks to mask -> one packed batch -> `Prepared`
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearspan.train.model.chunked_cross_entropy import IGNORED
from clearspan.train.model.encoded import qualified
from clearspan.train.model.masking import Masked, Masking, mask
from clearspan.train.model.packing import Budget, PackedBlocks, Sequences, SpecialTokens, pack

Metrics = dict[str, Tensor]
"""Detached scalars that are logged, by name."""


@dataclasses.dataclass(frozen=True)
class Request:
    """An objective's part of one forward.

    Args:
        sequences: blocks of sequences to encode: name, which the objective chooses -> block.
        masking: name of a block -> how to mask its tokens. A block of another objective is named `OBJECTIVE/BLOCK`.
        context: what the loss needs besides the encoded blocks, such as labels.
    """

    sequences: Mapping[str, Sequences] = dataclasses.field(default_factory=dict)
    masking: Mapping[str, Masking] = dataclasses.field(default_factory=dict)
    context: Any = None


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The requests of a turn's objectives for a micro-batch, packed and masked.

    Args:
        requests: objective -> its request.
        packed: all blocks of sequences, after masking.
        blocks: `OBJECTIVE/BLOCK` -> the sequences of the block.
        masked: name of a masked block -> its masked tokens.
        static: whether the batch has a fixed shape.
    """

    requests: dict[str, Request]
    packed: PackedBlocks
    blocks: dict[str, slice]
    masked: dict[str, Masked]
    static: bool

    def counts(self) -> Metrics:
        """Return the number of tokens; with a fixed shape, also the numbers of tokens and masks that did not fit."""
        counts = {"tokens": self.packed.num_tokens.detach()}
        if self.static:
            counts["tokens_cut"] = self.packed.cut.detach()
            if self.masked:
                counts["masks_cut"] = torch.stack([masked.cut for masked in self.masked.values()]).sum()
        return counts

    def masked_tokens(self) -> dict[str, Tensor]:
        """Return the number of masked tokens on this rank, (), by the objective that masks them."""
        counts = {}
        for name, request in self.requests.items():
            labels = [self.masked[qualified(name, block)].labels for block in request.masking]
            if labels:
                counts[name] = (torch.cat(labels) != IGNORED).sum()
        return counts


def prepare(requests: dict[str, Request], special: SpecialTokens, budget: Budget | None) -> Prepared:
    """Pack the blocks of all requests into one batch, and mask the blocks that the requests name.

    Args:
        requests: objective -> its request, in the order of the blocks in the batch.
        budget: the fixed shape of the batch; None: as many tokens as the blocks have.
    """
    sequences = {
        qualified(name, block): block_sequences
        for name, request in requests.items()
        for block, block_sequences in request.sequences.items()
    }
    packed = pack(list(sequences.values()), special, budget)
    blocks = dict(zip(sequences, packed.blocks, strict=True))
    masked: dict[str, Masked] = {}
    for name, request in requests.items():
        for block, masking in request.masking.items():
            packed, masked[qualified(name, block)] = mask(packed, blocks[qualified(name, block)], masking)
    return Prepared(requests, packed, blocks, masked, budget is not None)
