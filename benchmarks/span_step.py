"""DeCLUTR's step over random documents, packed and padded: shared by the benchmark of a step and the tests on a GPU.

documents -> a learner, packed
          -> padded: the same spans and masks that the learner drew -> plain transformers, padded_loss
"""

import copy
import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import RobertaForMaskedLM

from benchmarks.synthetic import SPECIAL, random_encoder, setting, texts, weighted
from clearspan.train.config.options import ALL
from clearspan.train.data.batch import Batch, TokenLists
from clearspan.train.data.span_sampler import SpanConfig
from clearspan.train.model.chunked_cross_entropy import IGNORED
from clearspan.train.model.losses import nt_xent
from clearspan.train.model.packing import Budget
from clearspan.train.objectives import Objective, mlm, spans
from clearspan.train.start.forward_size import forward_size
from clearspan.train.step.learner import Learner

Batches = dict[str, Batch]
"""One micro-batch, by dataset."""


def build(layers: int, hidden: int, dropout: float, pairs: bool) -> Learner:
    """Return DeCLUTR's objectives over a random encoder; with `pairs`, only its contrast, with one positive each."""
    encoder = random_encoder(layers, hidden, dropout)
    sampler, masked = SpanConfig(num_positives=1 if pairs else 2), setting(encoder, "mlm", "documents")
    contrast = spans.SpanContrast(spans.SpansConfig(sampler=sampler), setting(encoder, "spans", "documents"))
    objectives: list[Objective] = [weighted(contrast)]
    if pairs:
        encoder.drop_mlm_head()
    else:
        moments = contrast.block_moments("anchors")
        objectives.append(weighted(mlm.MaskedLM(mlm.MlmConfig(), masked, "spans/anchors", moments)))
    return Learner(encoder, objectives, SPECIAL)


def budget(learner: Learner, count: int) -> Budget:
    """Return the fixed shape of a forward pass over this number of documents."""
    capacity = learner.encoder.max_tokens - SPECIAL.count
    shape = forward_size(learner.of_turn(ALL), {"documents": count}, SPECIAL, capacity, shrinks=False).budget
    assert shape is not None
    return shape


def documents(count: int, number: int = 0) -> Batches:
    """Return the `number`-th micro-batch of random documents, on the host."""
    generator = np.random.default_rng([1, number])
    tokens = texts(generator.integers(2048, 4096, count), generator)
    numbers = torch.arange(count) + number * count
    columns: dict[str, TokenLists | Tensor] = {"spans/tokens": tokens, "mlm/tokens": tokens}
    return {"documents": Batch(columns, numbers, torch.zeros_like(numbers))}


def moved(batches: Batches, device: torch.device) -> Batches:
    return {name: batch.to(device) for name, batch in batches.items()}


@dataclasses.dataclass
class Padded:
    """The inputs of a packed forward pass, padded.

    Attributes:
        anchors: input ids and attention mask. positives: the same.
        labels: of the anchors, -100 where nothing is masked.
        tokens: the number of real tokens. sequences: of sequences. rows: of tokens including padding.
    """

    anchors: dict[str, Tensor]
    positives: dict[str, Tensor]
    labels: Tensor
    tokens: int
    sequences: int
    rows: int


@torch.no_grad()
def padded(learner: Learner, batches: Batches) -> Padded:
    """Return the inputs of a learner's forward pass, padded.

    The learner must have no budget: the lengths must be known on the host.
    """
    prepared = learner.prepare(batches)
    packed, labels = prepared.packed, torch.full_like(prepared.packed.ids, IGNORED)
    for masked in prepared.masked.values():
        labels[masked.index] = masked.labels

    def block(name: str, values: Tensor, fill: int) -> Tensor:
        parts = values.split(packed.lengths)
        return nn.utils.rnn.pad_sequence(list(parts[prepared.blocks[f"spans/{name}"]]), True, fill)

    def inputs(name: str) -> dict[str, Tensor]:
        mask = block(name, torch.ones_like(packed.ids), 0)
        return {"input_ids": block(name, packed.ids, SPECIAL.pad), "attention_mask": mask}

    anchors, positives = inputs("anchors"), inputs("positives")
    rows = anchors["input_ids"].numel() + positives["input_ids"].numel()
    labels = block("anchors", labels, IGNORED)
    return Padded(anchors, positives, labels, len(packed.ids), packed.num_sequences, rows)


def padded_loss(model: Any, inputs: Padded, temperature: float, whole: bool = False) -> Tensor:
    """Return DeCLUTR's loss from transformers' model: two forward passes, the MLM head on all positions of the anchors.

    Args:
        whole: apply the head to all positions of the positives too, as the published code does without using it.
    """

    def mean(states: Tensor, mask: Tensor) -> Tensor:
        return (states.float() * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    output = model(**inputs.anchors, labels=inputs.labels, output_hidden_states=True)
    anchors = mean(output.hidden_states[-1], inputs.anchors["attention_mask"])
    if whole:
        states = model(**inputs.positives, output_hidden_states=True).hidden_states[-1]
    else:
        states = model.base_model(**inputs.positives).last_hidden_state
    positives = mean(states, inputs.positives["attention_mask"]).view(len(anchors), -1, anchors.shape[1]).mean(1)
    loss: Tensor = output.loss + nt_xent(anchors, positives, temperature)
    return loss


def plain(learner: Learner) -> Any:
    """Return transformers' own model with the learner's weights."""
    ours = learner.encoder.model
    whole = RobertaForMaskedLM._from_config(copy.deepcopy(ours.config), attn_implementation="sdpa")
    model = whole if isinstance(ours, RobertaForMaskedLM) else whole.base_model
    model.load_state_dict(ours.state_dict())
    return model.to(ours.device)
