"""SimCSE (Gao et al. 2021): pair a sentence with itself under different dropout, or with a sentence that it entails.

    sentences   tokens | tokens again (different dropout)         -> InfoNCE, one direction
    triplets    tokens | positive | negative, if there is one     -> InfoNCE with hard negatives

Supervised SimCSE's head, a linear layer and tanh, stays at inference: it belongs to the encoder (`model.head: tanh`).
Unsupervised SimCSE's is for training only (`head: tanh` here), and an export leaves it out.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, Self

import torch
from torch import Tensor

from clearspan.train.data.batch import Batch
from clearspan.train.model.losses import info_nce
from clearspan.train.objectives import (
    ContrastiveConfig,
    ContrastiveObjective,
    Encoded,
    Metrics,
    Objective,
    Request,
    Setting,
    Workload,
)
from clearspan.train.options import Count
from clearspan.train.schedules import Finite


@dataclasses.dataclass
class Config(ContrastiveConfig):
    """SimCSE's numbers (section 4 and appendix A): temperature 0.05, hard negatives without extra weight.

    Args:
        positives: the source of a sentence's positive. pairs: the column `positive`, which the shards must have.
            dropout: the sentence itself, in a second pass under different dropout, whatever columns the shards have.
            auto: pairs if the shards have them, else dropout.
        hard_negative_weight: added to the logit of a sentence and its own hard negative. If it is a number, the shards
            must have the columns `positive` and `negative`; null: 0, with or without negatives in the shards.
        max_tokens: the length that texts are cut at, special tokens included; 0: the longest that the encoder takes.
    """

    positives: Literal["auto", "dropout", "pairs"] = "auto"
    hard_negative_weight: Finite | None = None
    max_tokens: Count = 0

    def check(self) -> None:
        super().check()
        if self.positives == "dropout" and self.hard_negative_weight is not None:
            raise ValueError(
                f"hard_negative_weight {self.hard_negative_weight:g} has no effect with positives: dropout: set null"
            )

    def needs(self) -> dict[str, str]:
        if self.hard_negative_weight is not None:
            return dict.fromkeys(("positive", "negative"), f"hard_negative_weight {self.hard_negative_weight:g}")
        return {"positive": "positives: pairs"} if self.positives == "pairs" else {}


class SimCSE(ContrastiveObjective):
    """InfoNCE between anchors and positives, in one direction (SimCSE Eqs. 4 and 5).

    Blocks, N sequences each: `tokens`, `positive`, and `negative` if the shards have it. Without pairs, `positive` is
    `tokens` again.

    Args:
        columns: the shards' columns to read, `tokens` first.
    """

    config: Config
    masks_equal = True

    def __init__(self, config: Config, setting: Setting, columns: Sequence[str]) -> None:
        super().__init__(config, setting)
        self.read = tuple(columns)
        self.paired = "positive" in self.read
        self.blocks = self.read if self.paired else ("tokens", "positive")
        longest = config.max_tokens - setting.special.count if config.max_tokens else setting.capacity
        self.capacity = min(longest, setting.capacity)

    @classmethod
    def build(cls, config: Config, setting: Setting, earlier: Sequence[Objective]) -> Self:
        if 0 < config.max_tokens <= setting.special.count:
            raise ValueError(
                f"max_tokens {config.max_tokens} leaves no room for text beside the "
                f"{setting.special.count} special tokens: raise it, or set 0 for what the encoder takes"
            )
        return cls(config, setting, ["tokens"] if config.positives == "dropout" else setting.texts)

    @property
    def columns(self) -> Sequence[str]:
        return self.read

    def _column(self, block: str) -> str:
        return block if block in self.read else "tokens"

    def workload(self) -> Workload:
        moments = [self.block_moments(block) for block in self.blocks]
        # The upper bound of the variance: the texts of a row are all long or all short together.
        variance = sum(variance**0.5 for _, variance in moments) ** 2
        return Workload(len(self.blocks), sum(mean for mean, _ in moments), variance, 0, self.capacity)

    def notes(self, epochs: float) -> list[str]:
        return [] if self.paired else self.same_passes()

    def unjudged(self) -> str:
        return "" if self.paired else self.EQUAL_PASSES

    def block_moments(self, block: str) -> tuple[float, float]:
        if block not in self.blocks:
            return super().block_moments(block)
        return self.setting.length_moments(self._column(block), self.capacity)

    def request(self, batch: Batch) -> Request:
        keys = self.setting.sequence_keys(batch, len(self.blocks))
        sequences = {
            block: batch.sequences(self._column(block), key, self.capacity)
            for block, key in zip(self.blocks, keys, strict=True)
        }
        texts = (batch.lists(column).slices(self.capacity) for column in self.read)
        return Request(sequences, context=self.identities(batch.ids, *texts))

    def _same(self, keys: Tensor) -> Tensor:
        """Return which positives and negatives of all ranks are no negatives of this rank's anchors, see `info_nce`."""
        if "negative" not in self.read:
            return self.share_a_key(keys)
        return torch.cat([self.share_a_key(keys[:, :-1]), self.share_a_key(keys[:, 1:-1], keys[:, -1:])], dim=1)

    def loss(self, encoded: Encoded, context: Tensor | None) -> tuple[Tensor, Metrics]:
        anchors, positives, *rest = self.projected(*(encoded.pooled(block) for block in self.blocks))
        negatives = rest[0] if rest else None
        weight, same = self.config.hard_negative_weight or 0.0, None if context is None else self._same(context)
        loss = info_nce(anchors, positives, self.config.temperature, negatives, weight, same)
        return loss, self.sphere_metrics(encoded, anchors, positives)
