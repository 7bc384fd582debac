"""Embed each distinct text once.

Forward passes take nearly all of the time of an evaluation, and of a search for hard negatives. An `Embedder` remembers
embeddings, and shares them with other runs through a cache on disk.
"""

import functools
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.encoder.cache import Cache
from clearspan.common.encoder.sentence_encoder import Encoder

Floats = NDArray[np.floating[Any]]
Encode = Callable[[Sequence[str]], NDArray[np.float32]]
_CHUNK = 1 << 16
"""Texts per call of the encoder; a killed run leaves its finished chunks in the cache."""
FEW = 0.01
"""A model is reported as constant if the number of different directions is below this fraction of the texts."""
MIN_WATCHED, MAX_WATCHED = 20, 100_000
"""Fewest and most texts whose embeddings are checked for a constant model; of more texts, a sample is checked."""
NOISE = 1e-6
"""Largest difference, due to float32, between the products of two equal directions with a random vector."""


def cache_of(model: Encoder, prompt: str, folder: Path | None) -> Cache | None:
    """Return the cache of a model's embeddings with a prompt; None if these embeddings are not cached.

    The embeddings of a model without a fingerprint, such as a Python function, are never cached.

    Args:
        prompt: the text that is put before each text; "" for no prompt.
        folder: the folder for the cached embeddings of all models; None to cache nothing.
    """
    key = model.cache_key(prompt) if folder else None
    return Cache(folder / key, model.dim) if folder and key else None


def encode_of(model: Encoder, prompt: str, batch_tokens: int | None, progress: bool) -> Encode:
    """Return a function that embeds texts with a model and puts the prompt before each text.

    Args:
        batch_tokens: the largest number of tokens in a batch; a longer text has a batch of its own. None for the
            model's own number.
        progress: whether to show a progress bar.
    """
    return functools.partial(model.encode_after, prompt, batch_tokens=batch_tokens, progress=progress)


