"""SimCSE (Gao et al. 2021): pair a sentence with itself under different dropout, or with a sentence that it entails.

    sentences   tokens | the same tokens under different dropout      -> InfoNCE with in-batch negatives
    triplets    tokens | positive | hard negatives, if there are any  -> InfoNCE with in-batch and hard negatives

Inputs: text shards with the column `tokens` (`clearspan sentences`, `pairs` or `triplets`). The columns `positive`,
`positive_1`, ... and `negative`, `negative_1`, ... are optional. If a row has several positives, each step draws one of
them. If it has several hard negatives, each step draws at most `negatives` of them. Missing hard negatives are masked.

Requires: dropout in the encoder if sentences are paired with themselves, because the two passes are equal without it.

Related: the loss is `train.model.losses.info_nce`, in one direction, from `tokens` to the positives. The objective
`spans` contrasts spans of long documents in both directions. With `training.gradient_caching`, all examples of a step
are contrasted, not only the examples of a micro-batch.

Example, unsupervised SimCSE of BERT-base:

    clearspan train --recipe simcse-unsup-bert-base model.path=BERT data.text.path=SHARDS output=RUN

SimCSE's head is a linear layer and tanh. Supervised SimCSE keeps it at inference, so there it belongs to the model,
with `model.head: tanh`. Unsupervised SimCSE uses it only for training, so there it belongs to this objective, with
`head: tanh`, and is not exported.
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, Self

import torch
from torch import Tensor

from clearspan.shards.schema import columns_named, numbered
from clearspan.train.collectives import gather_labels
from clearspan.train.config.optimizer import Finite
from clearspan.train.config.options import Count
from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.data.several import drawn
from clearspan.train.draws import Purpose
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
from clearspan.train.step.example_lengths import length_moments

DRAWN = {"positive": Purpose.POSITIVE, "negative": Purpose.NEGATIVE}
OF_ROW = "row/"
"""The prefix of batch columns that hold all positives of a row, also the positives that a step does not draw. They are
used only to detect false negatives."""


@dataclasses.dataclass
class SimcseConfig(ContrastiveConfig):
    """The options of SimCSE's objective.

    The defaults are the paper's (section 4 and appendix A).

    Args:
        positives: the source of a sentence's positive. pairs: the column `positive`, which the shards must have; if
            there are several (`positive_1`, ...), each step draws one. dropout: the sentence itself, in a second pass
            under different dropout; other columns are ignored. auto: pairs if the shards have them, else dropout.
        negatives: the maximum number of hard negatives of a row that a step uses; 0 to ignore hard negatives. If the
            row has more, each epoch draws some of them. A hard negative costs about as much as the positive.
        hard_negative_weight: the number that is added to the logit between a sentence and its hard negatives. It is the
            logarithm of their weight in Eq. 5. Raise it to push hard negatives away more than in-batch negatives. If it
            is a number, the shards must have the columns `positive` and `negative`; null adds nothing, and the shards
            need no negatives.
        max_tokens: the length to which texts are truncated, in tokens, including special tokens; 0 for the encoder's
            maximum. Lower it for speed if texts are long.
    """

    positives: Literal["auto", "dropout", "pairs"] = "auto"
    negatives: Count = 1
    hard_negative_weight: Finite | None = None
    max_tokens: Count = 0

    def check(self) -> None:
        super().check()
        if self.hard_negative_weight is not None:
            without = {"positives: dropout": self.positives == "dropout", "negatives: 0": not self.negatives}
            if reason := next((option for option in without if without[option]), ""):
                raise ValueError(
                    f"hard_negative_weight {self.hard_negative_weight:g} has no effect with {reason}: set it to null"
                )
        if self.positives == "dropout" and self.negatives > 1:
            raise ValueError(f"negatives {self.negatives} has no effect with positives: dropout: leave it out")

    def needs(self) -> dict[str, str]:
        if self.hard_negative_weight is not None:
            return dict.fromkeys(("positive", "negative"), f"hard_negative_weight {self.hard_negative_weight:g}")
        return {"positive": "positives: pairs"} if self.positives == "pairs" else {}


@dataclasses.dataclass(frozen=True)
class Context:
    """Information about the n rows of a batch that the loss needs in addition to the vectors.

    A row has one id, one sentence, p positives and k hard negatives, some of which may be absent.

    Attributes:
        keys: the values by which false negatives are detected, (n, 2 + p + k) int64: the id, and hashes of the
            sentence, of each positive and of each hard negative. None if the option `mask_equal` is false.
        absent: 1 for each hard negative that is absent, otherwise 0, (n, k) int64.
    """

    keys: Tensor | None
    absent: Tensor


class SimCSE(ContrastiveObjective):
    """InfoNCE that distinguishes the positive of each sentence from negatives (SimCSE Eqs. 4 and 5).

    The objective encodes the blocks `tokens`, `positive` and, if it uses hard negatives, `negative`, `negative_1`, ...
    Each block has one sequence for each row of the micro-batch. If sentences are paired with themselves, the block
    `positive` has the same sequences as `tokens`.

    Args:
        config: the options.
        setting: the encoder and the objective's dataset.
        columns: the columns of the shards that are read; the first is `tokens`.
    """

    config: SimcseConfig
    masks_equal = True

    def __init__(self, config: SimcseConfig, setting: Setting, columns: Sequence[str]) -> None:
        super().__init__(config, setting)
        self.read = tuple(columns)
        self.sources = {sort: columns_named(sort, self.read) for sort in DRAWN}
        self.paired = bool(self.sources["positive"])
        self.negatives = numbered("negative", min(config.negatives, len(self.sources["negative"])))
        self.blocks = ("tokens", "positive", *self.negatives)
        longest = config.max_tokens - setting.special.count if config.max_tokens else setting.capacity
        self.capacity = min(longest, setting.capacity)

    @classmethod
    def build(cls, config: SimcseConfig, setting: Setting, earlier: Sequence[Objective]) -> Self:
        if 0 < config.max_tokens <= setting.special.count:
            raise ValueError(
                f"max_tokens {config.max_tokens} leaves no room for text beside the "
                f"{setting.special.count} special tokens: raise it, or set 0 for the encoder's maximum"
            )
        names = setting.sample.schema.names if setting.sample is not None else []
        sorts: list[str] = []
        if config.positives != "dropout":
            sorts = ["positive", "negative"] if config.negatives else ["positive"]
        return cls(config, setting, ["tokens", *(name for sort in sorts for name in columns_named(sort, names))])

    @property
    def columns(self) -> Sequence[str]:
        return self.read

    def _column(self, block: str) -> str:
        return "tokens" if block == "positive" and not self.paired else block

    def workload(self) -> Workload:
        moments = [self.block_moments(block) for block in self.blocks]
        # The upper bound of the variance: the texts of a row are all long or all short together.
        variance = sum(variance**0.5 for _, variance in moments) ** 2
        return Workload(len(self.blocks), sum(mean for mean, _ in moments), variance, 0, self.capacity)

    def notes(self, epochs: float) -> list[str]:
        if not self.paired:
            return self.same_passes()
        place = f"objectives.{self.name}"
        lengths = self.setting.dataset.manifest.lengths
        lines = []
        if 1 < self.config.negatives > len(self.sources["negative"]):
            has = len(self.sources["negative"]) or "none"
            lines.append(f"{place}: negatives {self.config.negatives}, and a row of the shards has {has}")
        if self.negatives and (lacking := lengths.get("negative", {}).get("0")):
            lines.append(f"{place}: {lacking:,} rows have no hard negative: they are told from the batch's texts alone")
        return lines

    def unjudged(self) -> str:
        return "" if self.paired else self.EQUAL_PASSES

    def block_moments(self, block: str) -> tuple[float, float]:
        if block not in self.blocks:
            return super().block_moments(block)
        column = self._column(block)
        sources = next((self.sources[sort] for sort in DRAWN if columns_named(sort, [column])), [column])
        if len(sources) <= self._num_drawn(column):
            return length_moments(self.setting, column, self.capacity)
        # A draw takes any column's text; an absent text is drawn only if the row has too few.
        moments = [length_moments(self.setting, source, self.capacity) for source in sources]
        lengths = self.setting.dataset.manifest.lengths
        rows = max(1, self.setting.dataset.num_examples)
        present = sum(1 - lengths.get(source, {}).get("0", 0) / rows for source in sources) or 1.0
        mean = sum(mean for mean, _ in moments) / present
        return mean, sum(variance + average**2 for average, variance in moments) / present - mean**2

    def _num_drawn(self, column: str) -> int:
        """Return how many texts a step takes from a row's columns in one role: sentence, positives or hard negatives.

        This is 1 for the sentence and for positives, of which each step draws one.

        Args:
            column: a column that holds texts in this role: `tokens`, or any one of `positive`, `positive_1`, ... or of
                `negative`, `negative_1`, ...
        """
        return len(self.negatives) if columns_named("negative", [column]) else 1

    def collate(self, rows: Rows) -> Columns:
        columns: Columns = {"tokens": rows.columns["tokens"]}
        for sort, purpose in DRAWN.items():
            stored = [rows.ragged(name) for name in self.sources[sort]]
            if stored:
                count = self._num_drawn(sort)
                taken = drawn(stored, self.setting.keys(rows.epoch, rows.ids, purpose), count)
                columns |= dict(zip(numbered(sort, count), taken, strict=True))
                if sort == "positive" and self.config.mask_equal and len(stored) > 1:
                    columns |= {OF_ROW + name: rows.columns[name] for name in self.sources[sort]}
        return columns

    def request(self, batch: Batch) -> Request:
        keys = self.setting.sequence_keys(batch, len(self.blocks))
        sequences = {
            block: batch.sequences(self._column(block), key, self.capacity)
            for block, key in zip(self.blocks, keys, strict=True)
        }
        absent = [(batch.lists(name).lengths == 0).long() for name in self.negatives]
        flags = torch.stack(absent, dim=1) if absent else batch.ids.new_zeros((len(batch.ids), 0))
        return Request(sequences, context=Context(self._keys(batch), flags))

    def _keys(self, batch: Batch) -> Tensor | None:
        positives = [name for name in batch.columns if name.startswith(OF_ROW)] or ["positive"] * self.paired
        names = ["tokens", *positives, *self.negatives]
        keys = self.identities(batch.ids, *(batch.lists(name).slices(self.capacity) for name in names))
        if keys is None:
            return None
        for place, name in enumerate(positives[1:], 3):
            # An absent positive gets the key of the first one. Otherwise, all absent positives would be equal texts.
            keys[:, place] = torch.where(batch.lists(name).lengths == 0, keys[:, 2], keys[:, place])
        return keys

    def joined(self, contexts: Sequence[Context]) -> Context:
        keys = [context.keys for context in contexts if context.keys is not None]
        return Context(torch.cat(keys) if keys else None, torch.cat([context.absent for context in contexts]))

    def _false_negatives(self, context: Context | None) -> Tensor | None:
        """Return the mask of false negatives for `info_nce`, (n, (1 + k) N) bool; None to mask nothing.

        It has a row for each of the n examples on this rank, and a column for each candidate. The candidates are the
        positives of the N examples on all ranks, then the first hard negative of each example, and so on up to its k-th
        hard negative. The mask is true if a candidate must not be a negative of an example: a positive, if its own
        example has the same id as this example, or a text in common with it; a hard negative, if it equals the sentence
        or a positive of this example, or if it is absent (an empty text).

        Args:
            context: the ids and hashes of the texts, and the absent hard negatives; None if all candidates may be
                negatives.
        """
        count = len(self.negatives)
        if context is None or (context.keys is None and not count):
            return None
        keys, absent = context.keys, context.absent
        missing = gather_labels(absent).bool()
        if keys is None:
            masks = [missing.new_zeros(len(absent), len(missing))]
            return torch.cat([*masks, *(column.expand(len(absent), -1) for column in missing.T)], dim=1)
        example_keys = keys[:, : keys.shape[1] - count]
        masks = [self.share_a_key(example_keys)]
        for place, column in enumerate(missing.T, example_keys.shape[1]):
            masks.append(self.share_a_key(example_keys[:, 1:], keys[:, place : place + 1]) | column)
        return torch.cat(masks, dim=1)

    def loss(self, encoded: Encoded, context: Context | None) -> tuple[Tensor, Metrics]:
        anchors, positives, *negatives = self.projected(*(encoded.pooled(block) for block in self.blocks))
        weight = self.config.hard_negative_weight or 0.0
        loss = info_nce(anchors, positives, self.config.temperature, negatives, weight, self._false_negatives(context))
        return loss, self.sphere_metrics(encoded, anchors, positives)
