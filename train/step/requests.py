"""Requests of objectives: collect, pack and mask the sequences that one forward pass of the encoder computes.

    each objective's `Request`: named blocks of sequences, blocks to mask -> one packed batch -> `Prepared`

A block is a group of sequences that an objective requests under one name, such as the anchors.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from clearspan.train.model.chunked_cross_entropy import IGNORED
from clearspan.train.model.encoded import full_block_name
from clearspan.train.model.masking import Masked, Masking, mask
from clearspan.train.model.packing import Budget, PackedBlocks, Sequences, SpecialTokens, pack

Metrics = dict[str, Tensor]
"""Detached scalars that are logged, by name."""


@dataclasses.dataclass(frozen=True)
class Request:
    """The sequences that one objective needs from a forward pass of the encoder, and how to mask them.

    A block is a group of sequences that an objective requests under one name, such as the anchors.

    Args:
        sequences: name of a block -> its sequences, which are encoded. The objective chooses the names.
        masking: name of a block -> how to mask its tokens. A block of another objective is named `OBJECTIVE/BLOCK`.
        context: what the loss needs in addition to the encoded blocks, such as labels; None for nothing.
    """

    sequences: Mapping[str, Sequences] = dataclasses.field(default_factory=dict)
    masking: Mapping[str, Masking] = dataclasses.field(default_factory=dict)
    context: Any = None


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The requests of a turn's objectives for a micro-batch, packed and masked, ready for the encoder.

    Args:
        requests: name of an objective -> its request.
        packed: all requested blocks of sequences, packed into one batch, after masking.
        blocks: `OBJECTIVE/BLOCK` -> the range of the block's sequences in the batch.
        masked: `OBJECTIVE/BLOCK` -> the masked positions of the block and their original tokens, for each block that is
            masked.
        static: whether the batch has a fixed number of tokens, to which it was filled up or cut.
    """

    requests: dict[str, Request]
    packed: PackedBlocks
    blocks: dict[str, slice]
    masked: dict[str, Masked]
    static: bool

    def counts(self) -> Metrics:
        """Return metrics that count tokens, as scalars by name.

        `tokens` is the number of tokens and patches in the batch, without fillers. If the batch has a fixed number of
        tokens, `tokens_cut` and `masks_cut` are the numbers of tokens and of masked positions that did not fit;
        `masks_cut` is left out if no block is masked.
        """
        counts = {"tokens": self.packed.num_tokens.detach()}
        if self.static:
            counts["tokens_cut"] = self.packed.num_cut.detach()
            if self.masked:
                counts["masks_cut"] = torch.stack([masked.num_cut for masked in self.masked.values()]).sum()
        return counts

    def masked_tokens(self) -> dict[str, Tensor]:
        """Return name of an objective -> its number of masked tokens on this rank, a scalar.

        Objectives that mask no block are left out.
        """
        counts = {}
        for name, request in self.requests.items():
            labels = [self.masked[full_block_name(name, block)].labels for block in request.masking]
            if labels:
                counts[name] = (torch.cat(labels) != IGNORED).sum()
        return counts


def prepare(requests: dict[str, Request], special: SpecialTokens, budget: Budget | None) -> Prepared:
    """Pack the blocks of all requests into one batch, and mask the blocks that the requests name.

    Args:
        requests: name of an objective -> its request.
        special: the special tokens to put around each sequence of tokens.
        budget: the fixed number of tokens to which the batch is filled up or cut; None for as many tokens as the blocks
            have.
    """
    sequences = {
        full_block_name(name, block): block_sequences
        for name, request in requests.items()
        for block, block_sequences in request.sequences.items()
    }
    packed = pack(list(sequences.values()), special, budget)
    blocks = dict(zip(sequences, packed.blocks, strict=True))
    masked: dict[str, Masked] = {}
    for name, request in requests.items():
        for block, masking in request.masking.items():
            packed, masked[full_block_name(name, block)] = mask(packed, blocks[full_block_name(name, block)], masking)
    return Prepared(requests, packed, blocks, masked, budget is not None)
