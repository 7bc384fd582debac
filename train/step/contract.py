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
        seed: the seed of the run (`training.seed`).
        capacity: the longest sequence that the encoder takes, in tokens without special tokens.
        vocab_size: the number of tokens of the tokenizer.
        dim: the encoder's hidden size.
        special: the special tokens that are put around each sequence, and the mask token.
        dataset: the shards, for their manifest and a sample of their examples.
        modality: the object that turns rows of an image or audio dataset into patches; None for a dataset of text.
        has_dropout: whether the encoder has dropout, so that two passes over one sequence differ in training.
        attends: whether the tokens of a sequence attend to each other; False for a static encoder.
        pooling: the encoder's pooling, e.g. mean.
        shrinks: whether spans shrink to fit short documents.
        prompt_tokens: name of a column of texts -> the number of tokens of the prompt at the start of each text; a
            column without prompts may be missing.
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
        """Return a key for each of n examples, from which the objective draws random numbers for a purpose: (n,) int64.

        A key depends only on the run's seed, the dataset, the objective, the example, the epoch and the purpose. So an
        example gets the same draws in any batch, on any rank and after a resume.

        Args:
            epochs: the epoch of each example, (n,) int64, a numpy array or tensor; or one integer for all examples.
            ids: the ids of the examples, (n,) int64, a numpy array or tensor. The result has the same type.
            purpose: what the random numbers are for, such as the choice of spans.
        """
        return keyed.mix(self.seed, name_key(self.data), epochs, ids, name_key(self.name), purpose)

    def sequence_keys(self, batch: Batch, count: int) -> list[Tensor]:
        """Return a key for each sequence that an objective requests, from which the sequence's masks are drawn.

        All keys differ, so that no two sequences are masked alike.

        Args:
            batch: B examples.
            count: the number of blocks that the objective requests, each with one sequence per example.

        Returns:
            For each block, the keys of its B sequences, (B,) int64.
        """
        keys = self.keys(batch.epochs, batch.ids, Purpose.SEQUENCE)
        return [keyed.mix(keys, number) for number in range(count)]

    def drawing_head(self) -> contextlib.AbstractContextManager[None]:
        """Return a context in which torch draws random numbers from a seed of this objective, for its initial weights.

        The seed depends on the run's seed and the objective's name.
        """
        return seeded(integer_seed(self.seed, name_key(self.name), Purpose.HEAD))

    @functools.cached_property
    def sample(self) -> pa.RecordBatch | None:
        """The first record batch of the dataset that is not empty; None if the dataset has no rows.

        Raises:
            ShardError: a shard is damaged.
        """
        return next((batch for batch in self.dataset if batch.num_rows), None)

    @property
    def texts(self) -> tuple[str, ...]:
        """The names of the columns that hold an example's texts.

        They are `tokens` and, in a dataset of triplets, `positive` and `negative` if these columns exist.
        """
        names = self.sample.schema.names if self.sample is not None else []
        return ("tokens", *(name for name in ("positive", "negative") if name in names))


@dataclasses.dataclass(frozen=True)
class Workload:
    """The size of one example of an objective: its sequences, tokens and patches in the batch of a forward pass.

    Tokens are counted without special tokens.

    Attributes:
        sequences: the number of sequences of tokens.
        mean_tokens, variance: the mean and the variance, over examples, of the number of tokens in all these sequences
            together.
        shortest, longest: the number of tokens of the shortest and of the longest possible sequence.
        patch_sequences: the number of sequences of patches.
        patches: the number of patches in all of these sequences together.
    """

    sequences: int = 0
    mean_tokens: float = 0.0
    variance: float = 0.0
    shortest: int = 0
    longest: int = 0
    patch_sequences: int = 0
    patches: int = 0


