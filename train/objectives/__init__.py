"""What a run learns: each objective asks for sequences to be encoded and turns their states into one loss.

    host     every objective's prepare: which columns of a batch it wants, views made or chosen
    device   every objective's sequences -> pack -> corrupt (masking) -> ONE forward -> its loss -> weighted sum

A new objective is one file here, with a `Config` dataclass (`weight` and its options, `kind`, `check()`) and a `build`
that makes the objective, and a line in a recipe.
"""

import dataclasses
import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from torch import Tensor, nn

from shards import Dataset
from shards.lengths import EDGES
from shards.ragged import Ragged
from train.data.stream import Batch, Columns
from train.losses import alignment, uniformity
from train.model.encoder import Encoder
from train.model.packing import Packed, Sequences, SpecialTokens

UNIFORMITY_POINTS = 512
"""Vectors of a rank that the logged uniformity is computed on: it compares all pairs."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all objectives of a run share.

    Args:
        capacity: the longest sequence that the encoder takes, in tokens without special tokens.
        dim: the encoder's hidden size.
        dataset: the shards, for what they say of themselves.
    """

    seed: int
    capacity: int
    vocab_size: int
    dim: int
    special: SpecialTokens
    dataset: Dataset

    @functools.cached_property
    def sample(self) -> pa.RecordBatch | None:
        """The first examples of the shards; None: there are none.

        Raises:
            ShardError: their shard is damaged.
        """
        return next((batch for batch in self.dataset if batch.num_rows), None)

    def length_moments(self) -> tuple[float, float]:
        """Mean and variance of an example's tokens, cut at the capacity, from the manifest's counts by length.

        A count stands for the longest of its lengths, and the sample tells how much shorter the true ones are. Shards
        that do not tell lengths count as full.
        """
        histogram = self.dataset.manifest.lengths.get("tokens") or {str(self.capacity): 1}
        longest = self._longest(np.array([int(edge) for edge in histogram]))
        counts = list(histogram.values())
        mean = float(np.average(longest, weights=counts))
        variance = float(np.average((longest - mean) ** 2, weights=counts))
        share = 1.0
        if self.dataset.manifest.lengths and self.sample is not None:
            lengths = Ragged.from_arrow(self.sample.column("tokens")).lengths
            share = lengths.clip(max=self.capacity).sum() / max(1, self._longest(lengths).sum())
        return share * mean, share**2 * variance

    def _longest(self, lengths: np.ndarray) -> np.ndarray:
        """The longest length that is counted together with each, cut at the capacity."""
        return (EDGES[np.searchsorted(EDGES, lengths, side="right")] - 1).clip(max=self.capacity)


@dataclasses.dataclass
class Load:
    """What an objective asks of a forward with one example, for budgets and estimates. Tokens without specials."""

    sequences: int = 0
    mean_tokens: float = 0.0
    variance: float = 0.0
    shortest: int = 0
    longest: int = 0


@dataclasses.dataclass
class Encoded:
    """One forward's result as an objective sees it: the packed batch, its hidden states (T, h), and its own rows."""

    encoder: Encoder
    packed: Packed
    hidden: Tensor
    rows: slice

    @functools.cached_property
    def pooled(self) -> Tensor:
        """The objective's sequences as fp32 vectors, (rows, h)."""
        return self.encoder.pool(self.hidden, self.packed)[self.rows]

    @functools.cached_property
    def first(self) -> Tensor:
        """The fp32 state of each sequence's first token, [CLS] or <s>, (rows, h), however the model pools."""
        return self.encoder.first_states(self.hidden, self.packed)[self.rows]


class Objective(nn.Module):
    """The contract. `name` and `weight` come from the recipe; `metrics` holds detached figures of the last loss."""

    name: str
    weight: float
    uses_token_head = False
    min_examples = 1
    """Of a forward over all ranks: with fewer there is nothing to learn from."""

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, Tensor] = {}

    def load(self) -> Load:
        """How much it asks to have encoded."""
        return Load()

    @property
    def columns(self) -> Sequence[str]:
        """The shards' token columns that `prepare` reads."""
        return ("tokens",)

    def fingerprint(self) -> str:
        """A hash of what decides its batches besides recipe and shards, such as a file that it reads; "": nothing."""
        return ""

    def prepare(self, columns: Columns, ids: np.ndarray, epoch: int) -> Columns:
        """The columns that `sequences` will find in its batches, from a rank's rows of a step; a list for each row.

        Runs in the stream's thread. `tokens` are the shards' own, for all objectives; what an objective makes bears
        its name (`clear/0`).

        Args:
            columns: `self.columns`, and other objectives'; ids: (n,) int64.
        """
        return {"tokens": columns["tokens"]}

    def sequences(self, batch: Batch) -> Sequences | None:
        """What to encode; None: it works on another objective's sequences."""
        raise NotImplementedError

    def corrupt(self, packed: Packed, rows: Mapping[str, slice]) -> None:
        """May change the packed ids in place before the forward; `rows` says which sequences are whose."""

    def loss(self, encoded: Encoded) -> Tensor:
        """Scalar fp32 whose mean over ranks is the loss of the global batch."""
        raise NotImplementedError


def sphere_metrics(points: Tensor, partners: Tensor) -> dict[str, Tensor]:
    """Alignment of positive pairs, and uniformity of the points (Wang & Isola 2020): (n, d), (n, d), detached."""
    points, partners = points.detach(), partners.detach()
    metrics = {"alignment": alignment(points, partners)}
    if len(points) > 1:
        metrics["uniformity"] = uniformity(points[:UNIFORMITY_POINTS])
    return metrics


def build_all(configs: Mapping[str, Any], setting: Setting) -> list[Objective]:
    """The objectives of a recipe, in its order.

    Raises:
        ValueError: an objective lacks what it needs (a mask token, another objective).
    """
    built: list[Objective] = []
    for name, config in configs.items():
        objective = importlib.import_module(f"train.objectives.{name}").build(config, setting, built)
        objective.name, objective.weight = name, config.weight
        built.append(objective)
    return built
