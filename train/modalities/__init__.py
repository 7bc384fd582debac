"""Modalities, by which images and audio enter the encoder: as patches that take the place of token embeddings.

    host     rows of a dataset -> one or more views of each, in a pool of threads -> arrays
    device   arrays -> patch embeddings -> rows of the packed batch

`Modality` is the interface. Each built-in modality is a file in this folder, with the name of the kind of dataset that
it reads. A recipe sets the options of a modality among those of the dataset, as `data.NAME.modality.OPTION`.
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
        """Check the options.

        Raises:
            ValueError: an option has a value that cannot work. The message begins with the name of the option.
        """


class Modality(abc.ABC):
    """A modality. It turns rows of a dataset into arrays on the host, and creates the module that embeds the arrays.

    A subclass defines its options as a dataclass, and declares this dataclass as the type of `config`. A recipe
    chooses a class of your own by `data.NAME.modality.type: module:Class`. The class may be in an installed package or
    in a file in the working folder.

    Attributes:
        config: the options.
        columns: the columns of the shards that `collate` reads.
        views: the number of different views that `collate` makes of an example. If it is 1, an objective encodes the
            view twice, and the two passes differ only by dropout.
        patches: the number of rows that one view takes in the packed batch.
    """

    config: ModalityConfig
    columns: tuple[str, ...]
    views: int
    patches: int

    def __init__(self, config: ModalityConfig) -> None:
        self.config = config

    @classmethod
    def build(cls, config: Any, dataset: Dataset) -> Self:
        """Create the modality of a dataset.

        Args:
            config: the options, an instance of the dataclass that the modality's class declares as the type of
                `config`.
            dataset: the dataset.

        Raises:
            ValueError: an option does not suit the dataset.
        """
        return cls(config)

    @abc.abstractmethod
    def collate(self, rows: Rows, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the views of n examples, (n, views, ...), and the class labels of the examples, (n,) int64.

        Args:
            rows: the examples that this rank gets in a step.
            keys: a random key for each view, (n, views) int64. All random choices must be derived from the keys.

        Raises:
            ShardError: an example cannot be decoded. The message names the example.
        """

    @abc.abstractmethod
    def embedding(self, dim: int) -> nn.Module:
        """Create the module that embeds n views, (n, ...) -> (n, patches, dim): `patches` rows for each view.

        For these views, the module takes the place of the encoder's whole embedding layer, including its position
        embeddings, normalization and dropout.

        Args:
            dim: the hidden size of the encoder.

        Raises:
            ValueError, EncoderError: no module can be created with the options.
        """


def names() -> list[str]:
    """Return the names of the kinds of dataset that have a built-in modality, such as `images`."""
    return parts.part_names(__name__)


@functools.cache
def modality_class(name: str) -> type[Modality]:
    """Return the class of a modality.

    Args:
        name: for a built-in modality, the kind of dataset that it reads; otherwise `module:Class`.

    Raises:
        PluginError: there is no such class, or it does not implement the interface.
    """
    return parts.part_class(__name__, name, Modality, "a modality")


def config_class(name: str) -> type[ModalityConfig]:
    """Return the dataclass that defines the options of a modality.

    Args:
        name: for a built-in modality, the kind of dataset that it reads; otherwise `module:Class`.

    Raises:
        PluginError: there is no such class, or it does not implement the interface.
    """
    return parts.options_class(name, modality_class(name), ModalityConfig)


def build(name: str, config: ModalityConfig, dataset: Dataset) -> Modality:
    """Create the modality of a dataset.

    Args:
        name: for a built-in modality, the kind of dataset that it reads; otherwise `module:Class`.
        config: the options of the modality.
        dataset: the dataset.

    Raises:
        PluginError: there is no such class, or it does not implement the interface.
        ValueError: an option does not suit the dataset, or the modality has no attribute `columns`, `views` or
            `patches`.
    """
    modality = modality_class(name).build(config, dataset)
    if missing := [attribute for attribute in ("columns", "views", "patches") if not hasattr(modality, attribute)]:
        raise ValueError(f"type {name}: lacks {', '.join(missing)} (see {__name__}.Modality)")
    return modality


def in_threads(work: Callable[[int], None], items: Sequence[int]) -> None:
    """Call `work` with every item, in as many threads as this rank has cores, and wait for all calls.

    The first exception that a call raises is raised here.
    """
    for _ in _pool().map(work, items):
        pass


@functools.cache
def _pool() -> ThreadPoolExecutor:
    from joblib import cpu_count  # takes a fifth of a second; text needs no threads

    return ThreadPoolExecutor(max(1, cpu_count() // (ranks_here() or 1)), thread_name_prefix="collate")
