"""DeCLUTR's step of random documents, and the same padded: what the benchmark of a step and the tests on a GPU share.

documents -> a learner, packed
          -> padded: the very spans and masks that the learner drew -> plain transformers, padded_loss
"""

import copy
import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import RobertaForMaskedLM

from benchmarks.fresh import SPECIAL, fresh_encoder, setting, texts, weighted
from clearspan.train.build import forward_size
from clearspan.train.data.batch import Batch, TokenLists
from clearspan.train.learner import Learner
from clearspan.train.losses import IGNORED, nt_xent
from clearspan.train.model.encoded import Encoded
from clearspan.train.model.packing import Budget
from clearspan.train.objectives import Metrics, Objective, mlm, spans
from clearspan.train.options import ALL
from clearspan.train.span_sampler import SpanConfig

Batches = dict[str, Batch]
"""One micro-batch, by dataset."""


class Watched(spans.SpanContrast):
    """The trainer's own, which keeps the forward that its loss was of."""

    def loss(self, encoded: Encoded, context: None) -> tuple[Tensor, Metrics]:
        self.seen = encoded.forward
        return super().loss(encoded, context)


def build(layers: int, hidden: int, dropout: float, pairs: bool) -> Learner:
    """DeCLUTR's objectives over a fresh encoder, or its contrast of pairs alone."""
    encoder = fresh_encoder(layers, hidden, dropout)
    sampler, masked = SpanConfig(num_positives=1 if pairs else 2), setting(encoder, "mlm", "documents")
    contrast = Watched(spans.Config(sampler=sampler), setting(encoder, "spans", "documents"))
    objectives: list[Objective] = [weighted(contrast)]
    if pairs:
        encoder.drop_mlm_head()
    else:
        moments = contrast.block_moments("anchors")
        objectives.append(weighted(mlm.MaskedLM(mlm.Config(), masked, "spans/anchors", moments)))
    return Learner(encoder, objectives, SPECIAL)


def budget(learner: Learner, count: int) -> Budget:
    """The fixed shape of a forward of so many documents."""
    capacity = learner.encoder.max_tokens - SPECIAL.count
    found = forward_size(learner.of_turn(ALL), {"documents": count}, SPECIAL, capacity, shrinks=False).budget
    assert found is not None
    return found


def documents(count: int, number: int = 0) -> Batches:
    """A micro-batch of random documents, on the host: another for each number."""
    generator = np.random.default_rng([1, number])
    tokens = texts(generator.integers(2048, 4096, count), generator)
    numbers = torch.arange(count) + number * count
    columns: dict[str, TokenLists | Tensor] = {"spans/tokens": tokens, "mlm/tokens": tokens}
    return {"documents": Batch(columns, numbers, torch.zeros_like(numbers))}


def moved(batches: Batches, device: torch.device) -> Batches:
    return {name: batch.to(device) for name, batch in batches.items()}


@dataclasses.dataclass
class Padded:
    """What a packed forward was given, padded: ids and attention mask of its anchors and of its positives, and the
    anchors' labels, -100 where nothing is masked. `tokens` counts the real ones, of `sequences`, and `rows` those with
    padding.
    """

    anchors: dict[str, Tensor]
    positives: dict[str, Tensor]
    labels: Tensor
    tokens: int
    sequences: int
    rows: int


@torch.no_grad()
def padded(learner: Learner, batches: Batches) -> Padded:
    """Of a learner without a budget, so that the host knows each length."""
    learner(batches)
    seen = learner.objectives[0].seen
    packed, labels = seen.packed, torch.full_like(seen.packed.ids, IGNORED)
    for masked in seen.masked.values():
        labels[masked.index] = masked.labels

    def block(name: str, values: Tensor, fill: int) -> Tensor:
        parts = values.split(packed.lengths)[seen.blocks[f"spans/{name}"]]
        return nn.utils.rnn.pad_sequence(list(parts), True, fill)

    made = {}
    for name in ("anchors", "positives"):
        mask = block(name, torch.ones_like(packed.ids), 0)
        made[name] = {"input_ids": block(name, packed.ids, SPECIAL.pad), "attention_mask": mask}
    rows = sum(one["input_ids"].numel() for one in made.values())
    sizes = {"tokens": len(packed.ids), "sequences": packed.num_sequences, "rows": rows}
    return Padded(**made, labels=block("anchors", labels, IGNORED), **sizes)


def padded_loss(model: Any, given: Padded, temperature: float, whole: bool = False) -> Tensor:
    """DeCLUTR's, of transformers' model: two forwards, the head on all positions of the anchors; with `whole` on all of
    the positives too, which its published code does, and does not use.
    """

    def mean(states: Tensor, mask: Tensor) -> Tensor:
        return (states.float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    found = model(**given.anchors, labels=given.labels, output_hidden_states=True)
    anchors = mean(found.hidden_states[-1], given.anchors["attention_mask"])
    if whole:
        states = model(**given.positives, output_hidden_states=True).hidden_states[-1]
    else:
        states = model.base_model(**given.positives).last_hidden_state
    positives = mean(states, given.positives["attention_mask"]).view(len(anchors), -1, anchors.shape[1]).mean(1)
    return found.loss + nt_xent(anchors, positives, temperature)


def plain(learner: Learner) -> Any:
    """transformers' own model, as it makes it, with the learner's weights."""
    ours = learner.encoder.model
    whole = RobertaForMaskedLM._from_config(copy.deepcopy(ours.config), attn_implementation="sdpa")
    model = whole if isinstance(ours, RobertaForMaskedLM) else whole.base_model
    model.load_state_dict(ours.state_dict())
    return model.to(ours.device)
