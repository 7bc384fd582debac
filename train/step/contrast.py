"""The base class of contrastive objectives, with the options, the head and the metrics that they share.

    N vectors of a block (N, h) -> the objective's head, in fp32 -> (N, d) -> a loss of `train.model.losses`

h is the encoder's hidden size, and d the size of the head's output.
"""

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge
from torch import Tensor, nn

from clearspan.common.encoder.autocast import in_fp32
from clearspan.train.collectives import gather_labels
from clearspan.train.config.optimizer import Positive
from clearspan.train.config.options import Count, ObjectiveConfig
from clearspan.train.model.encoded import Encoded
from clearspan.train.model.losses import accuracy, alignment, uniformity
from clearspan.train.model.packing import TokenSlices
from clearspan.train.step.contract import Objective, Setting
from clearspan.train.step.requests import Metrics

UNIFORMITY_POINTS = 512
"""The number of this rank's vectors on which the logged uniformity is computed. It is limited because all pairs are
compared.
"""

DEEP = ("relu", "linear")
"""The heads that have two layers."""


@dataclasses.dataclass
class ContrastiveConfig(ObjectiveConfig):
    """The options of every contrastive objective. Its head is for training only: an export leaves it out.

    Args:
        temperature: the divisor of cosine similarities. A lower temperature gives hard negatives more weight, a higher
            one treats all negatives alike.
        head: the projection before the loss: none; tanh, a linear layer and tanh (SimCSE); relu, two linear layers with
            ReLU between them (SimCLR, CLEAR); or linear, two linear layers (DeCLUTR v1, Eq. 1).
        head_dim: the size of the head's output; 0: the encoder's hidden size.
        head_hidden: the size between the two layers of relu and linear; 0: the encoder's hidden size. If it equals
            `head_dim`, the head has the 100,000 to 1,000,000 parameters that DeCLUTR v1 reports.
        head_bias: whether the head's layers have a bias.
        mask_equal: mask false negatives: two examples of the batch, over all ranks, are not negatives of each other if
            they have the same id or a text in common. Texts are compared by the tokens that the encoder gets. A hard
            negative is masked for an anchor if it equals the anchor's text or its positive's text. With spans, two
            anchors and their positives are not negatives of each other if they share a span's text, or if their
            documents are two examples of the batch with the same id or equal texts; several anchors of one example
            remain hard negatives (DeCLUTR section 3.2). Images and clips are compared by id, a hash of their file. Set
            it to true if texts repeat in the data.
        dims: sizes that the exported vectors can be truncated to (Matryoshka representation learning, Kusupati et al.
            2022), e.g. [64, 128, 256]; []: none. The loss is the mean of the loss on whole vectors, which is always
            included, and the losses on vectors truncated to each size. Vectors are truncated before the head, whose
            first layer sees zeros instead (MRL-E in that paper). It is the mean, not the sum, so that its weight
            relative to other losses does not depend on `dims`. The export's card names the values for `truncate_dim`.
    """

    temperature: Positive = 0.05
    head: Literal["none", "tanh", "relu", "linear"] = "none"
    head_dim: Count = 0
    head_hidden: Count = 0
    head_bias: bool = True
    mask_equal: bool = False
    dims: list[Annotated[int, Ge(1)]] = dataclasses.field(default_factory=list)

    def check(self) -> None:
        unused = {"head_dim": self.head == "none", "head_hidden": self.head not in DEEP}
        for name in unused:
            if unused[name] and getattr(self, name):
                raise ValueError(f"{name} {getattr(self, name)} has no effect with head: {self.head}: set it to 0")
        if len(set(self.dims)) < len(self.dims):
            raise ValueError(f"dims {self.dims}: a size is given twice: name each once")


@dataclasses.dataclass
class NTXentConfig(ContrastiveConfig):
    """The options of a contrastive objective with NT-Xent.

    Args:
        memory: the number of vectors of earlier micro-batches that are further negatives (cross-batch memory, Wang et
            al. 2020); 0: none. Raise it if the device's memory keeps batches small.
    """

    memory: Count = 0

    def check(self) -> None:
        super().check()
        for option, value in (("mask_equal", self.mask_equal), ("dims", self.dims)):
            if self.memory and value:
                raise ValueError(
                    f"{option} {str(value).lower()} does not work with memory {self.memory}, which holds whole vectors "
                    "and no texts: set memory to 0"
                )


