"""VisualCSE and AudioCSE (Jian et al. 2022): contrast two views of an image or an audio clip in the text encoder.

    two views of each example, as patches -> encoder -> pooling -> head -> SupCon or SimCLR, over all ranks

If the modality makes only one view, its patches are encoded twice under different dropout (appendix B). Vectors are
pooled as for text. With `model.pooling: cls` they are the states of the class token, as in the paper. If the model has
a head, as in supervised SimCSE, it precedes the head of this objective, as in the published code. The head of this
objective is only for training and is not exported.

Inputs: shards of images or audio (`clearspan images`, `clearspan audio`). Every `loss` except simclr uses the class
labels.

Requires: examples of two classes or more, unless `loss` is simclr.

Related: the losses are `sup_con` and, with simclr, `info_nce` of `train.model.losses`. The recipes combine this
objective with `simcse` on text, in alternating updates (`optimization: alternate`).

Example, VisualCSE of BERT-base:

    clearspan train --recipe visualcse-bert-base model.path=BERT data.text.path=SENTENCES data.images.path=IMAGES \\
        data.images.modality.path=VIT output=RUN
"""

import dataclasses
from collections.abc import Sequence
from typing import Literal, Self

import numpy as np
from torch import Tensor

from clearspan.shards import ShardError, classes, keyed
from clearspan.train.config.optimizer import Positive
from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.draws import Purpose
from clearspan.train.modalities import Modality
from clearspan.train.model.losses import info_nce, sup_con
from clearspan.train.model.packing import Patches, Sequences
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

SIMCLR = "simclr"
BLOCKS = ("first", "second")


@dataclasses.dataclass
class PatchesConfig(ContrastiveConfig):
    """The options of the objective of VisualCSE and AudioCSE.

    The default temperature and head are the paper's (section 3.3 and the published code). The default loss is SupCon as
    Khosla et al. define it.

    Args:
        loss: the loss. khosla: SupCon as Khosla et al. (2020) define it. paper: SupCon as printed in Eq. 4.
            published-code: the loss of the published code, to reproduce its models. simclr: Eq. 5, which needs no
            classes. `train.model.losses.sup_con` explains the first three.
    """

    loss: Literal["khosla", "paper", "published-code", "simclr"] = "khosla"
    temperature: Positive = 0.07
    head: Literal["none", "tanh", "relu", "linear"] = "tanh"

    def check(self) -> None:
        super().check()
        if self.mask_equal and self.loss != SIMCLR:
            raise ValueError(
                f"mask_equal true has no effect with loss: {self.loss}, which compares by label: leave it out, or set "
                f"loss: {SIMCLR}"
            )


class PatchContrast(ContrastiveObjective):
    """SupCon or SimCLR between two views of each example.

    The objective encodes two views of each example: one in the block `first`, the other in the block `second`. The
    positives of a view depend on the option `loss`. With `khosla`, they are the example's other view and all views of
    other examples of its class in the micro-batch, on all ranks. With `simclr`, the other view is the only positive.
    `train.model.losses.sup_con` explains the variants `paper` and `published-code`.
    """

    config: PatchesConfig
    masks_equal = True

    def __init__(self, config: PatchesConfig, setting: Setting, modality: Modality) -> None:
        super().__init__(config, setting)
        self.modality = modality
        self.classes = classes.names(setting.dataset.folder, setting.dataset.manifest)

    @classmethod
    def build(cls, config: PatchesConfig, setting: Setting, earlier: Sequence[Objective]) -> Self:
        manifest = setting.dataset.manifest
        if setting.modality is None:
            raise ValueError(
                f"data.{setting.data}.path {setting.dataset.folder} holds {manifest.kind}, "
                "which have no patches: name a dataset of images or audio"
            )
        if config.loss != SIMCLR and len(manifest.classes) < 2:
            raise ValueError(
                f"{setting.dataset.folder} has examples of {len(manifest.classes)} class: "
                f"loss {config.loss} needs two classes or more: set loss: {SIMCLR}"
            )
        return cls(config, setting, setting.modality)

    @property
    def columns(self) -> Sequence[str]:
        return self.modality.columns

    def workload(self) -> Workload:
        return Workload(patch_sequences=len(BLOCKS), patches=len(BLOCKS) * self.modality.patches)

    def notes(self, epochs: float) -> list[str]:
        counts = self.setting.dataset.manifest.classes
        single = [self.classes[number] for number, count in sorted(counts.items()) if count == 1]
        notes = self.same_passes() if self.modality.views == 1 else []
        if self.config.loss == SIMCLR or not single:
            return notes
        names = ", ".join(single[:3]) + (", ..." if len(single) > 3 else "")
        return [
            *notes,
            f"objectives.{self.name}: {len(single):,} of {len(counts):,} classes have a single example ({names}), "
            "whose only positive is its other view",
        ]

    def unjudged(self) -> str:
        return self.EQUAL_PASSES if self.modality.views == 1 and self.config.loss == SIMCLR else ""

    def collate(self, rows: Rows) -> Columns:
        keys = self.setting.keys(rows.epoch, rows.ids, Purpose.VIEW)
        values, labels = self.modality.collate(rows, keyed.mix(keys[:, None], np.arange(self.modality.views)))
        wrong = np.flatnonzero((labels < 0) | (labels >= len(self.classes)))
        if len(wrong):
            raise ShardError(
                f"data.{rows.dataset}: example {rows.ids[wrong[0]]} has the label {labels[wrong[0]]}, but there are "
                f"{len(self.classes)} classes: run the pipeline again"
            )
        return {"values": values, "labels": labels}

    def request(self, batch: Batch) -> Request:
        values = batch.values("values")
        sequences = {}
        for number, key in enumerate(self.setting.sequence_keys(batch, len(BLOCKS))):
            patches = Patches(self.setting.data, values[:, number % values.shape[1]], self.modality.patches)
            sequences[BLOCKS[number]] = Sequences(patches, key)
        ids = self.identities(batch.ids)
        return Request(sequences, context=batch.values("labels") if ids is None else ids)

    def loss(self, encoded: Encoded, context: Tensor) -> tuple[Tensor, Metrics]:
        first, second = self.projected(*(encoded.pooled(block) for block in BLOCKS))
        if self.config.loss == SIMCLR:
            same = self.share_a_key(context) if self.config.mask_equal else None
            loss = info_nce(first, second, self.config.temperature, false_negatives=same)
        else:
            loss = sup_con(first, second, context, self.config.temperature, self.config.loss)
        return loss, self.sphere_metrics(encoded, first, second)
