"""The interface of every model that the evaluator scores, whatever it was loaded from."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearspan.common.model_folder import EncoderError

POOLINGS = ("mean", "cls", "first-last", "cls-before-head")
"""Poolings of a plain Hugging Face folder; `common.encoder.pooling` defines them."""


class Encoder(ABC):
    """A model that embeds texts.

    Attributes:
        dim: the width of the embeddings.
        folder: the model's folder, which fine-tuning needs; None for word vectors and functions.
    """

    dim: int
    folder: Path | None = None

    @property
    @abstractmethod
    def fingerprint(self) -> str | None:
        """Hash of everything that affects an embedding, the key of the cache on disk. None if that cannot be determined
        (for a function): nothing is cached.
        """

    def encode(
        self, texts: str | Iterable[str], batch_tokens: int = 16384, progress: bool = False
    ) -> NDArray[np.float32]:
        """Return the embeddings of n texts, in their order: (n, dim) float32; of a single text, (dim,).

        Batches hold texts of similar length, at most `batch_tokens` tokens including padding (a longer text has a batch
        of its own).

        Raises:
            EncoderError: a text cannot be encoded, or is no text.
        """
        if isinstance(texts, str):
            return self.encode_list([texts], batch_tokens, progress).reshape(self.dim)
        return self.encode_list(listed(texts), batch_tokens, progress)

    @abstractmethod
    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> NDArray[np.float32]:
        """Return the embeddings of texts as `encode` does."""


def listed(texts: Iterable[str]) -> list[str]:
    """Return texts as a list. Raise EncoderError if they are no texts."""
    rows = list(texts) if isinstance(texts, Iterable) else [texts]
    if other := [type(text).__name__ for text in rows if not isinstance(text, str)]:
        raise EncoderError(f"texts must be a text or several, not {other[0]}")
    return rows
