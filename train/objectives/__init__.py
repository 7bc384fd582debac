"""What a run learns: each objective asks for sequences to be encoded and turns their states into one loss.

    host     every objective's `collate`: which columns of a batch it wants, views made or chosen, pictures decoded
    device   every objective's `request` -> pack -> mask -> ONE forward -> its `loss` -> weighted sum

A new objective is one file here, with a `Config` dataclass of its options and a `build` that makes the objective, and a
line in a recipe. Objectives hold options and parameters; what belongs to a batch is passed as values.
"""

import contextlib
import dataclasses
import functools
import importlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor, nn

from clearspan.shards import Dataset, keyed
from clearspan.shards.lengths import EDGES
from clearspan.shards.ragged import Ragged
from clearspan.train.data.batch import Batch, Columns, Rows
from clearspan.train.draws import Purpose, integer_seed, name_key, seeded
from clearspan.train.losses import accuracy, alignment, in_fp32, uniformity
from clearspan.train.modalities import Modality
from clearspan.train.model.encoded import Encoded
from clearspan.train.model.masking import Masking
from clearspan.train.model.packing import Sequences, SpecialTokens
from clearspan.train.options import not_one_of

UNIFORMITY_POINTS = 512
"""Vectors of a rank that the logged uniformity is computed on: it compares all pairs."""

DEEP = ("relu", "linear")
HEADS = ("none", "tanh", *DEEP)
"""Heads for training only; the deep ones have two layers."""

EQUAL_PASSES = (
    "its positives are two passes over one sequence, which are equal without dropout: the loss falls as examples move "
    "apart, whatever they mean"
)
"""Why an objective with such positives is `unjudged`."""

Metrics = dict[str, Tensor]
"""Detached scalars that are logged, by name."""


@dataclasses.dataclass
class ObjectiveConfig:
    """What every objective of a recipe has.

    Args:
        type: the file here that makes it; "": the one of its name.
        data: the dataset that it reads; "": the only one.
        weight: what its loss is multiplied by in the sum.
        turn: with `optimization: alternate`, the update that it belongs to; "": one of its name.
    """

    type: str = ""
    data: str = ""
    weight: float = 1.0
    turn: str = ""

    def check(self) -> None:
        """Raises ValueError for an option that cannot work, naming it."""

    def needs(self) -> dict[str, str]:
        """Return the columns that options ask for, each with that option. Shards without such a column are refused,
        even where the objective could train without it.
        """
        return {}


@dataclasses.dataclass
class ContrastConfig(ObjectiveConfig):
    """What every contrastive objective has besides.

    Args:
        temperature: what divides cosine similarities.
    """

    temperature: float = 0.05

    def check(self) -> None:
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"temperature {self.temperature} must be positive")


@dataclasses.dataclass
class HeadedConfig(ContrastConfig):
    """What a contrastive objective has that may have a head for training only, which an export leaves out.

    Args:
        head: none; tanh, a linear layer and tanh (SimCSE); relu or linear, two linear layers with ReLU or nothing
            between them (SimCLR, CLEAR; DeCLUTR v1, Eq. 1, which has both).
        head_dim: how many numbers it gives; 0: as many as the encoder.
        head_hidden: of relu and linear, how many stand between their layers; 0: as many as the encoder gives. DeCLUTR
            v1's counts of parameters, 100,000 to 1,000,000, are of as many as `head_dim`.
        head_bias: whether its layers add a bias.
    """

    head: str = "none"
    head_dim: int = 0
    head_hidden: int = 0
    head_bias: bool = True

    def check(self) -> None:
        super().check()
        if self.head not in HEADS:
            raise ValueError(f"head {not_one_of(self.head, HEADS)}")
        for name, value, heads in (("head_dim", self.head_dim, HEADS[1:]), ("head_hidden", self.head_hidden, DEEP)):
            if value < 0:
                raise ValueError(f"{name} {value} must be positive, or 0 for the encoder's size")
            if value and self.head not in heads:
                raise ValueError(f"{name} {value} has no effect with head: {self.head}: set it to 0")


@dataclasses.dataclass
class NTXentConfig(HeadedConfig):
    """What an objective with NT-Xent has besides a head.

    Args:
        memory: so many vectors of earlier micro-batches are further negatives (`train.model.memory_bank`); 0: none.
    """

    memory: int = 0

    def check(self) -> None:
        super().check()
        if self.memory < 0:
            raise ValueError(f"memory {self.memory} must be positive, or 0 for none")


