"""The interface of every model that the evaluator scores, whatever it was loaded from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

POOLINGS = ("mean", "cls", "first-last", "cls-before-head")
"""Poolings of a plain Hugging Face folder; `common.encoder.pooling` defines them."""


class Encoder(Protocol):
    """A model that embeds texts.

    Attributes:
        dim: the width of the embeddings.
        fingerprint: hash of everything that affects an embedding, the key of the cache on disk. None if that cannot be
            determined (for a function): nothing is cached.
        folder: the model's folder, which fine-tuning needs; None for word vectors and functions.
    """

    @property
    def folder(self) -> Path | None: ...

    @property
    def dim(self) -> int: ...

    @property
    def fingerprint(self) -> str | None: ...

    def encode(self, texts: Sequence[str], batch_tokens: int = 16384, progress: bool = False) -> NDArray[np.float32]:
        """Return the embeddings of the texts, in their order: (len(texts), dim) float32; of a single text, (dim,).

        Raises:
            EncoderError: a text cannot be encoded.
        """
