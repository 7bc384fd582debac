"""The features that classifiers are trained on. A batch gathers the rows of its examples.

    embeddings of sentences ──> FeatureRows: one row for each sentence
    embeddings of pairs ──────> FeatureRows: one row for each pair, if all rows fit into 256 MB
                        └─────> PairRows: computes the row of a pair when it is gathered (SNLI would take tens of GB)

The features of a row are followed by a 1, so that a layer's bias is a column of its weights. Zeros then fill the row up
to a multiple of 16 numbers, a whole number of vector registers. This padding does not affect the results.
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
    """Return the width of a row of `dim` features: `dim` + 1, rounded up to a multiple of 16.

    A row consists of the features, a 1 that is multiplied by the bias of a layer, and zeros up to the width.
    """
    return -(-(dim + 1) // _LANES) * _LANES


class FeatureRows:
    """Rows of features that are held in memory.

    Args:
        values: the n rows, (n, width) float32. A row consists of its features, a 1, and zeros up to the width.
        dim: the number of features in a row.

    Attributes:
        dim: the number of features in a row, without counting the 1 and the zeros after them.
    """

    def __init__(self, values: Tensor, dim: int) -> None:
        self.dim = dim
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def take(self, rows: Tensor, out: Tensor) -> Tensor:
        """Write the rows with the indices `rows` to `out`, and return `out`.

        Args:
            rows: the n row indices, (n,) int64.
            out: the tensor to overwrite, (n, width) float32. A row consists of its `dim` features, a 1, and zeros up to
                the width, which is `dim` + 1 rounded up to a multiple of 16.
        """
        return torch.index_select(self._values, 0, rows, out=out)


class PairRows:
    """Features of pairs, with the interface of `FeatureRows`, computed only when a batch takes them.

    The features of a pair are computed from u and v, the embeddings of its two texts.

    Args:
        table: the embeddings of m texts, (m, d).
        left, right: the row indices in `table` of the n pairs' first and second texts, (n,) int64 each.
        parts: what a row consists of, in order: `left` is u, `right` is v, `difference` is |u - v|, and `product` is
            u * v.
    """

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
    """Return features with one row for each embedding. NaN and infinities become 0.

    Args:
        embeddings: the n embeddings, (n, d).
        device: the torch device of the features.
    """
    num, dim = embeddings.shape
    values = torch.zeros(num, padded(dim), device=device)
    values[:, :dim] = _finite(embeddings, device)
    values[:, dim] = 1
    return FeatureRows(values, dim)


def of_pairs(
    table: NDArray[np.floating[Any]], left: Ints, right: Ints, parts: Sequence[str], device: str = "cpu"
) -> Features:
    """Return features with one row for each pair of embeddings u and v. NaN and infinities become 0.

    Args:
        table: the embeddings of m texts, (m, d).
        left, right: the row indices in `table` of the n pairs' first and second texts, (n,) int64 each.
        parts: what a row consists of, in order: `left` is u, `right` is v, `difference` is |u - v|, and `product` is
            u * v.
        device: the torch device of the features.
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