@dataclasses.dataclass(frozen=True)
class Setting:
    """What an objective finds: the run's encoder, and its own dataset.

    Args:
        name: the objective's, in the recipe. data: the dataset's.
        capacity: the longest sequence that the encoder takes, in tokens without special tokens.
        dim: the encoder's hidden size.
        dataset: the shards, for what they say of themselves.
        modality: what makes patches of the dataset's rows; None: they are text.
        has_dropout: whether two passes of the encoder over one sequence differ in training.
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

    def keys(self, epochs: Any, ids: Any, purpose: Purpose) -> Any:
        """Randomness keys of examples for a purpose of this objective: epochs and ids (n,) int64, numpy or tensors, or
        an epoch of all of them -> (n,) int64.
        """
        return keyed.mix(self.seed, name_key(self.data), epochs, ids, name_key(self.name), purpose)

    def drawing_head(self) -> contextlib.AbstractContextManager[None]:
        """Within it, first weights are drawn for this objective alone."""
        return seeded(integer_seed(self.seed, name_key(self.name), Purpose.HEAD))

    @functools.cached_property
    def sample(self) -> pa.RecordBatch | None:
        """The first examples of the shards; None: there are none.

        Raises:
            ShardError: their shard is damaged.
        """
        return next((batch for batch in self.dataset if batch.num_rows), None)

    @property
    def texts(self) -> tuple[str, ...]:
        """The columns of an example's texts: `tokens`, and of a triplet `positive` and `negative` where it has them."""
        names = self.sample.schema.names if self.sample is not None else []
        return ("tokens", *(name for name in ("positive", "negative") if name in names))

    def length_moments(self, column: str = "tokens", capacity: int | None = None) -> tuple[float, float]:
        """Mean and variance of an example's tokens in a column, cut at the encoder's capacity or at the one given, from
        the manifest's counts by length.

        A count stands for the longest of its lengths, and the sample tells how much shorter the true ones are. Shards
        that do not tell lengths count as full.
        """
        capacity = self.capacity if capacity is None else capacity
        histogram = self.dataset.manifest.lengths.get(column) or {str(capacity): 1}
        longest = _longest(np.array([int(edge) for edge in histogram]), capacity)
        counts = list(histogram.values())
        mean = float(np.average(longest, weights=counts))
        variance = float(np.average((longest - mean) ** 2, weights=counts))
        fraction = 1.0
        if self.dataset.manifest.lengths and self.sample is not None:
            lengths = Ragged.from_arrow(self.sample.column(column)).lengths
            fraction = lengths.clip(max=capacity).sum() / max(1, _longest(lengths, capacity).sum())
        return fraction * mean, fraction**2 * variance


def _longest(lengths: np.ndarray, capacity: int) -> np.ndarray:
    """The longest length that is counted together with each, cut at the capacity."""
    return (EDGES[np.searchsorted(EDGES, lengths, side="right")] - 1).clip(max=capacity)


@dataclasses.dataclass(frozen=True)
class Workload:
    """What an objective asks of a forward with one example, for budgets and estimates. Tokens are without special
    tokens; `patches` are rows of the packed batch, beside the `sequences` of tokens.
    """

    sequences: int = 0
    mean_tokens: float = 0.0
    variance: float = 0.0
    shortest: int = 0
    longest: int = 0
    patch_sequences: int = 0
    patches: int = 0


@dataclasses.dataclass(frozen=True)
class Request:
    """What an objective wants of one forward.

    Args:
        sequences: blocks of sequences to encode, by a name of the objective's own.
        masking: how a block's tokens are masked: one of its own, or another objective's as `OBJECTIVE/BLOCK`.
        context: what its loss needs besides the states, such as labels.
    """

    sequences: Mapping[str, Sequences] = dataclasses.field(default_factory=dict)
    masking: Mapping[str, Masking] = dataclasses.field(default_factory=dict)
    context: Any = None


class Objective(nn.Module):
    """The contract. `name`, `data`, `weight` and `turn` come from the recipe (see `ObjectiveConfig`)."""

    name: str
    data: str
    weight: float
    turn: str
    uses_mlm_head = False
    embeds_tokens = True
    """Whether it trains the model's token embeddings: one that asks for patches alone does not."""
    pools = True
    """Whether it uses pooled vectors, which the layers after the pooling make: one of single states does not."""
    contrasts = False
    """Whether its loss compares a batch's examples with each other, by vectors of theirs alone (`Encoded.pooled` and
    `first`): with gradient caching those of all of a step. The loss of one that does not is a mean over examples, or
    over the tokens that it masks.
    """
    uses: tuple[str, ...] = ()
    """Other objectives whose blocks it works on: they belong to the same turn."""
    min_examples = 1
    """Of a micro-batch over all ranks: with fewer there is nothing to learn from."""

    @property
    def columns(self) -> Sequence[str]:
        """The shards' columns that `collate` reads. `build` refuses shards that lack one."""
        return ("tokens",)

    def workload(self) -> Workload:
        """How much it asks to have encoded."""
        return Workload()

    def block_moments(self, block: str) -> tuple[float, float]:
        """Mean and variance of the tokens that one example has in a block, for who masks it.

        Raises:
            ValueError: it has no such block.
        """
        raise ValueError(f"objectives.{self.name} has no block {block!r} of tokens")

    def min_tokens(self, shrinks: bool) -> int:
        """The shortest example that it can use; `shrinks` where the recipe lets spans shrink to it. 0: any."""
        return 0

    def fingerprint(self) -> str:
        """A hash of what decides its batches besides recipe and shards, such as a file that it reads; "": nothing."""
        return ""

    def notes(self, epochs: float) -> list[str]:
        """What the user should know at the start of a run that passes over its dataset so often, a line each."""
        return []

    def chance(self, examples: int) -> float | None:
        """Return the loss of guessing where `examples` are contrasted with each other; None: it is not known."""
        return None

    def unjudged(self) -> str:
        """Return why its loss on held-out examples cannot pick the best checkpoint, e.g. since a bad encoder has a low
        one too; "": it can.
        """
        return ""

    def collate(self, rows: Rows) -> Columns:
        """The columns that `request` will find in its batches, an item for each row.

        Runs in the stream's thread. A column that is returned as it came is shared with other objectives.
        """
        return {name: rows.columns[name] for name in self.columns}

    def request(self, batch: Batch) -> Request:
        """What to encode, computed on the device without waiting for it."""
        raise NotImplementedError

    def shown(self, request: Request, number: int) -> dict[str, tuple[str, int]]:
        """Which of its sequences show what it learns from an example of its batch: what each is, its block and row."""
        return {block: (block, number) for block in request.sequences}

    def joined(self, contexts: Sequence[Any]) -> Any:
        """The context of several micro-batches as one: of tensors with a row an example, or of None."""
        return torch.cat(list(contexts)) if isinstance(contexts[0], Tensor) else contexts[0]

    def loss(self, encoded: Encoded, context: Any) -> tuple[Tensor, Metrics]:
        """Scalar fp32 whose mean over ranks is the loss of the global batch; and what else to log, where the step is
        `encoded.measured`.
        """
        raise NotImplementedError


