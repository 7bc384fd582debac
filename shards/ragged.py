"""Lists of different lengths as one flat array and its bounds: what a token column of a batch is, without copying."""

import dataclasses
from collections.abc import Sequence

import numpy as np
import pyarrow as pa


@dataclasses.dataclass(frozen=True)
class Ragged:
    """n lists: `values` (S,) of any one type, list i being values[offsets[i]:offsets[i + 1]]; `offsets` (n + 1,) int64.

    offsets[0] is 0 and offsets[n] is S.
    """

    values: np.ndarray
    offsets: np.ndarray

    @classmethod
    def of(cls, lists: Sequence[np.ndarray], dtype: np.dtype | type) -> "Ragged":
        """Joins separate arrays."""
        values = np.concatenate([np.empty(0, dtype), *lists]).astype(dtype, copy=False)
        return cls(values, bounds(np.array([len(one) for one in lists], np.int64)))

    @classmethod
    def concatenate(cls, parts: Sequence["Ragged"]) -> "Ragged":
        """The lists of one or more, one after another."""
        lengths = np.concatenate([part.lengths for part in parts])
        return cls(np.concatenate([part.values for part in parts]), bounds(lengths))

    @classmethod
    def from_arrow(cls, column: pa.ListArray) -> "Ragged":
        """A token column of a batch, or of a slice of one."""
        offsets = column.offsets.to_numpy().astype(np.int64)
        return cls(column.values.to_numpy()[offsets[0] : offsets[-1]], offsets - offsets[0])

    def to_arrow(self, list_type: pa.DataType) -> pa.ListArray:
        """Makes a column of that type, without copying values."""
        return pa.ListArray.from_arrays(self.offsets.astype(np.int32), self.values, type=list_type)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, index: int) -> np.ndarray:
        return self.values[self.offsets[index] : self.offsets[index + 1]]

    @property
    def lengths(self) -> np.ndarray:
        """(n,) int64."""
        return np.diff(self.offsets)

    def part(self, rows: slice) -> "Ragged":
        """Consecutive lists, their values not copied."""
        offsets = self.offsets[rows.start : rows.stop + 1]
        return Ragged(self.values[offsets[0] : offsets[-1]], offsets - offsets[0])

    def take(self, indices: np.ndarray) -> "Ragged":
        """The lists with these numbers, in this order; or, given (n,) bool, those marked."""
        if indices.dtype == bool:
            indices = np.flatnonzero(indices)
        return segments(self.values, self.offsets[indices], self.lengths[indices])


def bounds(lengths: np.ndarray) -> np.ndarray:
    """Offsets (n + 1,) int64 of lists with these lengths."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def segments(values: np.ndarray, starts: np.ndarray, lengths: np.ndarray) -> Ragged:
    """The stretches values[starts[i]:starts[i] + lengths[i]], end to end; they may overlap and be in any order."""
    offsets = bounds(lengths)
    index = np.repeat(starts - offsets[:-1], lengths)
    index += np.arange(offsets[-1])
    return Ragged(values[index], offsets)
