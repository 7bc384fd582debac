"""DeCLUTR's contrastive objective: anchors against the mean of their positives, all other pairs as negatives.

A document's A anchors are separate rows, so its other anchors are hard negatives (section 3.1).
"""

import dataclasses

import torch
from torch import Tensor

from train import keyed
from train.data.stream import Batch
from train.losses import nt_xent
from train.model.packing import Sequences
from train.objectives import Encoded, Load, Objective, Setting, sphere_metrics
from train.span_sampler import SpanConfig, Spans, sample


@dataclasses.dataclass
class Config:
    """DeCLUTR's numbers (section 4.1)."""

    weight: float = 1.0
    temperature: float = 0.05
    spans: SpanConfig = dataclasses.field(default_factory=SpanConfig)

    @property
    def kind(self) -> str:
        return "documents"

    def check(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature {self.temperature} must be positive")
        self.spans.check()


def build(config: Config, setting: Setting, earlier: list[Objective]) -> "SpanContrast":
    return SpanContrast(config, setting)


def check_capacity(spans: SpanConfig, capacity: int) -> None:
    """Raises ValueError if even the shortest span is longer than the encoder takes."""
    if spans.min_span > capacity:
        raise ValueError(f"spans.min_span {spans.min_span} is more than the {capacity} tokens that the encoder takes")


def draw(batch: Batch, spans: SpanConfig, setting: Setting) -> tuple[Spans, Tensor, Tensor]:
    """(spans, each document's first token (B,), each document's randomness key (B,)) of a batch."""
    keys = keyed.mix(setting.seed, batch.epochs, batch.ids)
    return sample(batch.tokens.lengths, keys, spans, setting.capacity), batch.tokens.offsets[:-1], keys


class SpanContrast(Objective):
    """NT-Xent between anchors and the mean of their positives. Sequences: B A anchors, then B A P positives."""

    def __init__(self, config: Config, setting: Setting) -> None:
        super().__init__()
        self.config, self.setting = config, setting
        check_capacity(config.spans, setting.capacity)

    def load(self) -> Load:
        spans = self.config.spans
        mean, variance = spans.length_moments()
        return Load(spans.num_anchors * (1 + spans.num_positives), mean, variance, spans.min_span, spans.max_span)

    def sequences(self, batch: Batch) -> Sequences:
        spans, begin, keys = draw(batch, self.config.spans, self.setting)
        starts = [begin[:, None] + spans.anchor_start, begin[:, None, None] + spans.positive_start]
        lengths = [spans.anchor_length, spans.positive_length]
        self.num_anchors = spans.anchor_start.numel()
        per_document = sum(part[0].numel() for part in lengths)
        numbered = keyed.mix(keys[:, None], 5, torch.arange(per_document, device=keys.device))
        split = self.config.spans.num_anchors
        return Sequences(
            tokens=batch.tokens.values.long(),
            starts=torch.cat([part.flatten() for part in starts]),
            lengths=torch.cat([part.flatten() for part in lengths]),
            keys=torch.cat([numbered[:, :split].flatten(), numbered[:, split:].flatten()]),
        )

    def loss(self, encoded: Encoded) -> Tensor:
        anchors = encoded.pooled[: self.num_anchors]
        positives = encoded.pooled[self.num_anchors :].view(self.num_anchors, -1, anchors.shape[1]).mean(1)
        self.metrics = sphere_metrics(anchors, positives)
        return nt_xent(anchors, positives, self.config.temperature)
