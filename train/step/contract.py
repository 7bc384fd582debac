"""The contract of an objective: its inputs, its requests to the encoder, and the base classes to derive from.

host     `collate`   rows of the shards -> columns of a batch: views made or chosen, images decoded
device   `request`   batch -> blocks of sequences to encode, blocks to mask
         (the learner packs all objectives' blocks, masks them, and runs ONE forward)
         `loss`      encoded blocks -> scalar, metrics
"""

import abc
import contextlib
import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Any, Self

import pyarrow as pa
from torch import Tensor, nn

from clearspan.shards import Dataset, keyed
from clearspan.train.config.options import ObjectiveConfig
from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.draws import Purpose, integer_seed, name_key, seeded
from clearspan.train.modalities import Modality
from clearspan.train.model.encoded import Encoded
from clearspan.train.model.packing import SpecialTokens
from clearspan.train.step.requests import Metrics, Request


@dataclasses.dataclass(frozen=True)
class Setting:
    """Information for an objective about the run: the encoder, and the objective's dataset.

    Args:
        name: the objective's name in the recipe.
        data: the dataset's name in the recipe.
        capacity: the longest sequence that the encoder takes, in tokens without special tokens.
        dim: the encoder's hidden size.
        dataset: the shards, for their manifest and a sample of their examples.
        modality: makes patches of the dataset's rows; None for a dataset of text.
        has_dropout: whether two passes of the encoder over one sequence differ in training.
        attends: whether the tokens of a sequence attend to each other; False for a static encoder.
        pooling: the encoder's pooling, e.g. mean.
        shrinks: whether spans shrink to fit short documents.
        prompt_tokens: the number of tokens of the prompt at the start of each text, by column.
    """

    name: str
    data: str
    seed: int
    capacity: int
    vocab_size: int
    dim: int
    special: SpecialTokens
    dataset: Dataset
    modality: Modality | None = None
    has_dropout: bool = True
    attends: bool = True
    pooling: str = "mean"
    shrinks: bool = False
    prompt_tokens: Mapping[str, int] = dataclasses.field(default_factory=dict)

    def keys(self, epochs: Any, ids: Any, purpose: Purpose) -> Any:
        """Return the random keys of examples for one purpose of this objective, (n,) int64.

        Args:
            epochs: (n,) int64, numpy array or tensor; or one integer, the epoch of all examples.
            ids: (n,) int64, numpy array or tensor. The result has the same type.
        """
        return keyed.mix(self.seed, name_key(self.data), epochs, ids, name_key(self.name), purpose)

    def sequence_keys(self, batch: Batch, count: int) -> list[Tensor]:
        """Return the random keys of the sequences in `count` blocks: for each block one key for each example, (B,).

        All keys differ, so that no two sequences are masked alike.
        """
        keys = self.keys(batch.epochs, batch.ids, Purpose.SEQUENCE)
        return [keyed.mix(keys, number) for number in range(count)]

    def drawing_head(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which initial weights are drawn from a seed that only this objective has."""
        return seeded(integer_seed(self.seed, name_key(self.name), Purpose.HEAD))

    @functools.cached_property
    def sample(self) -> pa.RecordBatch | None:
        """The first record batch of the dataset that has rows; None if there is none.

        Raises:
            ShardError: the shard that holds them is damaged.
        """
        return next((batch for batch in self.dataset if batch.num_rows), None)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns that hold an example's texts: `tokens`, and a triplet's `positive` and `negative` if present."""
        names = self.sample.schema.names if self.sample is not None else []
        return ("tokens", *(name for name in ("positive", "negative") if name in names))


@dataclasses.dataclass(frozen=True)
class Workload:
    """The load of one example: its sequences, tokens and patches in the batch of a forward pass.

    Tokens are counted without special tokens.

    Attributes:
        sequences: the number of sequences of tokens.
        mean_tokens, variance: the mean and the variance of the number of tokens in all these sequences together.
        shortest, longest: the number of tokens of the shortest and of the longest possible sequence.
        patch_sequences: the number of sequences of patches.
        patches: the number of patches in all of them.
    """

    sequences: int = 0
    mean_tokens: float = 0.0
    variance: float = 0.0
    shortest: int = 0
    longest: int = 0
    patch_sequences: int = 0
    patches: int = 0


class Objective(nn.Module, abc.ABC):
    """A training objective: options, parameters, and three steps from examples to a loss.

    Derive from one of three subclasses, by what the loss is computed from:

        `ContrastiveObjective`   compares a batch's examples with each other, by one vector for each sequence
        `TokenObjective`         predicts masked tokens with the model's masked-LM head
        `ExampleObjective`       any other mean over examples, such as a classifier's cross-entropy

    A class has its options as a dataclass and names it by annotating `config`; `workload`, `request` and `loss` must be
    written, all else has a default. Pass the state of a batch as values (`Request.context`), never on `self`: with
    accumulation and gradient caching several batches are in flight.

        @dataclasses.dataclass
        class Config(ObjectiveConfig):
            classes: int = 2

        class Topics(ExampleObjective):
            config: Config
            ...

    Saved as `topics.py` in the working folder, or installed, a recipe uses it with `type: topics:Topics`. Each file in
    `train/objectives/` defines one such class, a built-in type with the file's name.

    Attributes:
        name, data, weight: the objective's name, dataset and weight in the recipe.
        pools: whether the loss uses `Encoded.pooled`, and so the layers after the pooling. If False, `pooled` raises.
        min_examples: the smallest micro-batch, over all ranks, from which the objective can learn.
        measured: the column whose length must be at least `min_tokens`.
    """

    config: ObjectiveConfig
    measured: str = "tokens"
    pools: bool = True
    min_examples: int = 1

    def __init__(self, config: ObjectiveConfig, setting: Setting) -> None:
        super().__init__()
        self.config, self.setting = config, setting
        self.name, self.data, self.weight = setting.name, setting.data, config.weight

    @classmethod
    def build(cls, config: Any, setting: Setting, earlier: "Sequence[Objective]") -> Self:
        """Return the objective of a recipe.

        Args:
            config: the options of the objective: an instance of the dataclass that annotates its attribute `config`.
            setting: the name and the dataset of the objective, and what a run gives to it, such as the special tokens.
            earlier: the recipe's objectives before this one.

        Raises:
            ValueError: something that the objective needs is missing, such as a mask token or another objective.
        """
        return cls(config, setting)

    @property
    def embeds_tokens(self) -> bool:
        """Return whether the objective trains the model's token embeddings: one that encodes patches does not."""
        return self.setting.modality is None

    @property
    def columns(self) -> Sequence[str]:
        """The shards' columns that `collate` reads. Shards that lack one are refused."""
        return ("tokens",)

    @abc.abstractmethod
    def workload(self) -> Workload:
        """Return what one example adds to the batch of a forward pass; `Workload()` if it encodes nothing."""

    def block_moments(self, block: str) -> tuple[float, float]:
        """Return the mean and the variance of the number of tokens that one example has in a block.

        From these, an objective that masks the block computes how many masked tokens to make room for.

        Raises:
            ValueError: there is no such block of tokens.
        """
        raise ValueError(f"objectives.{self.name} has no block {block!r} of tokens")

    def min_tokens(self, shrinks: bool) -> int:
        """Return the minimum number of tokens that an example must have in the column `measured`; 0 for no minimum.

        Args:
            shrinks: whether spans shrink to fit short documents.
        """
        return 0

    def notes(self, epochs: float) -> list[str]:
        """Return lines to print at the start of a run that reads the dataset `epochs` times."""
        return []

    def unjudged(self) -> str:
        """Return the reason why the loss on held-out examples cannot pick the best checkpoint; "" if it can.

        A reason is e.g. that a bad encoder has a low loss too.
        """
        return ""

    def collate(self, rows: Rows) -> Columns:
        """Return the columns that `request` finds in its batch, one item per row; by default `columns`, unchanged.

        Runs on the host, in the data stream's thread. Random choices must come from `setting.keys`. A column that is
        returned unchanged is shared with other objectives.
        """
        return {name: rows.columns[name] for name in self.columns}

    @abc.abstractmethod
    def request(self, batch: Batch) -> Request:
        """Return the blocks to encode, the blocks to mask, and the context for `loss`.

        Implementations compute on the device, and must not synchronize the host with it.
        """

    @abc.abstractmethod
    def loss(self, encoded: Encoded, context: Any) -> tuple[Tensor, Metrics]:
        """Return (loss, metrics).

        The loss is a scalar in fp32; its mean over the ranks is the loss of the global batch. The metrics are further
        values to log; they may be left out in steps that log nothing (`encoded.measured` is False).
        """

    def trained_loss(self, encoded: Encoded, context: Any) -> tuple[Tensor, Metrics]:
        """Return the loss that the trainer minimizes: `loss`, unless a base class derives a different loss from it."""
        return self.loss(encoded, context)

    def weighted_loss(self, encoded: Encoded, context: Any, share: Tensor | float = 1.0) -> tuple[Tensor, Metrics]:
        """Return the loss times the objective's weight, and the metrics under the names by which they are logged.

        Args:
            share: a further factor of the loss: with gradient caching, the weight of a micro-batch in the step.
        """
        loss, metrics = self.trained_loss(encoded, context)
        loss = loss * share
        named = {f"{self.name}/{key}": value for key, value in metrics.items()}
        return self.weight * loss, {f"{self.name}/loss": loss.detach(), **named}


class TokenObjective(Objective):
    """An objective that predicts the masked tokens of a block with the model's masked-LM head.

    Its loss is a mean over the masked tokens of all ranks: with gradient caching each micro-batch is weighted by
    its number of them. `Encoded.masked` holds the states of the masked tokens.

    Attributes:
        uses: the names of other objectives whose blocks this one masks. They must belong to the same turn.
    """

    pools = False
    uses: tuple[str, ...] = ()


class ExampleObjective(Objective):
    """An objective whose loss is a mean of independent losses of the examples.

    Every micro-batch has the same weight, with gradient caching too. A loss that compares examples must be a
    `ContrastiveObjective`; otherwise it would only see the examples of one micro-batch.
    """