class ContrastiveObjective(Objective):
    """An objective that compares the examples of a batch with each other, by one vector per sequence.

    Its loss sees the examples of a micro-batch on all ranks, because the losses in `train.model.losses` gather them.
    With gradient caching, the loss sees the vectors of all examples of a step, but not the states of all their tokens.
    Therefore it may read only `Encoded.pooled`, the pooled vectors, and `Encoded.first`, the states of the first
    tokens.

    Attributes:
        config: the options.
        head: the projection that the options select.
        prefixes: the sizes below the hidden size to which vectors are truncated for further losses (the option `dims`),
            in ascending order.
        masks_equal: whether the loss masks false negatives: examples with the same id or a text in common, which the
            method `identities` detects. If False, the option `mask_equal` is refused.
        EQUAL_PASSES: a text that the method `unjudged` of a subclass returns if its positives are two passes over one
            sequence. It says why the held-out loss then cannot select the best checkpoint.
    """

    config: ContrastiveConfig
    min_examples = 2
    masks_equal: bool = False
    EQUAL_PASSES = (
        "its positives are two passes over one sequence, which are equal without dropout: the loss falls as examples "
        "move apart, whatever they mean"
    )

    def __init__(self, config: ContrastiveConfig, setting: Setting) -> None:
        super().__init__(config, setting)
        self.head: nn.Module = _head(config, setting)
        if config.mask_equal and not self.masks_equal:
            raise ValueError(f"mask_equal has no effect in {type(self).__name__}: leave it out")
        if config.dims and max(config.dims) > setting.dim:
            raise ValueError(
                f"dims {max(config.dims)} is more than the {setting.dim} components of the "
                "encoder's vectors: leave it out"
            )
        self.prefixes = sorted(set(config.dims) - {setting.dim})

    @property
    def head_dim(self) -> int:
        """The number of dimensions of the vectors that the loss compares: the output of the head."""
        return self.config.head_dim or self.setting.dim

    @in_fp32
    def projected(self, *blocks: Tensor) -> Sequence[Tensor]:
        """Apply the head, in fp32, to the vectors of each block: (N, h) -> (N, d), where N may differ between blocks.

        h is the encoder's hidden size, and d the size of the head's output.
        """
        return torch.split(self.head(torch.cat(blocks)), [len(block) for block in blocks])

    def trained_loss(self, encoded: Encoded, context: Any) -> tuple[Tensor, Metrics]:
        """Return (loss, metrics); the loss is a mean over whole vectors and vectors truncated to each size in `dims`.

        If the option `dims` is empty, this is the loss on whole vectors. The metrics are always computed on whole
        vectors.

        Args:
            encoded: the vectors of the blocks that `request` asked for.
            context: the context that `request` returned.
        """
        loss, metrics = self.loss(encoded, context)
        prefixes = (dataclasses.replace(encoded, dim=dim, measured=False) for dim in self.prefixes)
        losses = [loss, *(self.loss(prefix, context)[0] for prefix in prefixes)]
        return torch.stack(losses).mean(), metrics

    def identities(self, ids: Tensor, *texts: TokenSlices) -> Tensor | None:
        """Return the ids and hashes by which false negatives are detected; None if the option `mask_equal` is false.

        Two examples are false negatives of each other if they have the same id or a text in common (`share_a_key`). An
        objective can return the result as the context of its request.

        Args:
            ids: the ids of n examples, (n,) int64.
            texts: blocks of n texts each, such as the anchors and the positives.

        Returns:
            The id of each example, and a hash of each of its texts, (n, 1 + number of blocks) int64.
        """
        if not self.config.mask_equal:
            return None
        return torch.stack([ids, *(text.text_keys() for text in texts)], dim=1)

    def joined(self, contexts: Sequence[Any]) -> Any:
        """Join the contexts of several micro-batches (`Request.context`) into one context, for gradient caching.

        Contexts that are tensors with one row per example are concatenated; if the contexts are None, the result is
        None. Override this method for other contexts.
        """
        return torch.cat(list(contexts)) if isinstance(contexts[0], Tensor) else contexts[0]

    @staticmethod
    def share_a_key(keys: Tensor, others: Tensor | None = None) -> Tensor:
        """Return a mask, (n, N) bool: true at [i, j] if row i of this rank and row j of all ranks have a key in common.

        A key is an id or a hash of a text, as `identities` returns them.

        Args:
            keys: the k keys of each of this rank's n rows, (n, k) int64.
            others: the l keys of each row to compare with, (N / ranks, l) int64 on each rank; None to compare the rows
                of `keys` with each other, so that N = n x ranks.
        """
        everywhere = gather_labels(keys if others is None else others)
        pairs = itertools.product(keys.unbind(1), everywhere.unbind(1))
        return functools.reduce(torch.logical_or, (mine[:, None] == other for mine, other in pairs))

    def same_passes(self) -> list[str]:
        """Return a list with a note for the user if the encoder has no dropout; otherwise [].

        This is for objectives whose positives are two passes over one sequence. They differ only by dropout.
        """
        if self.setting.has_dropout:
            return []
        return [
            f"objectives.{self.name}: its positives are two passes that differ by dropout alone, and the model has no "
            "dropout: they are equal, and only negatives teach anything; set the model's dropout above 0"
        ]

    @staticmethod
    def sphere_metrics(encoded: Encoded, points: Tensor, partners: Tensor) -> Metrics:
        """Return accuracy, alignment and uniformity, as detached scalars by name; {} if the step is not logged.

        Accuracy is the fraction of points whose nearest vector, among the partners on all ranks, is their own partner.
        Alignment and uniformity are those of Wang & Isola (2020): alignment is computed on this rank's positive pairs,
        and uniformity on the first 512 (`UNIFORMITY_POINTS`) of this rank's points. Uniformity is left out if there is
        only one point.

        Args:
            encoded: the result of the forward pass, which says whether the step is logged.
            points, partners: the vectors of n positive pairs, (n, d) each; row i of both is a pair.
        """
        if not encoded.measured:
            return {}
        points, partners = points.detach(), partners.detach()
        metrics = {"accuracy": accuracy(points, partners), "alignment": alignment(points, partners)}
        if len(points) > 1:
            metrics["uniformity"] = uniformity(points[:UNIFORMITY_POINTS])
        return metrics


def _head(config: ContrastiveConfig, setting: Setting) -> nn.Module:
    if config.head == "none":
        return nn.Identity()
    dim = config.head_dim or setting.dim
    with setting.drawing_head():
        if config.head == "tanh":
            return nn.Sequential(nn.Linear(setting.dim, dim, config.head_bias), nn.Tanh())
        hidden = config.head_hidden or setting.dim
        return nn.Sequential(
            nn.Linear(setting.dim, hidden, config.head_bias),
            nn.ReLU() if config.head == "relu" else nn.Identity(),
            nn.Linear(hidden, dim, config.head_bias),
        )
