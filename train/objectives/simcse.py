"""SimCSE (Gao et al. 2021): a sentence against the same sentence under another dropout, or against what it entails.

    sentences                 tokens | tokens again (other dropout)            -> InfoNCE, one direction
    triplets                  tokens | positive | negative, where there is one -> InfoNCE with hard negatives

Supervised SimCSE's head, a linear layer and tanh, stays at inference: it belongs to the encoder (`model.head: tanh`).
Unsupervised SimCSE's is for training only (`head: tanh` here), and an export leaves it out.
"""

import dataclasses
import math
from collections.abc import Sequence

from torch import Tensor, nn

from clearspan.shards import keyed
from clearspan.train.data.batch import Batch
from clearspan.train.draws import Purpose
from clearspan.train.losses import info_nce
from clearspan.train.model.packing import Sequences, TokenSlices
from clearspan.train.objectives import (
    EQUAL_PASSES,
    Encoded,
    HeadedConfig,
    Metrics,
    Objective,
    Request,
    Setting,
    Workload,
    projected,
    same_passes,
    sphere_metrics,
    training_head,
)
from clearspan.train.options import not_one_of

POSITIVES = ("auto", "dropout", "pairs")


@dataclasses.dataclass
class Config(HeadedConfig):
    """SimCSE's numbers (section 4 and appendix A): temperature 0.05, no weight of hard negatives.

    Args:
        positives: source of a sentence's positive. pairs: the column `positive`, which the shards must have. dropout:
            the sentence itself in a second pass under other dropout, whatever the shards have. auto: pairs where the
            shards have them, else dropout.
        hard_negative_weight: added to the logit of a sentence and its own negative. With a number, the shards must have
            the columns `positive` and `negative`; null: as 0, where the shards have negatives.
        max_tokens: what texts are cut to, special tokens among them; 0: what the encoder takes.
    """

    positives: str = "auto"
    hard_negative_weight: float | None = None
    max_tokens: int = 0

    def check(self) -> None:
        super().check()
        if self.positives not in POSITIVES:
            raise ValueError(f"positives {not_one_of(self.positives, POSITIVES)}")
        if not abs(self.hard_negative_weight or 0.0) < float("inf"):
            raise ValueError(f"hard_negative_weight {self.hard_negative_weight} must be a number")
        if self.positives == "dropout" and self.hard_negative_weight is not None:
            raise ValueError(
                f"hard_negative_weight {self.hard_negative_weight:g} has no effect with positives: dropout: set null"
            )
        if self.max_tokens < 0:
            raise ValueError(f"max_tokens {self.max_tokens} must be positive, or 0 for what the encoder takes")

    def needs(self) -> dict[str, str]:
        if self.hard_negative_weight is not None:
            return dict.fromkeys(("positive", "negative"), f"hard_negative_weight {self.hard_negative_weight:g}")
        return {"positive": "positives: pairs"} if self.positives == "pairs" else {}


def build(config: Config, setting: Setting, earlier: Sequence[Objective]) -> "SimCSE":
    paired = [name for name in setting.texts[1:] if config.positives != "dropout"]
    if 0 < config.max_tokens <= setting.special.count:
        raise ValueError(
            f"objectives.{setting.name}: max_tokens {config.max_tokens} leaves no room for text beside the "
            f"{setting.special.count} special tokens: raise it, or take 0 for what the encoder takes"
        )
    return SimCSE(config, setting, ["tokens", *paired])


class SimCSE(Objective):
    """InfoNCE between anchors and positives, in one direction (SimCSE Eqs. 4 and 5).

    Blocks, N sequences each: `tokens`, `positive`, and `negative` where the shards have it; of sentences without pairs
    `positive` is `tokens` again.
    """

    contrasts = True
    min_examples = 2

    def __init__(self, config: Config, setting: Setting, columns: Sequence[str]) -> None:
        super().__init__()
        self.config, self.setting, self.read = config, setting, tuple(columns)
        self.blocks = self.read if len(self.read) > 1 else ("tokens", "positive")
        longest = config.max_tokens - setting.special.count if config.max_tokens else setting.capacity
        self.capacity = min(longest, setting.capacity)
        self.head: nn.Module = training_head(config, setting)

    @property
    def columns(self) -> Sequence[str]:
        return self.read

    def _column(self, block: str) -> str:
        return block if block in self.read else "tokens"

    def workload(self) -> Workload:
        moments = [self.block_moments(block) for block in self.blocks]
        # The texts of a row are long or short together at most: the budget's bound.
        variance = sum(variance**0.5 for _, variance in moments) ** 2
        return Workload(len(self.blocks), sum(mean for mean, _ in moments), variance, 0, self.capacity)

    @property
    def paired(self) -> bool:
        """True where positives come from the shards; False where they are the sentences again."""
        return "positive" in self.read

    def notes(self, epochs: float) -> list[str]:
        return [] if self.paired else same_passes(self.setting)

    def chance(self, examples: int) -> float:
        hard = examples - 1 + math.exp(self.config.hard_negative_weight or 0.0) if "negative" in self.blocks else 0.0
        return math.log(examples + hard)

    def unjudged(self) -> str:
        return "" if self.paired else EQUAL_PASSES

    def block_moments(self, block: str) -> tuple[float, float]:
        if block not in self.blocks:
            return super().block_moments(block)
        return self.setting.length_moments(self._column(block), self.capacity)

    def request(self, batch: Batch) -> Request:
        keys = self.setting.keys(batch.epochs, batch.ids, Purpose.SEQUENCE)
        sequences = {}
        for number, block in enumerate(self.blocks):
            lists = batch.lists(self._column(block))
            lengths = lists.lengths.clamp(max=self.capacity)
            slices = TokenSlices(lists.values, lists.offsets[:-1], lengths)
            sequences[block] = Sequences(slices, keyed.mix(keys, number))
        return Request(sequences)

    def loss(self, encoded: Encoded, context: None) -> tuple[Tensor, Metrics]:
        pooled = (encoded.pooled(block) for block in self.blocks)
        anchors, positives, *rest = projected(self.head, *pooled)
        negatives = rest[0] if rest else None
        loss = info_nce(anchors, positives, self.config.temperature, negatives, self.config.hard_negative_weight or 0.0)
        return loss, sphere_metrics(encoded, anchors, positives)
