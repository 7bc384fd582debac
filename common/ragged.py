"""Lists of different lengths as a flat array and offsets, like Arrow's list columns, which convert without a copy."""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class Ragged:
    """A sequence of n lists; list i is values[offsets[i]:offsets[i + 1]].

    Attributes:
        values: (S,) of any dtype.
        offsets: (n + 1,) int64, from 0 to S.
    """

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, lists: Sequence[np.ndarray], dtype: np.dtype | type) -> "Ragged":
        """Return the lists given as separate arrays."""
        values = np.concatenate([np.empty(0, dtype), *lists]).astype(dtype, copy=False)
        return cls(values, bounds(np.array([*map(len, lists)], np.int64)))

    @classmethod
    def concatenate(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """Return the lists of one or more parts, one part after the other."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.values for part in parts]), bounds(lengths))

    @classmethod
    def from_arrow(cls, column: pa.ListArray) -> "Ragged":
        """Wrap a column of token ids of a record batch, or of a slice of a batch."""
        offsets = column.offsets.to_numpy().astype(np.int64)
        return cls(column.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_arrow(self, list_type: pa.DataType) -> pa.ListArray:
        """Return a column of this type, without copying values."""
        return pa.ListArray.from_arrays(self.offsets.astype(np.int32), self.values, type=list_type)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """The lengths of the lists, (n,) int64."""
        return np.diff(self.offsets)

    def part(self, rows: slice) -> "Ragged":
        """Return consecutive lists, without copying values."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def take(self, indices: np.ndarray) -> "Ragged":
        """Return the lists at these indices, in this order, or the lists that a mask (n,) bool selects."""
        if indices.dtype == bool:
            indices = np.flatnonzero(indices)
        return segments(self.values, self.offsets[indices], self.lengths[indices])


def starts_run(values: np.ndarray) -> np.ndarray:
    """Return a mask of the values that begin a run of equal values, (n,) bool: the first value, and each value that
    differs from its predecessor.
    """
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def bounds(lengths: np.ndarray) -> np.ndarray:
    """Return the offsets (n + 1,) int64 of lists with these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def segments(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Ragged:
    """Return the lists values[starts[i]:starts[i] + lengths[i]], which may overlap and be in any order."""
    offsets = bounds(lengths)
    index = np.repeat(starts - offsets[:-1], lengths)
    index += np.arange(offsets[-1])
    return Ragged(values[index], offsets)
