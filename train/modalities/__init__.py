"""What is not text enters the encoder as patches: prepared on the host, embedded on the device.

    host     rows -> decoded, one or more views of each, in a pool of threads -> numbers
    device   numbers -> patch embedding -> rows of the packed batch, where token embeddings stand otherwise

A new modality is one file here, named as the kind of dataset that it reads, with a `Config` dataclass of its options
and a `build` that makes the modality. A recipe sets the options with the dataset: `data.NAME.modality.OPTION`.
"""

import abc
import functools
import importlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from torch import nn

from clearspan.common.cores import num_cores
from clearspan.shards import Dataset
from clearspan.train.data.batch import Rows

MOST_VALUES, MOST_PATCHES = 1 << 26, 1 << 15
"""Limits of a view: 4,729 x 4,729 pixels or 87 minutes of sound; 181 x 181 patches."""


class ModalityConfig(Protocol):
    """A modality's options, a dataclass."""

    def check(self) -> None:
        """Raises ValueError for an option that cannot work, naming it."""


class Modality(abc.ABC):
    """The contract: how rows become numbers on the host, and the module that embeds those."""

    columns: tuple[str, ...]
    """The shards' columns that `collate` reads."""
    views: int
    """Views of an example that differ when they come to the encoder. Of one alone, two passes differ by dropout."""
    patches: int
    """Rows of the packed batch that one view takes."""

    @abc.abstractmethod
    def collate(self, rows: Rows, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(values (n, views, ...), labels (n,) int64): keys (n, views) int64 are all that may decide a random choice.

        Raises:
            ShardError: an example cannot be decoded; it is named.
        """

    @abc.abstractmethod
    def embedding(self, dim: int) -> nn.Module:
        """A new module that makes (n, patches, dim) of (n, ...): what takes the place of the token embeddings, their
        positions, normalisation and dropout.

        Raises:
            ValueError, EncoderError: the options give none.
        """


def check_view(options: str, values: int, patches: int) -> None:
    """Refuse a view with more than MOST_VALUES values or MOST_PATCHES patches.

    Args:
        options: the options that decide its size, each with its value, for the error.

    Raises:
        ValueError: the view is larger.
    """
    for what, found, most, why in (
        ("values", values, MOST_VALUES, "a step holds all views of its examples on the host"),
        ("patches", patches, MOST_PATCHES, "the cost of attention grows with their square"),
    ):
        if found > most:
            raise ValueError(f"{options}: a view would have {found:,} {what}, and {most:,} is the limit, since {why}")


def names() -> list[str]:
    """The kinds of dataset that have a modality."""
    return sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__")


def config_class(name: str) -> Any:
    """The dataclass of a modality's options."""
    return importlib.import_module(f"clearspan.train.modalities.{name}").Config


def build(name: str, config: ModalityConfig, dataset: Dataset) -> Modality:
    """The modality of a dataset.

    Raises:
        ValueError: an option does not suit the dataset.
    """
    modality: Modality = importlib.import_module(f"clearspan.train.modalities.{name}").build(config, dataset)
    return modality


def in_threads(work: Callable[[int], None], items: Sequence[int]) -> None:
    """Does the work for every item, in as many threads as this rank has processors; raises what the first to fail
    raises.
    """
    for _ in _pool().map(work, items):
        pass


@functools.cache
def _pool() -> ThreadPoolExecutor:
    share = num_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return ThreadPoolExecutor(max(1, share), thread_name_prefix="collate")