def same_passes(setting: Setting) -> list[str]:
    """A note, for an objective whose positives are two passes over one sequence, of an encoder without dropout."""
    if setting.has_dropout:
        return []
    return [
        f"objectives.{setting.name}: its positives are two passes that differ by dropout alone, of which the model has "
        "none: they are the same, and only negatives teach anything; set the model's dropout above 0"
    ]


def sphere_metrics(encoded: Encoded, points: Tensor, partners: Tensor) -> Metrics:
    """Contrastive accuracy among all ranks' partners, alignment of positive pairs, and uniformity of this rank's points
    (Wang & Isola 2020): (n, d), (n, d), detached. None, where nobody will look.
    """
    if not encoded.measured:
        return {}
    points, partners = points.detach(), partners.detach()
    metrics = {"accuracy": accuracy(points, partners), "alignment": alignment(points, partners)}
    if len(points) > 1:
        metrics["uniformity"] = uniformity(points[:UNIFORMITY_POINTS])
    return metrics


def training_head(config: HeadedConfig, setting: Setting) -> nn.Module:
    """An objective's own head, drawn for it alone."""
    if config.head == "none":
        return nn.Identity()
    dim = head_dim(config, setting)
    with setting.drawing_head():
        if config.head == "tanh":
            return nn.Sequential(nn.Linear(setting.dim, dim, config.head_bias), nn.Tanh())
        hidden = config.head_hidden or setting.dim
        return nn.Sequential(
            nn.Linear(setting.dim, hidden, config.head_bias),
            nn.ReLU() if config.head == "relu" else nn.Identity(),
            nn.Linear(hidden, dim, config.head_bias),
        )


def head_dim(config: HeadedConfig, setting: Setting) -> int:
    """How many numbers the vectors have that are contrasted."""
    return config.head_dim or setting.dim


@in_fp32
def projected(head: nn.Module, *blocks: Tensor) -> Sequence[Tensor]:
    """What an objective's own head makes of the vectors of blocks, each (N, h), in fp32."""
    return head(torch.cat(blocks)).split([len(block) for block in blocks])


def types() -> list[str]:
    """The types of objective that there are."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def config_class(type_: str) -> Any:
    """The dataclass of a type's options."""
    return importlib.import_module(f"clearspan.train.objectives.{type_}").Config


def build(config: ObjectiveConfig, setting: Setting, earlier: Sequence[Objective]) -> Objective:
    """An objective of a recipe; `earlier` are those before it.

    Raises:
        ValueError: it lacks what it needs (a mask token, a column of the shards, another objective).
    """
    type_ = config.type or setting.name
    _check_columns(setting, config.needs())
    objective: Objective = importlib.import_module(f"clearspan.train.objectives.{type_}").build(
        config, setting, earlier
    )
    objective.name, objective.data, objective.weight = setting.name, setting.data, config.weight
    objective.turn = config.turn or setting.name
    _check_columns(setting, dict.fromkeys(objective.columns, f"type {type_}"))
    return objective


def _check_columns(setting: Setting, needed: Mapping[str, str]) -> None:
    """Raise ValueError for the first column that the shards lack; `needed` has each column with what needs it."""
    columns = setting.sample.schema.names if setting.sample is not None else needed
    for column, option in needed.items():
        if column not in columns:
            raise ValueError(
                f"objectives.{setting.name}: {option} needs the column {column!r}, and data.{setting.data}.path "
                f"{setting.dataset.folder} holds {setting.dataset.manifest.kind} without it: name another dataset with "
                f"objectives.{setting.name}.data, make the shards again, or change that option"
            )
