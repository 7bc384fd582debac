"""What every model is to the evaluator, whatever it was loaded from, and the error of one that is none."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

POOLINGS = ("mean", "cls", "first-last", "cls-before-head")
"""Of a plain Hugging Face folder; `eval.models.pooling` says what each is."""


class Encoder(Protocol):
    """Texts to embeddings.

    Attributes:
        dim: the embeddings' width.
        fingerprint: changes with whatever decides an embedding; what the cache on disk goes by. None where that cannot
            be known (a function), so that nothing is kept.
        folder: the model's folder, for what is fine-tuned; None for word vectors and functions.
    """

    @property
    def folder(self) -> Path | None: ...

    @property
    def dim(self) -> int: ...

    @property
    def fingerprint(self) -> str | None: ...

    def encode(self, texts: Sequence[str], batch_tokens: int = 16384, progress: bool = False) -> NDArray[np.float32]:
        """Embeddings in the order of the texts: (len(texts), dim) float32.

        Raises:
            EncoderError: a text cannot be encoded.
        """
