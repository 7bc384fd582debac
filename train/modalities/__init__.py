"""What is not text enters the encoder as patches: prepared on the host, embedded on the device.

A new modality is one file here, named as the kind of dataset that it reads, with a dataclass `Config` of its
options that is a `Modality`. A recipe sets the options with the dataset: `data.NAME.modality.OPTION`.
"""

import abc
import dataclasses
import importlib
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from train.data.batch import Rows


@dataclasses.dataclass
class Modality(abc.ABC):
    """The contract: its options, how rows become numbers on the host, and the module that embeds those."""

    @property
    @abc.abstractmethod
    def columns(self) -> tuple[str, ...]:
        """The shards' columns that `collate` reads."""

    @property
    @abc.abstractmethod
    def patches(self) -> int:
        """Rows of the packed batch that one example takes."""

    @abc.abstractmethod
    def check(self) -> None:
        """Raises ValueError for an option that cannot work, naming it."""

    @abc.abstractmethod
    def collate(self, rows: Rows, keys: np.ndarray) -> np.ndarray:
        """Decoded examples, (n, ...) numbers: keys (n,) int64 are all that may decide a random choice.

        Raises:
            ShardError: an example cannot be decoded; it is named.
        """

    @abc.abstractmethod
    def embedding(self, dim: int) -> nn.Module:
        """A new module that makes (n, patches, dim) of (n, ...): what takes the place of the token embeddings, their
        positions, normalisation and dropout.
        """


def names() -> list[str]:
    """The kinds of dataset that have a modality."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def config_class(name: str) -> Any:
    """The dataclass of a modality's options."""
    return importlib.import_module(f"train.modalities.{name}").Config