class Embedder:
    """An encoder that remembers the embedding of each text.

    Args:
        encode: function from n texts to their embeddings, (n, dim), which need not have unit norm.
        cache: cached embeddings on disk, shared with other runs; None for no cache. Embeddings that are in the cache
            are not held in memory as well. Embeddings with a NaN, an infinity or only zeros are not cached, so that
            every run counts them.

    Attributes:
        num_texts: the number of texts that the encoder embedded.
        num_cached: the number of distinct texts whose embeddings came from the cache.
        num_nonfinite: the number of computed embeddings with a NaN or an infinity.
        num_zero: the number of computed embeddings that are all zeros, e.g. for a text without a known word.
        constant: the number of distinct texts in a call of `embed`, and the number of distinct directions of their
            embeddings. They are recorded if the model seems to be constant: if there is only one direction, or fewer
            directions than 1 % of the texts. Of several such calls, the call with the most texts is recorded. None if
            there is no such call. Calls with fewer than 20 distinct texts are not checked.
        encode_s: the time spent in the encoder, in seconds.
    """

    def __init__(self, encode: Encode, cache: Cache | None = None) -> None:
        self._encode = encode
        self._cache = cache
        self._rows: dict[str, int] = {}  # text -> row in the concatenation of all blocks
        self._blocks: list[NDArray[np.float32]] = list(cache.blocks) if cache else []
        self.num_texts = self.num_cached = self.num_nonfinite = self.num_zero = 0
        self.constant: tuple[int, int] | None = None
        self.encode_s = 0.0

    def embed(self, texts: Sequence[str], keep: bool = True) -> NDArray[np.float32]:
        """Return the embeddings of texts, in their order, (len(texts), dim) float32.

        Args:
            texts: at least one text.
            keep: whether to remember new embeddings for later calls. Pass False for a corpus that is embedded only
                once, so that memory does not hold its embeddings twice. If the cache accepts new embeddings, they are
                remembered anyway.

        Raises:
            ValueError: the encoder did not return one row per text.
        """
        blocks, rows = self.embed_missing(texts, keep)
        embeddings = _gathered(blocks, np.array([rows[text] for text in texts]))
        self._watch(len(set(texts)), embeddings)
        return embeddings

    def _watch(self, num_texts: int, embeddings: NDArray[np.float32]) -> None:
        """Set the attribute `constant` if the embeddings of a call of `embed` have few distinct directions.

        Args:
            num_texts: the number of distinct texts in the call.
            embeddings: the embeddings of all texts in the call, (n, dim).
        """
        if num_texts < MIN_WATCHED or (self.constant and self.constant[0] >= num_texts):
            return
        sample = embeddings[:: 1 + len(embeddings) // MAX_WATCHED]
        # Rows of different directions have different products with a random vector, which are faster to compare.
        axis = np.random.default_rng(0).standard_normal((embeddings.shape[1],), np.float32)
        steps = np.diff(np.sort((unit_vectors(sample) @ axis).astype(np.float64)))
        different = 1 + int((steps > NOISE).sum())
        if different == 1 or different < FEW * min(num_texts, len(sample)):
            self.constant = (num_texts, different)

    def embed_missing(
        self, texts: Iterable[str], keep: bool = True
    ) -> tuple[list[NDArray[np.float32]], dict[str, int]]:
        """Embed those texts whose embeddings are neither in memory nor in the cache; return all embeddings.

        Args:
            texts: the texts whose embeddings the caller needs.
            keep: whether to remember new embeddings for later calls. If the cache accepts new embeddings, they are
                remembered anyway.

        Returns:
            Arrays of embeddings, (rows, dim) float32 each, and a dict from each text to the index of its embedding in
            the concatenation of these arrays. Both also hold embeddings from earlier calls.

        Raises:
            ValueError: the encoder did not return one row per text.
        """
        keep = keep or (self._cache is not None and self._cache.accepts_new)
        rows = self._rows if keep else dict(self._rows)
        blocks = self._blocks if keep else list(self._blocks)
        new = [text for text in dict.fromkeys(texts) if text not in rows]
        if new and self._cache:
            cached = self._cache.find(new).tolist()
            rows.update((text, row) for text, row in zip(new, cached, strict=True) if row >= 0)
            self.num_cached += sum(row >= 0 for row in cached)
            new = [text for text, row in zip(new, cached, strict=True) if row < 0]
        new.sort(key=len, reverse=True)  # a chunk holds texts of similar length, as the encoder's batches do
        for start in range(0, len(new), _CHUNK):
            chunk = new[start : start + _CHUNK]
            first = sum(map(len, blocks))
            blocks.append(self._encoded(chunk))
            rows.update(zip(chunk, range(first, first + len(chunk)), strict=True))
        return blocks, rows

    def warnings(self) -> list[str]:
        """Return one line for each warning about the embeddings and the cache.

        The warnings are about embeddings with a NaN or an infinity, embeddings that are all zeros, a model that seems
        to be constant, and problems with the cache's files.
        """
        nonfinite = "hold a NaN or an infinity, which count as 0: the model is broken or overflows in this precision"
        zero = (
            "are all zeros, whose cosines count as 0: word vectors have no word of such a text (they may want other "
            "case or tokens); of another model, it is broken"
        )
        kinds = ((self.num_nonfinite, nonfinite), (self.num_zero, zero))
        warnings = [f"{num} of {self.num_texts} embeddings {problem}" for num, problem in kinds if num]
        if self.constant:
            texts, different = self.constant
            embeddings = "embedding" if different == 1 else "embeddings"
            warnings.append(
                f"{texts:,} different texts have {different:,} different {embeddings}: the model "
                "is (nearly) constant, so its scores say nothing: it may have collapsed in training, or be damaged"
            )
        return warnings + (self._cache.warnings if self._cache else [])

    def _encoded(self, texts: list[str]) -> NDArray[np.float32]:
        """Compute the embeddings of texts, (len(texts), dim) float32; cache those that are finite and not all zeros."""
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
        valid = finite & ~zero
        if valid.all():
            return self._cache.add(texts, embeddings)
        self._cache.add([text for text, is_valid in zip(texts, valid, strict=True) if is_valid], embeddings[valid])
        return embeddings


def _gathered(blocks: list[NDArray[np.float32]], rows: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the rows with these indices of the concatenation of all blocks, (len(rows), dim) float32."""
    starts = np.concatenate([[0], np.cumsum([len(block) for block in blocks])])
    block_of = np.searchsorted(starts, rows, side="right") - 1
    out = np.empty((len(rows), blocks[0].shape[1]), np.float32)
    for number in np.unique(block_of):
        places = np.flatnonzero(block_of == number)
        out[places] = blocks[number][rows[places] - starts[number]]
    return out


def finite(embeddings: Floats) -> Floats:
    """Return embeddings with NaNs and infinities replaced by 0, as SentEval's STS protocol replaces NaNs."""
    zeroed: Floats = np.nan_to_num(embeddings, nan=0, posinf=0, neginf=0)
    return zeroed


def unit_vectors(embeddings: Floats) -> Floats:
    """Return the embeddings, (n, dim), each scaled to unit L2 norm, in the same dtype.

    NaNs and infinities count as 0, and a zero row stays zero, so that its cosines are 0, as in SentEval's STS protocol.
    """
    rows = finite(embeddings)
    # In float32, squares of values above 1e19 overflow and those below 1e-23 underflow.
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))[:, None]
    unit: Floats = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0, casting="same_kind")
    return unit


def cosines(left: Floats, right: Floats) -> NDArray[np.float64]:
    """Return the cosine of each row i of `left` (n, d) with row i of `right` (n, d): (n,) float64.

    NaNs and infinities count as 0, and the cosine with a zero vector is 0, as in SentEval's STS protocol. Cosines are
    rounded to 12 decimals, because further digits are noise of float32 embeddings. With this noise, an encoder that
    maps all texts to one direction would get a correlation other than 0.
    """
    product: NDArray[np.float64] = unit_vectors(left.astype(np.float64)) * unit_vectors(right.astype(np.float64))
    cosine: NDArray[np.float64] = product.sum(axis=1).round(12)
    return cosine
