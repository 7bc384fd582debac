"""Embed each distinct text once.

The STS years share many sentences among themselves and with STS-B, and the forward pass is nearly all of an
evaluation's time. Tasks therefore ask an `Embedder` for arrays instead of calling the model.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.eval.models.cache import Cache

Floats = NDArray[np.floating[Any]]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
_CHUNK = 1 << 16
"""Texts given to the encoder at once, of which a killed run has left the earlier ones in the cache."""


class Embedder:
    """A memory of text -> embedding in front of an encoder.

    Args:
        encode: n texts -> array (n, dim); its rows need not have unit norm.
        cache: where embeddings of earlier runs are found, and this one's are left; rows that are there are not held in
            memory too. One that is counted as broken, below, is not left there, so that other runs count it too.

    Attributes:
        num_texts: how many texts the encoder was given.
        num_cached: how many distinct texts were found in the cache instead.
        num_nonfinite: how many of the encoder's embeddings hold a NaN or an infinity.
        num_zero: how many of them are all zeros, as of a text of which a file of word vectors has no word.
        encode_s: seconds spent in the encoder.
    """

    def __init__(self, encode: Encode, cache: Cache | None = None) -> None:
        self._encode, self._cache = encode, cache
        self._rows: dict[str, int] = {}  # text -> its row's number, through all the blocks
        self._blocks: list[NDArray[np.float32]] = list(cache.blocks) if cache else []
        self.num_texts = 0
        self.num_cached = 0
        self.num_nonfinite = 0
        self.num_zero = 0
        self.encode_s = 0.0

    def embed(self, texts: Sequence[str], keep: bool = True) -> NDArray[np.float32]:
        """Embeddings of `texts`, float32 (len(texts), dim), row i for text i.

        Args:
            texts: at least one.
            keep: remember new embeddings for later calls. False for a corpus that one task reads once, whose embeddings
                would otherwise be held twice; what the cache took is remembered all the same.

        Raises:
            ValueError: the encoder did not return one row for each text.
        """
        keep = keep or (self._cache is not None and self._cache.takes)
        rows = self._rows if keep else dict(self._rows)
        blocks = self._blocks if keep else list(self._blocks)
        new = [text for text in dict.fromkeys(texts) if text not in rows]
        if new and self._cache:
            found = self._cache.find(new).tolist()
            rows.update((text, row) for text, row in zip(new, found, strict=True) if row >= 0)
            self.num_cached += sum(row >= 0 for row in found)
            new = [text for text, row in zip(new, found, strict=True) if row < 0]
        new.sort(key=len, reverse=True)  # a chunk holds texts of like length, as the encoder's batches will
        for start in range(0, len(new), _CHUNK):
            chunk = new[start : start + _CHUNK]
            first = sum(map(len, blocks))
            blocks.append(self._encoded(chunk))
            rows.update(zip(chunk, range(first, first + len(chunk)), strict=True))
        return _gathered(blocks, np.array([rows[text] for text in texts]))

    def _encoded(self, texts: list[str]) -> NDArray[np.float32]:
        """The encoder's rows, (len(texts), dim), which the cache is given if they are good."""
        start = time.perf_counter()
        embeddings = np.asarray(self._encode(texts), dtype=np.float32)
        self.encode_s += time.perf_counter() - start
        if embeddings.ndim != 2 or len(embeddings) != len(texts):
            raise ValueError(f"the encoder returned shape {embeddings.shape} for {len(texts)} texts")
        self.num_texts += len(texts)
        finite = np.asarray(np.isfinite(embeddings).all(axis=1))
        zero = np.asarray(~embeddings.any(axis=1))
        self.num_nonfinite += int((~finite).sum())
        self.num_zero += int(zero.sum())
        if self._cache is None:
            return embeddings
        whole = finite & ~zero
        if whole.all():
            return self._cache.add(texts, embeddings)
        self._cache.add([text for text, good in zip(texts, whole, strict=True) if good], embeddings[whole])
        return embeddings


def _gathered(blocks: list[NDArray[np.float32]], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """The rows of these numbers, which count through all the blocks: (len(rows), dim)."""
    starts = np.concatenate([[0], np.cumsum([len(block) for block in blocks])])
    which = np.searchsorted(starts, rows, side="right") - 1
    out = np.empty((len(rows), blocks[0].shape[1]), np.float32)
    for number in np.unique(which):
        here = np.flatnonzero(which == number)
        out[here] = blocks[number][rows[here] - starts[number]]
    return out


def finite(embeddings: Floats) -> Floats:
    """The same, with 0 for NaNs and infinities: as SentEval's STS protocol has NaNs, and so here everywhere."""
    zeroed: Floats = np.nan_to_num(embeddings, nan=0, posinf=0, neginf=0)
    return zeroed


def unit_vectors(embeddings: Floats) -> Floats:
    """Rows scaled to unit L2 norm, in the dtype given; a zero row stays zero.

    What is not finite counts as 0, and a cosine with a zero vector as 0, as SentEval's STS protocol has it.
    """
    rows = finite(embeddings)
    # Squares of float32 leave its range from 1e19 up and 1e-23 down, and the row would come out as zero.
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))[:, None]
    unit: Floats = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0, casting="same_kind")
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
