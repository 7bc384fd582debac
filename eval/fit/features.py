"""The features of classifiers: rows of numbers, gathered into batches.

    table of embeddings ──> FeatureRows   sentences: one embedding per row
                        ├─> PairRows      pairs u, v, combined when gathered: in advance, SNLI's would take tens of GB
                        └─> FeatureRows   pairs, combined in advance if they are small

A row ends with a 1, so that a layer's bias is a column of its weights, and is padded with zeros to a whole number of
vector registers; neither affects the results.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearspan.common.encoder.embedder import finite
from clearspan.eval.fit.folds import Ints

_LANES = 16
_MOST_BYTES = 1 << 28  # limit for pair features that are combined in advance


def padded(dim: int) -> int:
    """Return the width of a row of `dim` numbers, including the final 1 and the padding."""
    return -(-(dim + 1) // _LANES) * _LANES


class FeatureRows:
    """Rows in memory, gathered by their indices.

    Attributes:
        dim: width of a row without its 1 and its padding.
    """

    def __init__(self, values: Tensor, dim: int) -> None:
        self.dim = dim
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def take(self, rows: Tensor, out: Tensor) -> Tensor:
        """Write the rows with the numbers (n,) int64 to `out` (n, padded(dim)) float32, and return it."""
        return torch.index_select(self._values, 0, rows, out=out)


class PairRows:
    """Rows of pairs, used like `FeatureRows`; each row is computed from its two embeddings when it is gathered."""

    def __init__(self, table: Tensor, left: Tensor, right: Tensor, parts: Sequence[str]) -> None:
        self.dim = table.shape[1] * len(parts)
        self._table = table
        self._left = left
        self._right = right
        self._parts = parts

    def __len__(self) -> int:
        return len(self._left)

    def take(self, rows: Tensor, out: Tensor) -> Tensor:
        u, v = self._table[self._left[rows]], self._table[self._right[rows]]
        for part, block in zip(self._parts, torch.split(out[:, : self.dim], u.shape[1], dim=1), strict=True):
            if part == "difference":
                torch.sub(u, v, out=block).abs_()
            elif part == "product":
                torch.mul(u, v, out=block)
            else:
                block.copy_(u if part == "left" else v)
        out[:, self.dim] = 1
        out[:, self.dim + 1 :] = 0
        return out


Features = FeatureRows | PairRows


def of_sentences(embeddings: NDArray[np.floating[Any]], device: str = "cpu") -> Features:
    """Return a row for each embedding (n, d). NaNs and infinities count as 0."""
    num, dim = embeddings.shape
    values = torch.zeros(num, padded(dim), device=device)
    values[:, :dim] = _finite(embeddings, device)
    values[:, dim] = 1
    return FeatureRows(values, dim)


def of_pairs(
    table: NDArray[np.floating[Any]], left: Ints, right: Ints, parts: Sequence[str], device: str = "cpu"
) -> Features:
    """Return a row for each pair of embeddings; NaNs and infinities count as 0.

    Args:
        table: embeddings (m, d).
        left, right: (n,) the rows of `table` that form the pairs.
        parts: the blocks of a row: `left`, `right`, `difference` (absolute) or `product`.
    """
    pairs = PairRows(
        _finite(table, device), torch.from_numpy(left).to(device), torch.from_numpy(right).to(device), parts
    )
    if 4 * len(pairs) * padded(pairs.dim) > _MOST_BYTES:
        return pairs
    values = torch.empty(len(pairs), padded(pairs.dim), device=device)
    return FeatureRows(pairs.take(torch.arange(len(pairs), device=device), values), pairs.dim)


def _finite(embeddings: NDArray[np.floating[Any]], device: str) -> Tensor:
    return torch.from_numpy(finite(embeddings.astype(np.float32, copy=False))).to(device)
