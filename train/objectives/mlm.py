"""Masked language modeling (Devlin et al. 2019), on the sequences of another objective or on its own sequences.

    input: anchor           mask the anchors of the objective `spans`, so that one forward pass serves both losses
                            (DeCLUTR)
    input: OBJECTIVE/BLOCK  mask a block of sequences that another objective encodes
    input: separate         draw and encode separate spans, if there is no contrastive objective, or if its anchors
                            should not be masked
    input: sentence         encode whole examples, with all texts of a triplet, as in SimCSE's code; each text is
                            encoded `copies` times, under different masks

The masked-LM head runs only on masked positions. The loss is the mean cross-entropy over all masked tokens of a
micro-batch, on all ranks. Gradient accumulation takes the mean over micro-batches.

Inputs: text shards of any kind.

Requires: a tokenizer with a mask token. With `anchor` and OBJECTIVE/BLOCK, the other objective must read the same data
and precede this objective in the recipe.

Related: the loss is `train.model.chunked_cross_entropy.masked_lm`. SimCSE and CLEAR combine it with their contrastive
loss through `objectives.mlm.weight`.

Example, masked-LM training on DeCLUTR's spans, with no other objective:

    clearspan train --recipe mlm-only model.path=ROBERTA data.text.path=SHARDS output=RUN
"""

import dataclasses
import itertools
import math
from collections.abc import Sequence
from typing import Annotated, Self

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from clearspan.train import draws
from clearspan.train.config.options import not_one_of
from clearspan.train.data.batch import Batch
from clearspan.train.data.span_sampler import SpanConfig
from clearspan.train.draws import Purpose
from clearspan.train.model.chunked_cross_entropy import masked_lm
from clearspan.train.model.masking import Masking
from clearspan.train.model.packing import Sequences, TokenSlices
from clearspan.train.objectives import (
    Encoded,
    Metrics,
    Objective,
    ObjectiveConfig,
    Request,
    Setting,
    TokenObjective,
    Workload,
)
from clearspan.train.objectives.spans import SpanContrast, check_capacity, draw
from clearspan.train.step.example_lengths import length_moments, shrunk_moments

INPUTS = ("anchor", "separate", "sentence")
OWN = "sequences"
"""The name of the block if this objective encodes its own sequences."""


@dataclasses.dataclass
class MlmConfig(ObjectiveConfig):
    """The options of masked language modeling.

    The defaults are BERT's. Of the chosen tokens, 80 % are replaced by the mask token and 10 % by a random token, and
    10 % are unchanged.

    Args:
        input: the sequences to mask. anchor: the anchors of the objective of type `spans` on the same data. separate:
            separate spans, which `sampler` describes. sentence: whole examples. OBJECTIVE/BLOCK: a block of another
            objective.
        probability: the probability that a token is chosen.
        sampler: the options of the span sampler (`objectives.NAME.sampler`) with `input: separate`; null with any other
            input.
        copies: the number of times that each text is encoded with `input: sentence`, each time under a different mask.
    """

    input: str = "anchor"
    probability: Annotated[float, Gt(0), Lt(1)] = 0.15
    sampler: SpanConfig | None = None
    copies: Annotated[int, Ge(1)] = 1

    def check(self) -> None:
        if self.input not in INPUTS and "/" not in self.input:
            raise ValueError(f"input {not_one_of(self.input, (*INPUTS, 'OBJECTIVE/BLOCK'))}")
        if self.copies > 1 and self.input != "sentence":
            raise ValueError(f"copies {self.copies} has no effect without input: sentence: set it to 1")
        if (self.input == "separate") != (self.sampler is not None):
            raise ValueError("sampler is required with input: separate, and has no effect otherwise")
        if self.sampler is not None:
            self.sampler.check()


