"""Word vectors as an encoder: a text's embedding is the mean of its words' vectors, as in SentEval's bag of words.

    text ──> words, split at spaces ──> vectors of the known words ──> mean

Case is kept, nothing is normalized or weighted, and unknown words do not count. The embedding of a text without known
words is zero; that of an empty text is the vector of a full stop, as in SentEval's script.
"""

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clearspan.common.encoder.fingerprint import digest
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.files import sha256
from clearspan.common.model_folder import EncoderError
from clearspan.common.progress import Bar
from clearspan.eval.models.vector_files import open_vectors

EMPTY = "."
_CHUNK = 1 << 15  # texts per matrix product


class WordVectors(Encoder):
    """An encoder of a file of word vectors. Attributes: `dim`, the vectors' width; `folder`, None."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._vectors = open_vectors(path)
        self.dim = self._vectors.dim
        self._numbers: dict[str, int] = {}  # word -> row of the table; -1 for an unknown word
        self._table = np.empty((0, self.dim), np.float32)

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """Hash of the file and of the pooling."""
        return digest(file=sha256(self._path), settings={"pooling": "mean of known words", "empty": EMPTY})

    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> NDArray[np.float32]:
        """Return the embeddings of texts.

        Keeps the vectors of all words seen so far in memory.

        Raises:
            EncoderError: the row of a word is damaged.
        """
        out = np.empty((len(texts), self.dim), np.float32)
        with Bar(len(texts), f"embedding {len(texts):,} texts", not progress, desc="encode") as bar:
            for start in range(0, len(texts), _CHUNK):
                words = [text.split() or [EMPTY] for text in texts[start : start + _CHUNK]]
                self._read(words)
                out[start : start + len(words)] = self._means(words)
                bar.update(len(words))
        return out

    def _read(self, texts: list[list[str]]) -> None:
        rows: list[NDArray[np.float32]] = []
        for word in {word: None for words in texts for word in words}:
            if word in self._numbers:
                continue
            row = self._vectors.find(word.encode("utf-8", "surrogatepass"))
            self._numbers[word] = -1 if row is None else len(self._table) + len(rows)
            if row is not None:
                rows.append(row)
        if rows:
            self._table = np.concatenate([self._table, rows])

    def _means(self, texts: list[list[str]]) -> NDArray[np.float64]:
        known = [[number for word in words if (number := self._numbers[word]) >= 0] for words in texts]
        counts = np.array([len(numbers) for numbers in known])
        ends = np.concatenate([[0], np.cumsum(counts)])
        numbers = np.array([number for row in known for number in row], np.int64)
        # A sparse matrix counts the words of each text; an empty row yields zeros.
        sums = csr_array((np.ones(len(numbers)), numbers, ends), shape=(len(texts), len(self._table))) @ self._table
        means: NDArray[np.float64] = sums / np.maximum(counts, 1)[:, None]
        return means


def load(path: Path) -> WordVectors:
    """Load a file of word vectors; see `eval.models.vector_files.open_vectors`.

    Raises:
        EncoderError: the file is unreadable, malformed or truncated.
    """
    try:
        return WordVectors(path)
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read ({error.strerror})") from None
