"""Embed each distinct text once.

The STS years share many sentences among themselves and with STS-B, and the forward pass is nearly all of an
evaluation's time. Tasks therefore ask an `Embedder` for arrays instead of calling the model.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]


class Embedder:
    """A memory of text -> embedding in front of an encoder.

    Args:
        encode: n texts -> array (n, dim); its rows need not have unit norm.

    Attributes:
        num_texts: how many texts the encoder was given.
        num_nonfinite: how many of their embeddings hold a NaN or an infinity.
        encode_s: seconds spent in the encoder.
    """

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._rows: dict[str, NDArray[np.float32]] = {}
        self.num_texts = 0
        self.num_nonfinite = 0
        self.encode_s = 0.0

    def embed(self, texts: Sequence[str], keep: bool = True) -> NDArray[np.float32]:
        """Embeddings of `texts`, float32 (len(texts), dim), row i for text i.

        Args:
            texts: at least one.
            keep: remember new embeddings for later calls. False for a corpus that one task reads once, whose embeddings
                would otherwise be held twice.

        Raises:
            ValueError: the encoder did not return one row for each text.
        """
        new = [text for text in dict.fromkeys(texts) if text not in self._rows]
        rows = self._rows if keep else dict(self._rows)
        if new:
            start = time.perf_counter()
            embeddings = np.asarray(self._encode(new), dtype=np.float32)
            self.encode_s += time.perf_counter() - start
            if embeddings.ndim != 2 or len(embeddings) != len(new):
                raise ValueError(f"the encoder returned shape {embeddings.shape} for {len(new)} texts")
            self.num_texts += len(new)
            self.num_nonfinite += int((~np.isfinite(embeddings).all(axis=1)).sum())
            rows.update(zip(new, embeddings, strict=True))
        return np.stack([rows[text] for text in texts])


def unit_vectors(embeddings: Floats) -> Floats:
    """Rows scaled to unit L2 norm, in the dtype given; a zero row stays zero.

    NaNs count as 0 and a cosine with a zero vector as 0, as SentEval's STS protocol has it.
    """
    finite: Floats = np.nan_to_num(embeddings)
    norms = np.linalg.norm(finite, axis=1, keepdims=True)
    unit: Floats = np.divide(finite, norms, out=np.zeros_like(finite), where=norms > 0)
    return unit


def batches_by_length(lengths: list[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers, longest first, in batches of at most `batch_tokens` tokens when padded to their longest.

    A batch also ends where lengths fall under seven eighths of its longest: of few and large batches padding would take
    a quarter.
    """
    rows: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        longest = lengths[rows[0]] if rows else 0
        if rows and (longest * (len(rows) + 1) > batch_tokens or lengths[row] < longest * 7 // 8):
            yield rows
            rows = []
        rows.append(row)
    if rows:
        yield rows
