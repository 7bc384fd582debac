"""What a run learns: each objective asks for sequences to be encoded and turns their states into one loss.

    every objective's sequences -> pack -> corrupt (masking) -> ONE forward -> every objective's loss -> weighted sum

A new objective is one file here, with a `Config` dataclass (`weight` and its options, `check()`) and a `build` that
makes the objective, and a line in a recipe.
"""

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from train.encoder import Encoder
from train.packing import Packed, Sequences, SpecialTokens
from train.stream import Batch


@dataclasses.dataclass(frozen=True)
class Setting:
    """What all objectives of a run share. `capacity` is the longest sequence in tokens without special tokens."""

    seed: int
    capacity: int
    vocab_size: int
    special: SpecialTokens


@dataclasses.dataclass
class Load:
    """What an objective asks of a step with one document a rank, for budgets and estimates. Tokens without specials."""

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


class Objective(nn.Module):
    """The contract. `name` and `weight` come from the recipe; `metrics` holds detached figures of the last loss."""

    name: str
    weight: float
    uses_token_head = False

    def __init__(self) -> None:
        super().__init__()
        self.metrics: dict[str, Tensor] = {}

    def load(self) -> Load:
        """How much it asks to have encoded."""
        return Load()

    def sequences(self, batch: Batch) -> Sequences | None:
        """What to encode; None: it works on another objective's sequences."""
        raise NotImplementedError

    def corrupt(self, packed: Packed, rows: Mapping[str, slice]) -> None:
        """May change the packed ids in place before the forward; `rows` says which sequences are whose."""

    def loss(self, encoded: Encoded) -> Tensor:
        """Scalar fp32 whose mean over ranks is the loss of the global batch."""
        raise NotImplementedError


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
