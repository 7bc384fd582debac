"""Masked language modelling (Devlin et al. 2019), on DeCLUTR's anchors or on sequences of its own.

`input: anchor` masks the contrastive anchors themselves, so one forward serves both losses (DeCLUTR's code);
`separate` encodes its own copies of the anchors that its span settings draw, for runs without a contrastive objective
or with unmasked anchors; `sentence` takes whole sentences, each `copies` times under masks of its own. The head runs on
masked positions only.

The loss is the mean over the masked tokens of one forward, all ranks and copies together; gradient accumulation takes
the mean of its forwards' means.
"""

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from train import keyed
from train.data.stream import Batch
from train.losses import IGNORED, masked_lm
from train.model.packing import Packed, Sequences
from train.objectives import Encoded, Load, Objective, Setting
from train.objectives.spans import SpanContrast, check_capacity, draw
from train.span_sampler import SpanConfig

INPUTS = ("anchor", "separate", "sentence")


@dataclasses.dataclass
class Config:
    """15 % of tokens; of those 80 % become the mask, 10 % a random token, 10 % stay.

    `spans` is for `separate` only, `copies` for `sentence`.
    """

    weight: float = 1.0
    input: str = "anchor"
    probability: float = 0.15
    spans: SpanConfig | None = None
    copies: int = 1

    @property
    def kind(self) -> str:
        return "sentences" if self.input == "sentence" else "documents"

    def check(self) -> None:
        if self.input not in INPUTS:
            raise ValueError(f"input {self.input!r} is not one of {', '.join(INPUTS)}")
        if self.copies < 1 or (self.copies > 1 and self.input != "sentence"):
            raise ValueError(f"copies {self.copies} must be at least 1, and more than 1 only with input: sentence")
        if not 0 < self.probability < 1:
            raise ValueError(f"probability {self.probability} must lie between 0 and 1")
        if (self.input == "separate") != (self.spans is not None):
            raise ValueError("spans must be given with input: separate, and only then")
        if self.spans is not None:
            self.spans.check()


def build(config: Config, setting: Setting, earlier: list[Objective]) -> "MaskedLM":
    if setting.special.mask is None:
        raise ValueError("objectives.mlm: the tokenizer has no mask token; add one and build the shards again")
    shared = next((o for o in earlier if isinstance(o, SpanContrast)), None)
    if config.input == "anchor" and shared is None:
        raise ValueError("objectives.mlm: input: anchor needs the objective spans before it; or use input: separate")
    return MaskedLM(config, setting, shared if config.input == "anchor" else None)


class MaskedLM(Objective):
    """Cross-entropy at the masked positions. With `shared`, its sequences are that objective's anchors."""

    uses_token_head = True

    def __init__(self, config: Config, setting: Setting, shared: SpanContrast | None) -> None:
        super().__init__()
        self.config, self.setting = config, setting
        self._shared = [shared]  # in a list: no second registration of the same module
        self.spans: SpanConfig | None = None
        spans = shared.config.spans if shared is not None else config.spans
        if spans is not None:
            self.spans = dataclasses.replace(spans, num_positives=1)
            check_capacity(self.spans, setting.capacity)
        self.moments = self._moments()

    def _moments(self) -> tuple[float, float]:
        """Mean and variance of the tokens of one example that may be masked."""
        if self.spans is not None:
            return self.spans.anchor_moments()
        mean, variance = self.setting.length_moments()
        return self.config.copies * mean, self.config.copies**2 * variance

    def load(self) -> Load:
        if self.config.input == "anchor":
            return Load()
        if self.spans is None:
            return Load(self.config.copies, *self.moments, 0, self.setting.capacity)
        return Load(self.spans.num_anchors, *self.moments, self.spans.min_span, self.spans.max_span)

    def sequences(self, batch: Batch) -> Sequences | None:
        self.num_examples = len(batch.ids)
        if self.config.input == "anchor":
            return None
        if self.spans is None:
            return self._sentences(batch)
        spans, begin, keys = draw(batch, self.spans, self.setting)
        anchors = torch.arange(self.spans.num_anchors, device=keys.device)
        return Sequences(
            tokens=batch.tokens.values.long(),
            starts=(begin[:, None] + spans.anchor_start).flatten(),
            lengths=spans.anchor_length.flatten(),
            keys=keyed.mix(keys[:, None], 5, anchors).flatten(),
        )

    def _sentences(self, batch: Batch) -> Sequences:
        """Every whole sentence, cut at the encoder's capacity, its copies next to each other."""
        keys = keyed.mix(self.setting.seed, batch.epochs, batch.ids)
        copies = torch.arange(self.config.copies, device=keys.device)
        return Sequences(
            tokens=batch.tokens.values.long(),
            starts=batch.tokens.offsets[:-1].repeat_interleave(len(copies)),
            lengths=batch.tokens.lengths.clamp(max=self.setting.capacity).repeat_interleave(len(copies)),
            keys=keyed.mix(keys[:, None], 6, copies).flatten(),
        )

    def corrupt(self, packed: Packed, rows: Mapping[str, slice]) -> None:
        """Masks in place; keeps the masked positions (k,) and the ids that stood there, -100 at unused slots."""
        (shared,) = self._shared
        own = rows[self.name] if shared is None else rows[shared.name]
        last = own.stop if shared is None else own.start + shared.num_anchors
        candidate = packed.content & (packed.sequence >= own.start) & (packed.sequence < last)
        keys = packed.keys[packed.sequence.clamp(max=len(packed.keys) - 1)]
        chance, fate, replacement = keyed.uniform(keyed.mix(keys, packed.positions), 3).unbind(-1)
        masked = candidate & (chance < self.config.probability)
        if packed.lengths is not None:
            self.index = masked.nonzero()[:, 0]
            self.labels = packed.ids[self.index]
        else:
            slots = min(self.num_slots(self.num_examples), len(masked))
            self.index = masked.int().sort(descending=True, stable=True).indices[:slots]
            self.labels = torch.where(masked[self.index], packed.ids[self.index], IGNORED)
        random_ids = (replacement * self.setting.vocab_size).long()
        assert self.setting.special.mask is not None
        packed.ids = torch.where(masked & (fate < 0.8), self.setting.special.mask, packed.ids)
        packed.ids = torch.where(masked & (fate >= 0.8) & (fate < 0.9), random_ids, packed.ids)

    def num_slots(self, num_examples: int) -> int:
        """Masked positions to make room for at a fixed shape: the mean plus four standard deviations."""
        mean, variance = (moment * num_examples for moment in self.moments)
        p = self.config.probability
        return math.ceil(p * mean + 4 * math.sqrt(p * (1 - p) * mean + p * p * variance))

    def loss(self, encoded: Encoded) -> Tensor:
        logits = encoded.encoder.token_logits(encoded.hidden[self.index])
        with torch.no_grad():
            right = (logits.argmax(1) == self.labels) & (self.labels != IGNORED)
            self.metrics = {"accuracy": right.sum() / (self.labels != IGNORED).sum().clamp(min=1)}
        return masked_lm(logits, self.labels)
