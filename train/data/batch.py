"""Examples on their way to the device: the rows of one rank in a step, on the host, then micro-batches as tensors.

    Rows (host) -> each objective's `collate` -> Columns -> `cut_micro_batches` -> Batch (device)

A column that several objectives read is turned into one tensor, which they share.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from clearspan.common.ragged import Ragged
from clearspan.train.model.packing import Sequences, TokenSlices

Column = Ragged | np.ndarray | list[bytes] | list[str] | list[np.ndarray]
"""A column of n examples on the host: token lists; an array of numbers, (n, ...); or a list of n encoded files, n texts
or n spectrograms, (frames, 128) with any number of frames. Lists occur only in what is read from shards.
"""
Columns = dict[str, Column]
Kind = TypeVar("Kind")


@dataclasses.dataclass(frozen=True)
class Rows:
    """The n examples of one dataset that one rank gets in one step, on the host.

    Attributes:
        dataset: the dataset's name in the recipe.
        columns: name of a column -> its n values, as read from the shards.
        ids: the ids of the examples, (n,) int64.
        epoch: the dataset's current epoch, from 0 on.
        peer: a function that draws, for one of the n examples, another example (of any rank) that the loss contrasts
            with it. `peer(row, uniform)` takes the index of the example and a random number in [0, 1), and returns the
            `id` and the columns of the drawn example. The choice does not depend on the number of ranks. None if
            peers cannot be drawn.
    """

    dataset: str
    columns: Columns
    ids: np.ndarray
    epoch: int
    peer: Callable[[int, float], dict[str, Any]] | None = None

    def listed(self, name: str) -> list[Any]:
        """Return a column of encoded image or audio files, texts or spectrograms: a list with one element per example.

        Args:
            name: the name of the column.
        """
        return _of_type(list, self.columns[name])

    def numbers(self, name: str) -> np.ndarray:
        """Return the column `name`, which holds numbers: an array (n, ...), with one row for each of the n examples."""
        return _of_type(np.ndarray, self.columns[name])

    def ragged(self, name: str) -> Ragged:
        """Return the column `name`, which holds token lists."""
        return _of_type(Ragged, self.columns[name])


def _of_type(type_: type[Kind], column: object) -> Kind:
    assert isinstance(column, type_)
    return column


@dataclasses.dataclass(frozen=True)
class TokenLists:
    """n lists of tokens, stored end to end: list i is values[offsets[i]:offsets[i + 1]].

    Attributes:
        values: the ids of the S tokens of all lists, (S,) int32.
        offsets: the index in `values` of the first token of each list, and then S, (n + 1,) int64.
    """

    values: Tensor
    offsets: Tensor

    @classmethod
    def of(cls, column: Ragged) -> "TokenLists":
        return cls(torch.from_numpy(column.values.astype(np.int32)), torch.from_numpy(column.offsets))

    @property
    def lengths(self) -> Tensor:
        """The numbers of tokens of the n lists, (n,) int64."""
        return self.offsets.diff()

    def slices(self, max_tokens: int) -> TokenSlices:
        """Return the first `max_tokens` tokens of each list, as slices of `values`, without copying them."""
        return TokenSlices(self.values, self.offsets[:-1], self.lengths.clamp(max=max_tokens))


@dataclasses.dataclass(frozen=True)
class Batch:
    """One rank's B examples of one dataset in one micro-batch.

    Attributes:
        columns: name of a column -> its B values. In a batch for all objectives the names are `OBJECTIVE/COLUMN`; in a
            batch for one objective, which `of` returns, they are `COLUMN`.
        ids, epochs: the id and the epoch of each example, (B,) int64.
    """

    columns: dict[str, TokenLists | Tensor]
    ids: Tensor
    epochs: Tensor

    def lists(self, name: str) -> TokenLists:
        """Return the column `name`, which holds token lists."""
        return _of_type(TokenLists, self.columns[name])

    def values(self, name: str) -> Tensor:
        """Return the column `name`, which holds numbers: a tensor (B, ...), with one row for each of the B examples."""
        return _of_type(Tensor, self.columns[name])

    def sequences(self, name: str, keys: Tensor, max_tokens: int) -> Sequences:
        """Return a column of token lists as a block of sequences for a `Request`.

        Args:
            name: the name of the column.
            keys: the random key of each of the B examples' sequences, from which its masks are drawn, (B,) int64.
            max_tokens: the length to which sequences are cut, in tokens without special tokens. It must not exceed
                the length that the encoder takes.
        """
        return Sequences(self.lists(name).slices(max_tokens), keys)

    def of(self, objective: str) -> "Batch":
        """Return the batch with the columns of one objective only, named without the objective's prefix."""
        prefix = f"{objective}/"
        columns = {name.removeprefix(prefix): c for name, c in self.columns.items() if name.startswith(prefix)}
        return dataclasses.replace(self, columns=columns)

    def to(self, device: torch.device) -> "Batch":
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin(self) -> "Batch":
        return self._map(Tensor.pin_memory)

    def used_by(self, stream: torch.cuda.Stream) -> None:
        """Tell CUDA's allocator that `stream` reads the batch's tensors, so that their memory is not reused early."""

        def record(tensor: Tensor) -> Tensor:
            tensor.record_stream(stream)
            return tensor

        self._map(record)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        """Return the batch with `change` applied to every tensor.

        A tensor that several columns share is changed once, and the columns share the result.
        """
        changed: dict[int, TokenLists | Tensor] = {}
        for column in self.columns.values():
            if id(column) in changed:
                continue
            if isinstance(column, TokenLists):
                changed[id(column)] = TokenLists(change(column.values), change(column.offsets))
            else:
                changed[id(column)] = change(column)
        columns = {name: changed[id(column)] for name, column in self.columns.items()}
        return Batch(columns, change(self.ids), change(self.epochs))


def cut_micro_batches(collated: Mapping[str, Columns], ids: np.ndarray, epoch: int, size: int) -> Iterator[Batch]:
    """Cut one rank's n examples of a step into micro-batches.

    If several objectives return the same object as a column, it becomes one tensor, which they share.

    Args:
        collated: name of an objective -> the columns that its `collate` returned for the n examples.
        ids: the ids of the examples, (n,) int64.
        epoch: the epoch of the dataset.
        size: the number of this rank's examples in a micro-batch; it divides n.

    Raises:
        TypeError: an objective returned a column that is neither an array nor a `Ragged`.
    """
    for first in range(0, len(ids), size):
        part = slice(first, first + size)
        made: dict[int, TokenLists | Tensor] = {}
        columns = {}
        for objective, its_columns in collated.items():
            for name, column in its_columns.items():
                if id(column) not in made:
                    made[id(column)] = _tensors(column, part)
                columns[f"{objective}/{name}"] = made[id(column)]
        yield Batch(columns, torch.from_numpy(ids[part]), torch.full((size,), epoch))


def _tensors(column: Column, part: slice) -> TokenLists | Tensor:
    if isinstance(column, Ragged):
        return TokenLists.of(column.slice(part))
    if isinstance(column, np.ndarray):
        return torch.from_numpy(column[part])
    raise TypeError("an objective's collate returned a list: it must return arrays or Ragged token lists")
