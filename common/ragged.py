"""Lists of different lengths, stored as a flat array and offsets.

Arrow's list columns have the same layout, so the values are converted without a copy.
"""

import dataclasses
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class Ragged:
    """A sequence of n lists; list i is values[offsets[i]:offsets[i + 1]].

    Attributes:
        values: the s values of all lists, one list after the other, (s,) of any dtype.
        offsets: the start of each list in `values`, followed by s, (n + 1,) int64.
    """

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, lists: Sequence[np.ndarray], dtype: np.dtype | type) -> "Ragged":
        """Create an instance from lists that are separate arrays; convert their values to `dtype`."""
        values = np.concatenate([np.empty(0, dtype), *lists]).astype(dtype, copy=False)
        return cls(values, bounds(np.array([*map(len, lists)], np.int64)))

    @classmethod
    def concatenate(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """Create an instance with the lists of one or more instances, one instance after the other."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.values for part in parts]), bounds(lengths))

    @classmethod
    def from_arrow(cls, column: pa.ListArray) -> "Ragged":
        """Create an instance from an Arrow list column, which may be a slice, without copying values."""
        offsets = column.offsets.to_numpy().astype(np.int64)
        return cls(column.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_arrow(self, list_type: pa.DataType) -> pa.ListArray:
        """Return the lists as an Arrow column of type `list_type`, without copying values."""
        return pa.ListArray.from_arrays(self.offsets.astype(np.int32), self.values, type=list_type)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[np.ndarray]:
        return map(self.__getitem__, range(len(self)))

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """The length of each list, (n,) int64."""
        return np.diff(self.offsets)

    def slice(self, rows: slice) -> "Ragged":
        """Return consecutive lists, without copying values; the slice `rows` has a start and a stop, but no step."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def take(self, indices: np.ndarray) -> "Ragged":
        """Return the lists with the given indices, in the given order; `indices` may also be a mask, (n,) bool."""
        if indices.dtype == bool:
            indices = np.flatnonzero(indices)
        return segments(self.values, self.offsets[indices], self.lengths[indices])


def is_run_start(values: np.ndarray) -> np.ndarray:
    """Return a mask of n values, (n,) bool: true for a value that differs from the one before it, and for the first."""
    return np.append(True, values[1:] != values[:-1])[: len(values)]


def bounds(lengths: np.ndarray) -> np.ndarray:
    """Return the offsets of a `Ragged` with n lists, (n + 1,) int64.

    They are the start of each list in the flat array of all values, followed by the array's length.

    Args:
        lengths: the length of each list, (n,).
    """
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def segments(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Ragged:
    """Return n lists; list i is values[starts[i] : starts[i] + lengths[i]]. They may overlap and be in any order.

    Args:
        values: the values, of which some may be in no list, (s,) of any dtype.
        starts: the start of each list in `values`, (n,) int64.
        lengths: the length of each list, (n,) int64.
    """
    offsets = bounds(lengths)
    index = np.repeat(starts - offsets[:-1], lengths)
    index += np.arange(offsets[-1])
    return Ragged(values[index], offsets)
