"""DeCLUTR's contrastive objective (Giorgi et al. 2021, section 3): pair each anchor with the mean of its positives.

Anchors and positives are spans of a document. Each document has A anchors, and each anchor has P positives. An anchor's
negatives are all other anchors and all other means of positives in the batch. Negatives from the anchor's own document
are hard negatives (section 3.2).

Inputs: text shards with the column `tokens` (`clearspan documents`). With the option `column: positive`, shards of
`clearspan pairs`. No labels are needed.

Requires: documents that are long enough for the spans, or `data.NAME.short_documents: skip` or `shrink`.

Related: the loss is `train.model.losses.nt_xent`. The objective `mlm` with `input: anchor` masks the anchors of this
objective, so that one forward pass serves both losses.

Example, DeCLUTR-base:

    clearspan train --recipe declutr-base model.path=ROBERTA data.text.path=SHARDS output=RUN
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from clearspan.train import draws
from clearspan.train.data.batch import Batch
from clearspan.train.data.span_sampler import SpanConfig, Spans, sample
from clearspan.train.draws import Purpose
from clearspan.train.model.losses import gathered_index
from clearspan.train.model.memory_bank import Memory
from clearspan.train.model.packing import Sequences, TokenSlices
from clearspan.train.objectives import (
    ContrastiveObjective,
    Encoded,
    Metrics,
    NTXentConfig,
    Request,
    Setting,
    Workload,
)
from clearspan.train.step.example_lengths import shrunk_moments


@dataclasses.dataclass
class SpansConfig(NTXentConfig):
    """The options of DeCLUTR's objective.

    The defaults are the paper's (sections 3.2 and 4.1). The first version of the paper (arXiv 2006.03659v1, Figure S1)
    also tries a head without biases and a memory of at most 512 vectors.

    Args:
        column: the column of the shards from which spans are drawn: tokens; or positive, e.g. to draw them from the
            second texts of pairs whose first texts are titles.
        sampler: the options of the span sampler, i.e. the numbers and lengths of spans (`objectives.NAME.sampler`).
    """

    column: Literal["tokens", "positive"] = "tokens"
    head_bias: bool = False
    sampler: SpanConfig = dataclasses.field(default_factory=SpanConfig)

    def check(self) -> None:
        super().check()
        self.sampler.check()

    def needs(self) -> dict[str, str]:
        return {} if self.column == "tokens" else {self.column: f"column: {self.column}"}


def check_capacity(sampler: SpanConfig, setting: Setting) -> None:
    """Check that the encoder accepts the shortest span that the sampler draws.

    Raises:
        ValueError: the shortest span is longer than the encoder's maximum.
    """
    if sampler.min_span > setting.capacity:
        raise ValueError(
            f"sampler.min_span {sampler.min_span} is more than the {setting.capacity} tokens that the encoder takes"
        )


def draw(batch: Batch, sampler: SpanConfig, setting: Setting, column: str = "tokens") -> tuple[Spans, Tensor, Tensor]:
    """Draw the spans of a batch of B documents.

    Args:
        batch: the batch.
        sampler: the numbers and lengths of the spans.
        setting: the objective's dataset and random keys.
        column: the column that holds the tokens of the documents.

    Returns:
        (spans, begin, keys):
            spans: the spans. Their positions are counted from the first token after the document's prompt.
            begin: for each document, the index of this token in the concatenated tokens of the column, (B,) int64.
            keys: the random key of each document, (B,) int64.
    """
    keys = setting.keys(batch.epochs, batch.ids, Purpose.SPANS)
    tokens = batch.lists(column)
    before = setting.prompt_tokens.get(column, 0)
    return sample(tokens.lengths - before, keys, sampler, setting.capacity), tokens.offsets[:-1] + before, keys


class SpanContrast(ContrastiveObjective):
    """NT-Xent between each anchor and the mean of its positives.

    The objective encodes two blocks for B documents with A anchors each and P positives for each anchor: `anchors`,
    with B x A sequences, and `positives`, with B x A x P sequences. If there is a head, it projects each span before
    the mean is taken, as in the published code.
    """

    config: SpansConfig
    masks_equal = True

    def __init__(self, config: SpansConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        check_capacity(config.sampler, setting)
        self.memory = Memory(config.memory, self.head_dim)
        # A single anchor has no negative: its loss would be exactly 0.
        self.min_examples = -(-2 // config.sampler.num_anchors)
        self.measured = config.column

    @property
    def columns(self) -> Sequence[str]:
        return (self.config.column,)

    def workload(self) -> Workload:
        sampler = self.config.sampler
        mean, variance = shrunk_moments(
            self.setting, sampler.length_moments(), sampler.required_tokens, self.config.column
        )
        sequences = sampler.num_anchors * (1 + sampler.num_positives)
        return Workload(sequences, mean, variance, sampler.min_span, sampler.max_span)

    def block_moments(self, block: str) -> tuple[float, float]:
        if block not in ("anchors", "positives"):
            return super().block_moments(block)
        sampler = self.config.sampler
        moments = sampler.positive_moments() if block == "positives" else sampler.anchor_moments()
        return shrunk_moments(self.setting, moments, sampler.required_tokens, self.config.column)

    def min_tokens(self, shrinks: bool) -> int:
        return self.config.sampler.min_tokens(shrinks) + self.setting.prompt_tokens.get(self.config.column, 0)

    def request(self, batch: Batch) -> Request:
        spans, begin, keys = draw(batch, self.config.sampler, self.setting, self.config.column)
        split = self.config.sampler.num_anchors
        per_document = split * (1 + self.config.sampler.num_positives)
        numbered = draws.mix(keys[:, None], Purpose.SEQUENCE, torch.arange(per_document, device=keys.device))
        tokens = batch.lists(self.config.column).values
        anchors = TokenSlices(tokens, (begin[:, None] + spans.anchor_start).flatten(), spans.anchor_length.flatten())
        positive_start = (begin[:, None, None] + spans.positive_start).flatten()
        positives = TokenSlices(tokens, positive_start, spans.positive_length.flatten())
        return Request(
            {
                "anchors": Sequences(anchors, numbered[:, :split].flatten()),
                "positives": Sequences(positives, numbered[:, split:].flatten()),
            },
            context=self._identities(batch, anchors, positives),
        )

    def _identities(self, batch: Batch, anchors: TokenSlices, positives: TokenSlices) -> Tensor | None:
        """Return the values by which false negatives are detected; None if the option `mask_equal` is false.

        For m anchors with P positives each, they are (m, 3 + P) int64: the id of the anchor's document, and hashes of
        the document's text, of the anchor itself, and of each of its positives.

        Args:
            batch: the documents.
            anchors: the m anchors.
            positives: the positives of the first anchor, then those of the second, and so on, m x P in all.
        """
        tokens = batch.lists(self.config.column)
        documents = self.identities(batch.ids, TokenSlices(tokens.values, tokens.offsets[:-1], tokens.lengths))
        if documents is None:
            return None
        documents = documents.repeat_interleave(self.config.sampler.num_anchors, dim=0)
        spans = [anchors.text_keys()[:, None], positives.text_keys().view(len(anchors), -1)]
        return torch.cat([documents, *spans], dim=1)

    def _false_negatives(self, keys: Tensor) -> Tensor:
        """Return the mask of false negatives for `nt_xent`, (m, M) bool.

        It is true at [i, j] if anchor i of the m anchors on this rank and anchor j of the M anchors on all ranks must
        not be negatives of each other. This is so if anchor i or one of its positives has the same text as anchor j or
        one of its positives, or if the two anchors are from two documents with the same id or text.

        Args:
            keys: the result of `_identities` on this rank.
        """
        same = self.share_a_key(keys[:, :2])
        document = torch.arange(same.shape[1], device=keys.device) // self.config.sampler.num_anchors
        elsewhere = document[gathered_index(keys)][:, None] != document
        return (same & elsewhere) | self.share_a_key(keys[:, 2:])

    def loss(self, encoded: Encoded, context: Tensor | None) -> tuple[Tensor, Metrics]:
        spans = encoded.pooled("anchors"), encoded.pooled("positives")
        anchors, positives = self.projected(*spans)
        same = None if context is None else self._false_negatives(context)
        loss = self.memory.nt_xent(anchors, _means(anchors, positives), self.config.temperature, same)
        return loss, self.sphere_metrics(encoded, spans[0], _means(*spans))


def _means(anchors: Tensor, positives: Tensor) -> Tensor:
    """Return the mean of the P positives of each of m anchors, (m, d), where d is the number of dimensions.

    Args:
        anchors: the vectors of the anchors, (m, d); only their shape is used.
        positives: the vectors of the first anchor's positives, then of the second's, and so on, (m x P, d).
    """
    return positives.view(len(anchors), -1, anchors.shape[1]).mean(1)