class MaskedLM(TokenObjective):
    """Cross-entropy at the masked positions of a block of sequences.

    Args:
        config: the options.
        setting: the encoder and the objective's dataset.
        block: `sequences` if this objective encodes the block, or `OBJECTIVE/BLOCK` if another objective does.
        moments: the mean and the variance of the number of tokens that an example has in the block of the other
            objective; None if this objective encodes the block.
    """

    config: MlmConfig

    def __init__(
        self, config: MlmConfig, setting: Setting, block: str, moments: tuple[float, float] | None = None
    ) -> None:
        super().__init__(config, setting)
        self.block = block
        self.uses = () if block == OWN else (block.split("/")[0],)
        self.sampler: SpanConfig | None = None
        if config.sampler is not None:
            self.sampler = dataclasses.replace(config.sampler, num_positives=1)
            check_capacity(self.sampler, setting)
        self.texts = setting.texts if config.input == "sentence" else ("tokens",)
        self.moments = moments or self._own_moments()

    @classmethod
    def build(cls, config: MlmConfig, setting: Setting, earlier: Sequence[Objective]) -> Self:
        block = config.input
        if setting.special.mask is None:
            raise ValueError("the tokenizer has no mask token; add one and build the shards again")
        if block in ("separate", "sentence"):
            return cls(config, setting, OWN)
        if block == "anchor":
            spans = [o.name for o in earlier if isinstance(o, SpanContrast) and o.data == setting.data]
            if not spans:
                raise ValueError(
                    f"input: anchor needs an objective of type spans on data.{setting.data} before "
                    "it; or set input: separate, or sentence for whole examples"
                )
            if len(spans) > 1:
                raise ValueError(f"input: anchor could be of {' or '.join(spans)}: set input: {spans[0]}/anchors")
            block = f"{spans[0]}/anchors"
        other, block_of_other = block.split("/", 1)
        source = next((o for o in earlier if o.name == other and o.data == setting.data), None)
        if source is None:
            raise ValueError(f"input {block}: no objective {other!r} on the same dataset before this one")
        if any(isinstance(o, MaskedLM) and o.block == block for o in earlier):
            raise ValueError(f"input {block}: another objective masks that block already")
        return cls(config, setting, block, source.block_moments(block_of_other))

    def _own_moments(self) -> tuple[float, float]:
        """Return the mean and variance of the number of tokens per example in the block that this objective encodes."""
        if self.sampler is not None:
            return shrunk_moments(self.setting, self.sampler.anchor_moments(), self.sampler.required_tokens)
        moments = [length_moments(self.setting, text) for text in self.texts]
        # The upper bound: a row's texts are all long or all short together, and standard deviations add up.
        deviation = sum(variance**0.5 for _, variance in moments)
        return self.config.copies * sum(mean for mean, _ in moments), (self.config.copies * deviation) ** 2

    @property
    def columns(self) -> Sequence[str]:
        return self.texts

    def workload(self) -> Workload:
        if self.block != OWN:
            return Workload()
        if self.sampler is None:
            return Workload(self.config.copies * len(self.texts), *self.moments, 0, self.setting.capacity)
        return Workload(self.sampler.num_anchors, *self.moments, self.sampler.min_span, self.sampler.max_span)

    def min_tokens(self, shrinks: bool) -> int:
        if self.sampler is None:
            return 0
        return self.sampler.min_tokens(shrinks) + self.setting.prompt_tokens.get("tokens", 0)

    def request(self, batch: Batch) -> Request:
        assert self.setting.special.mask is not None
        slots = self.num_slots(len(batch.ids))
        masking = Masking(self.config.probability, self.setting.special.mask, self.setting.vocab_size, slots)
        if self.block != OWN:
            return Request(masking={self.block: masking})
        sequences = self._sentences(batch) if self.sampler is None else self._anchors(batch, self.sampler)
        return Request({OWN: sequences}, {OWN: masking})

    def _anchors(self, batch: Batch, sampler: SpanConfig) -> Sequences:
        spans, begin, keys = draw(batch, sampler, self.setting)
        starts = (begin[:, None] + spans.anchor_start).flatten()
        slices = TokenSlices(batch.lists("tokens").values, starts, spans.anchor_length.flatten())
        anchors = torch.arange(sampler.num_anchors, device=keys.device)
        return Sequences(slices, draws.mix(keys[:, None], Purpose.SEQUENCE, anchors).flatten())

    def _sentences(self, batch: Batch) -> Sequences:
        """Return the sequences to encode with `input: sentence`: all texts of the batch, `copies` times each.

        Texts are truncated to the encoder's maximum length. They are ordered by column, then by row; the copies of a
        text are adjacent.
        """
        columns = [batch.lists(text) for text in self.texts]
        keys = self.setting.keys(batch.epochs, batch.ids, Purpose.SEQUENCE)
        numbers = torch.arange(self.config.copies * len(columns), device=keys.device)
        before = itertools.accumulate((len(column.values) for column in columns), initial=0)
        starts = [column.offsets[:-1] + offset for column, offset in zip(columns, before, strict=False)]
        lengths = torch.cat([column.lengths for column in columns]).clamp(max=self.setting.capacity)
        slices = TokenSlices(
            torch.cat([column.values for column in columns]),
            torch.cat(starts).repeat_interleave(self.config.copies),
            lengths.repeat_interleave(self.config.copies),
        )
        mixed = draws.mix(keys[:, None], numbers).view(len(keys), len(columns), -1)
        return Sequences(slices, mixed.transpose(0, 1).flatten())

    def num_slots(self, num_examples: int) -> int:
        """Return the number of masked positions for which a batch of fixed shape has room.

        It is the expected number of masked tokens in `num_examples` examples, those of one rank's micro-batch, plus
        four standard deviations.
        """
        mean, variance = (moment * num_examples for moment in self.moments)
        p = self.config.probability
        return math.ceil(p * mean + 4 * math.sqrt(p * (1 - p) * mean + p * p * variance))

    def loss(self, encoded: Encoded, context: None) -> tuple[Tensor, Metrics]:
        states, labels = encoded.masked(self.block)
        encoder, measured = encoded.encoder, encoded.measured
        loss, accuracy = masked_lm(encoder.mlm_states(states), encoder.mlm_decoder, labels, measured)
        return loss, {"accuracy": accuracy} if measured else {}