class Objective(nn.Module, abc.ABC):
    """A training objective: its options, its parameters, and the three steps from examples to a loss.

    The steps are `collate`, `request` and `loss`. Derive from one of three subclasses, by what the loss is computed
    from:

        `ContrastiveObjective`   compares a batch's examples with each other, by one vector for each sequence
        `TokenObjective`         predicts masked tokens with the model's masked-LM head
        `ExampleObjective`       any other mean over examples, such as a classifier's cross-entropy

    The options of a class are a dataclass, which the class declares as the type of its attribute `config`. A class must
    define `workload`, `request` and `loss`; all other methods have a default. What `request` computes for `loss` must
    be returned (`Request.context`) and not stored on `self`, because with accumulation and gradient caching several
    batches are processed at the same time.

        @dataclasses.dataclass
        class Config(ObjectiveConfig):
            classes: int = 2

        class Topics(ExampleObjective):
            config: Config
            ...

    If this is saved as `topics.py` in the working folder, or installed, a recipe uses it with `type: topics:Topics`.
    Each file in `train/objectives/` defines one such class, a built-in type with the file's name.

    Attributes:
        config: the options.
        name, data, weight: the objective's name, dataset and weight in the recipe.
        measured: the name of the column in which an example must have at least `min_tokens` tokens.
        pools: whether the loss uses pooled vectors, and so the layers after the pooling. If False, `Encoded.pooled`
            raises TypeError.
        min_examples: the smallest number of examples in a micro-batch, over all ranks, from which the objective can
            learn.
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
        """Return the objective that a recipe describes.

        Args:
            config: the options of the objective, an instance of the dataclass that its class declares as the type of
                `config`.
            setting: the name and the dataset of the objective, and information about the encoder and the run.
            earlier: the objectives that precede this one in the recipe, which it may refer to.

        Raises:
            ValueError: something that the objective needs is missing, such as a mask token or another objective.
        """
        return cls(config, setting)

    @property
    def embeds_tokens(self) -> bool:
        """True if the objective trains the model's token embeddings; False if it encodes patches of images or audio."""
        return self.setting.modality is None

    @property
    def columns(self) -> Sequence[str]:
        """The names of the shards' columns that `collate` reads. A dataset that lacks one of them is refused."""
        return ("tokens",)

    @abc.abstractmethod
    def workload(self) -> Workload:
        """Return the sequences, tokens and patches that one example adds to the batch of a forward pass.

        An objective that encodes nothing of its own, but masks blocks of another objective, returns `Workload()`.
        """

    def block_moments(self, block: str) -> tuple[float, float]:
        """Return the mean and the variance, over examples, of the number of tokens that one example has in a block.

        Special tokens are not counted. An objective that masks the block computes from the result how many masked
        tokens to make room for.

        Args:
            block: the name of the block, such as `anchors`.

        Raises:
            ValueError: the objective has no block of tokens with this name.
        """
        raise ValueError(f"objectives.{self.name} has no block {block!r} of tokens")

    def min_tokens(self, shrinks: bool) -> int:
        """Return the minimum number of tokens that an example must have; 0 for no minimum.

        Tokens are counted in the column that the attribute `measured` names, without special tokens; those of a prompt
        at the start of the text count.

        Args:
            shrinks: whether the run shortens spans to fit short documents, instead of refusing or skipping these.
        """
        return 0

    def notes(self, epochs: float) -> list[str]:
        """Return lines for the user to print at the start of a run; [] for none.

        Args:
            epochs: the number of times that the run reads the dataset.
        """
        return []

    def unjudged(self) -> str:
        """Return the reason why the loss on held-out examples cannot select the best checkpoint; "" if it can.

        A reason is, for example, that a bad encoder has a low loss too.
        """
        return ""

    def collate(self, rows: Rows) -> Columns:
        """Make the columns that `request` needs from rows of the shards.

        By default, the columns that the attribute `columns` names are returned unchanged. A column that is returned
        unchanged becomes one tensor for all objectives that return it, so `request` must not change it in place.

        This method runs on the host, in the data stream's thread. Random choices must come from `setting.keys`.

        Args:
            rows: the examples of one rank in one step.

        Returns:
            Name of a column -> its items, one for each row. They become the columns of the batch that `request` gets.
        """
        return {name: rows.columns[name] for name in self.columns}

    @abc.abstractmethod
    def request(self, batch: Batch) -> Request:
        """Return the blocks of sequences to encode, the blocks to mask, and the context for `loss`.

        Implementations compute on the device, and must not make the host wait for it.

        Args:
            batch: one micro-batch, with the columns that `collate` returned.
        """

    @abc.abstractmethod
    def loss(self, encoded: Encoded, context: Any) -> tuple[Tensor, Metrics]:
        """Compute the loss of one micro-batch.

        Args:
            encoded: the vectors and states of the blocks that `request` asked for.
            context: the context that `request` returned.

        Returns:
            This rank's loss, a scalar in fp32; its mean over the ranks is the loss of the micro-batch. And further
            values to log, by name, which may be left out if the step is not logged (`encoded.measured` is False).
        """

    def trained_loss(self, encoded: Encoded, context: Any) -> tuple[Tensor, Metrics]:
        """Return the loss that the trainer minimizes, and the metrics; by default the result of `loss`.

        A subclass may combine several calls of `loss`, as `ContrastiveObjective` does for vectors of several sizes.

        Args:
            encoded: the vectors and states of the blocks that `request` asked for.
            context: the context that `request` returned.
        """
        return self.loss(encoded, context)

    def weighted_loss(self, encoded: Encoded, context: Any, share: Tensor | float = 1.0) -> tuple[Tensor, Metrics]:
        """Return the loss times the objective's weight, and the metrics under the names by which they are logged.

        The names have the form `NAME/METRIC`; `NAME/loss` is the loss without the weight.

        Args:
            encoded: the vectors and states of the blocks that `request` asked for.
            context: the context that `request` returned.
            share: a factor by which the loss is multiplied, also in `NAME/loss`. With gradient caching, it is the
                weight of the micro-batch in the mean over the step.
        """
        loss, metrics = self.trained_loss(encoded, context)
        loss = loss * share
        named = {f"{self.name}/{key}": value for key, value in metrics.items()}
        return self.weight * loss, {f"{self.name}/loss": loss.detach(), **named}


class TokenObjective(Objective):
    """An objective that predicts the masked tokens of a block with the model's masked-LM head.

    Its loss is a mean over the masked tokens of all ranks. With gradient caching, a micro-batch therefore counts in
    proportion to its number of masked tokens. `Encoded.masked` returns the states of the masked tokens.

    Attributes:
        uses: the names of other objectives whose blocks this one masks; empty if it masks blocks of its own. These
            objectives must belong to the same turn.
    """

    pools = False
    uses: tuple[str, ...] = ()


class ExampleObjective(Objective):
    """An objective whose loss is a mean over examples, where the loss of an example does not depend on the others.

    The loss is computed for each micro-batch separately, also with gradient caching. The loss of a step is the mean of
    these losses. A loss that compares examples with each other must be a `ContrastiveObjective`: here it would compare
    only the examples of one micro-batch on one rank.
    """
