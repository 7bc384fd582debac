"""Modalities: data other than text enters the encoder as patches, prepared on the host and embedded on the device.

    host     rows -> decoded, one or more views of each, in a pool of threads -> numbers
    device   numbers -> patch embedding -> rows of the packed batch, in place of token embeddings

`Modality` is the contract. A built-in modality is a file in this folder, named as the kind of dataset that it reads; a
recipe sets its options with the dataset, `data.NAME.modality.OPTION`.
"""

import abc
import dataclasses
import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import numpy as np
from torch import nn

from clearspan.shards import Dataset
from clearspan.train import parts
from clearspan.train.collectives import ranks_here
from clearspan.train.data.batch import Rows


@dataclasses.dataclass
class ModalityConfig:
    """The options of a modality."""

    def check(self) -> None:
        """Raise ValueError for an option that cannot work; the message begins with the option's name."""


class Modality(abc.ABC):
    """A modality: turns rows of a dataset into numbers on the host, and makes the module that embeds these.

    A class has its options as a dataclass and names it by annotating `config`. `data.NAME.modality.type: module:Class`
    chooses a class of your own, from an installed package or a file in the working folder.

    Attributes:
        columns: the shards' columns that `collate` reads.
        views: the number of different views of an example. If it is 1, an objective encodes the view twice, and the two
            passes differ by dropout alone.
        patches: the rows of the packed batch that one view takes.
    """

    config: ModalityConfig
    columns: tuple[str, ...]
    views: int
    patches: int

    def __init__(self, config: ModalityConfig) -> None:
        self.config = config

    @classmethod
    def build(cls, config: Any, dataset: Dataset) -> Self:
        """Return the modality of a dataset; `config` is an instance of the class that annotates `config`.

        Raises:
            ValueError: an option does not suit the dataset.
        """
        return cls(config)

    @abc.abstractmethod
    def collate(self, rows: Rows, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return values (n, views, ...) and labels (n,) int64. Draw random choices from `keys`, (n, views) int64, only.

        Raises:
            ShardError: an example cannot be decoded. The message names it.
        """

    @abc.abstractmethod
    def embedding(self, dim: int) -> nn.Module:
        """Return a new module that maps (n, ...) to (n, patches, dim). It takes the place of the token embeddings, with
        their positions, normalization and dropout.

        Raises:
            ValueError, EncoderError: the options do not allow one.
        """


def names() -> list[str]:
    """Return the kinds of dataset that have a built-in modality."""
    return parts.names(__name__)


@functools.cache
def modality_class(name: str) -> type[Modality]:
    """Return the modality of a kind of dataset, or the one that `module:Class` names.

    Raises:
        PluginError: there is no such class, or it does not meet the contract.
    """
    return parts.find(__name__, name, Modality, "a modality")


def config_class(name: str) -> type[ModalityConfig]:
    """Return the dataclass of a modality's options.

    Raises:
        PluginError: see `modality_class`.
    """
    return parts.options_class(name, modality_class(name), ModalityConfig)


def build(name: str, config: ModalityConfig, dataset: Dataset) -> Modality:
    """Return the modality of a dataset.

    Raises:
        ValueError: an option does not suit the dataset, or the modality lacks an attribute.
    """
    modality = modality_class(name).build(config, dataset)
    if missing := [attribute for attribute in ("columns", "views", "patches") if not hasattr(modality, attribute)]:
        raise ValueError(f"type {name}: lacks {', '.join(missing)} (see {__name__}.Modality)")
    return modality


def in_threads(work: Callable[[int], None], items: Sequence[int]) -> None:
    """Run `work` on every item, in as many threads as this rank has cores; raise the exception of the first failure."""
    for _ in _pool().map(work, items):
        pass


@functools.cache
def _pool() -> ThreadPoolExecutor:
    from joblib import cpu_count  # takes a fifth of a second; text needs no threads

    return ThreadPoolExecutor(max(1, cpu_count() // (ranks_here() or 1)), thread_name_prefix="collate")
