"""What classifiers see of the embeddings: rows of numbers, gathered into the batch as they are needed.

    table of embeddings ──> Rows       a sentence's embedding
                        ├─> PairRows   u and v of a pair, combined when gathered: SNLI's would fill tens of gigabytes
                        └─> Rows       of pairs, combined once where that is small

A row ends in a 1, so that a layer's bias is a column of its weights, and in zeros up to a whole number of vector
registers; neither changes what is computed.
"""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearspan.eval.fit.folds import Ints
from clearspan.eval.models.embed import finite

_LANES = 16
_HELD = 1 << 28  # bytes of pairs' features that are made beforehand


def padded(dim: int) -> int:
    """The width of a row of `dim` numbers with its 1 and its zeros."""
    return -(-(dim + 1) // _LANES) * _LANES


class Features(Protocol):
    """Rows that are gathered by number.

    Attributes:
        dim: how many numbers a row has, without its 1 and its zeros.
    """

    @property
    def dim(self) -> int: ...

    def __len__(self) -> int: ...

    def take(self, rows: Tensor, out: Tensor) -> Tensor:
        """Writes the rows (n,) int64 into `out` (n, padded(dim)) float32, and returns it."""


class Rows:
    """Rows that are held."""

    def __init__(self, values: Tensor, dim: int) -> None:
        self.dim = dim
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def take(self, rows: Tensor, out: Tensor) -> Tensor:
        return torch.index_select(self._values, 0, rows, out=out)


class PairRows:
    """Rows of pairs, each made of its two embeddings when it is gathered."""

    def __init__(self, table: Tensor, left: Tensor, right: Tensor, parts: Sequence[str]) -> None:
        self.dim = table.shape[1] * len(parts)
        self._table, self._left, self._right, self._parts = table, left, right, parts

    def __len__(self) -> int:
        return len(self._left)

    def take(self, rows: Tensor, out: Tensor) -> Tensor:
        u, v = self._table[self._left[rows]], self._table[self._right[rows]]
        for part, block in zip(self._parts, out[:, : self.dim].split(u.shape[1], dim=1), strict=True):
            if part == "difference":
                torch.sub(u, v, out=block).abs_()
            elif part == "product":
                torch.mul(u, v, out=block)
            else:
                block.copy_(u if part == "left" else v)
        out[:, self.dim] = 1
        out[:, self.dim + 1 :] = 0
        return out


def of_sentences(embeddings: NDArray[np.floating[Any]], device: str = "cpu") -> Features:
    """A row for each embedding (n, d). What is not finite counts as 0."""
    num, dim = embeddings.shape
    values = torch.zeros(num, padded(dim), device=device)
    values[:, :dim] = _finite(embeddings, device)
    values[:, dim] = 1
    return Rows(values, dim)


def of_pairs(
    table: NDArray[np.floating[Any]], left: Ints, right: Ints, parts: Sequence[str], device: str = "cpu"
) -> Features:
    """A row for each pair: of rows `left` (n,) and `right` (n,) of a table of embeddings (m, d), in these parts.

    What is not finite counts as 0.
    """
    pairs = PairRows(
        _finite(table, device), torch.from_numpy(left).to(device), torch.from_numpy(right).to(device), parts
    )
    if 4 * len(pairs) * padded(pairs.dim) > _HELD:
        return pairs
    values = torch.empty(len(pairs), padded(pairs.dim), device=device)
    return Rows(pairs.take(torch.arange(len(pairs), device=device), values), pairs.dim)


def _finite(embeddings: NDArray[np.floating[Any]], device: str) -> Tensor:
    return torch.from_numpy(finite(embeddings.astype(np.float32, copy=False))).to(device)
