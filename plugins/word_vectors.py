"""Word vectors as an encoder: a text's embedding is the mean of its words' vectors, as in SentEval's bag of words.

    when opened:    file -> for each word, the position of its row in the file
    for each text:  text -> words, split at whitespace -> rows of the known words -> mean

The largest files in use hold two or three million words in four gigabytes. The file is therefore scanned once for the
positions of the rows, and a row is parsed only when a text holds its word. Words are compared as bytes, exactly and
with their case. If the file repeats a word, the word's first row is used. The vectors are not normalized or weighted,
and unknown words are ignored. The embedding of a text without known words is zero; the embedding of an empty text is
the vector of a full stop, as in SentEval's script.
"""

import functools
import json
import mmap
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clearspan.common.encoder.fingerprint import digest
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.files import sha256
from clearspan.common.model_folder import EncoderError
from clearspan.common.progress import ProgressBar
from clearspan.common.records import head

EMPTY = "."
TEXTS = 1 << 15
"""Number of texts in one matrix product."""
AGAIN = "copy the complete file from its source again"
MAX_WORD = 1 << 12
"""Maximum size of a word in a binary file, in bytes."""
BOM = "\ufeff".encode()
_JSON = re.compile(rb"\s*\{\s*[\"}]")
_BINARY = re.compile(rb"[^\t\n\r\x20-\xff]")
"""Regular expression for a byte that no text holds. Binary float32 numbers nearly always contain such bytes."""
Opened = tuple[int, dict[bytes, int], Callable[[int], Any]]
"""An open file of word vectors: the vectors' dimension, word -> position of the word's row, and a function that returns
the row at a position."""


def _open(path: Path) -> Opened:
    """Open a file of word vectors. The format is detected from the content.

    The formats are GloVe's text (a word and its numbers per line), word2vec's and fastText's text (the same after a
    line with the number of words and the dimension), word2vec's binary format, and JSON (an object of word -> list of
    numbers).

    Returns:
        The dimension of the vectors; a dict from word, in UTF-8, to the position of its vector; and a function that
        returns the vector at a position.

    Raises:
        EncoderError: the file has an unknown format, is truncated, or has rows of different lengths.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(1 << 16)
        if not start:
            raise EncoderError(f"{path}: is empty")
        if _JSON.match(start):
            return _json(path)
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    line, _, rest = start.partition(b"\n")
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        number, dim = int(fields[0]), int(fields[1])
        if not dim:
            raise EncoderError(f"{path}:1: declares vectors of 0 numbers")
        content.seek(len(line) + 1)
        return (_binary if _BINARY.search(rest[:4096]) else _text)(path, content, dim, number)
    if _BINARY.search(line):
        raise EncoderError(
            f"{path}: is no file of word vectors: give text (a word and its numbers per line), word2vec's binary "
            "format or JSON, unpacked; to score a transformer, give its folder"
        )
    content.seek(len(BOM) if line.startswith(BOM) else 0)
    dim = next((number for number, field in enumerate(reversed(fields[1:])) if not _is_number(field)), len(fields) - 1)
    if dim < 1:
        raise EncoderError(f"{path}:1: expected a word and its numbers, separated by spaces, found {_shown(line)}")
    return _text(path, content, dim)


def _json(path: Path) -> Opened:
    expected = f"{path}: must be a JSON object of words, each with a list of numbers, all of one length"
    try:
        # Reversed, so that the first pair of a repeated word is entered last and counts.
        content = json.loads(path.read_bytes(), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
        table = np.array(list(content.values()))
    except (ValueError, RecursionError) as error:
        raise EncoderError(f"{expected} ({head(str(error))})") from None
    if table.ndim != 2 or table.dtype.kind not in "iuf":
        raise EncoderError(expected)
    places = {word.encode("utf-8", "surrogatepass"): number for number, word in enumerate(content)}
    return table.shape[1], places, table.__getitem__


def _text(path: Path, content: mmap.mmap, dim: int, number: int | None = None) -> Opened:
    """Open a text file of word vectors, whose rows begin at the current position of `content`.

    The numbers are the last `dim` fields of a line, and the word is everything before them, because GloVe's words may
    contain spaces.

    Args:
        path: the path of the file, for error messages.
        content: the bytes of the file.
        dim: the dimension of the vectors.
        number: the number of words that the file's header states; None if the file has no header.

    Returns:
        `dim`; a dict from word, in UTF-8, to the position of its vector; a function that returns the vector at a
        position.

    Raises:
        EncoderError: a line has the wrong number of fields, or rows are missing.
    """
    places: dict[bytes, int] = {}
    start, count = content.tell(), 0
    for line_number, line in enumerate(iter(content.readline, b""), 1 if number is None else 2):
        row = line.rstrip(b"\r\n ")  # word2vec's and fastText's programs end each line with a space
        more = row.count(b" ") - dim
        word = row.partition(b" ")[0] if more == 0 else row.rsplit(b" ", dim)[0]
        # If the word ends in a number or a space, the row has too many numbers or doubled spaces.
        if row and (more < 0 or (more > 0 and _is_number(word.rpartition(b" ")[2] or b"0"))):
            raise EncoderError(
                f"{path}:{line_number}: expected a word and {dim} numbers, separated by single spaces, found "
                f"{row.count(b' ') + 1} fields: {_shown(row)}: {AGAIN}"
            )
        if row:
            places.setdefault(word, start + len(word) + 1)
            count += 1
        start += len(line)
    if count < (number or 1):
        raise EncoderError(f"{path}: holds {count:,} of the {number or 1:,} words that it declares: {AGAIN}")

    def row_at(place: int) -> list[float]:
        content.seek(place)
        return list(map(float, content.readline().split()))

    return dim, places, row_at


def _binary(path: Path, content: mmap.mmap, dim: int, number: int) -> Opened:
    """Open a file in word2vec's binary format, whose rows begin at the current position of `content`.

    A row is a word, a space, `dim` little-endian float32 numbers and an optional line break.

    Args:
        path: the path of the file, for error messages.
        content: the bytes of the file.
        dim: the dimension of the vectors that the file's header states.
        number: the number of words that the header states.

    Returns:
        `dim`; a dict from word, in UTF-8, to the position of its vector; a function that returns the vector at a
        position.

    Raises:
        EncoderError: the file is shorter or longer than the header states.
    """
    places: dict[bytes, int] = {}
    start = content.tell()
    for row in range(number):
        while content[start : start + 1] == b"\n":
            start += 1
        end = content.find(b" ", start, start + MAX_WORD)
        if end < 0 or end + 1 + 4 * dim > len(content):
            raise EncoderError(f"{path}: ends within word {row + 1:,} of the {number:,} that it declares: {AGAIN}")
        places.setdefault(content[start:end], end + 1)
        start = end + 1 + 4 * dim
    if content[start : start + MAX_WORD].strip():
        raise EncoderError(f"{path}: goes on after the {number:,} words of {dim} numbers that it declares: {AGAIN}")
    return dim, places, lambda place: np.frombuffer(content, "<f4", dim, place)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _shown(data: bytes) -> str:
    return head(data[:200].decode("utf-8", "backslashreplace"))


class WordVectors(Encoder):
    """Encoder that embeds a text as the mean of the vectors of its words. The vectors are read from a file.

    Args:
        path: the file, in a format of GloVe, word2vec or fastText, or in JSON.

    Attributes:
        dim: the dimension of the vectors.
        folder: the model's folder; always None, because word vectors are a single file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.dim, self._places, self._row = _open(path)
        self._numbers: dict[str, int] = {}  # word -> row of the table; -1 for an unknown word
        self._table = np.empty((0, self.dim), np.float32)

    @functools.cached_property
    def fingerprint(self) -> str | None:
        """A hash of everything that affects the embeddings: the file's content, and the way in which it is used."""
        return digest(file=sha256(self._path), settings={"pooling": "mean of known words", "empty": EMPTY})

    def encode_list(self, texts: list[str], batch_tokens: int, progress: bool) -> NDArray[np.float32]:
        """Return the embeddings of n texts, (n, dim) float32. The vectors of all words seen so far stay in memory.

        Args:
            batch_tokens: not used; other encoders limit their batches by it.
            progress: whether to show a progress bar.

        Raises:
            EncoderError: the row of a word is damaged.
        """
        out = np.empty((len(texts), self.dim), np.float32)
        with ProgressBar(len(texts), f"embedding {len(texts):,} texts", not progress) as bar:
            for start in range(0, len(texts), TEXTS):
                words = [text.split() or [EMPTY] for text in texts[start : start + TEXTS]]
                self._read(words)
                out[start : start + len(words)] = self._means(words)
                bar.update(len(words))
        return out

    def _read(self, texts: list[list[str]]) -> None:
        new = dict.fromkeys(word for words in texts for word in words if word not in self._numbers)
        places = {word: self._places.get(word.encode("utf-8", "surrogatepass")) for word in new}
        rows = {word: self._vector(word, place) for word, place in places.items() if place is not None}
        self._numbers |= dict.fromkeys(new, -1) | {word: len(self._table) + row for row, word in enumerate(rows)}
        if rows:
            self._table = np.concatenate([self._table, [*rows.values()]])

    def _vector(self, word: str, place: int) -> NDArray[np.float32]:
        """Return the vector of a word, (dim,) float32.

        Args:
            word: the word, for an error message.
            place: the position of the word's row in the file.

        Raises:
            EncoderError: the row is damaged.
        """
        try:
            with np.errstate(over="ignore"):
                row = np.array(self._row(place), np.float64).astype(np.float32)
        except ValueError:
            row = np.empty(0, np.float32)
        if row.shape != (self.dim,) or not np.isfinite(row).all():
            raise EncoderError(f"{self._path}: the vector of {head(word)} is not {self.dim} finite numbers: {AGAIN}")
        return row

    def _means(self, texts: list[list[str]]) -> NDArray[np.float64]:
        known = [[number for word in words if (number := self._numbers[word]) >= 0] for words in texts]
        counts = np.array([len(numbers) for numbers in known])
        numbers = np.array([number for row in known for number in row], np.int64)
        # A sparse matrix counts the words of each text; an empty row yields zeros.
        ends = np.cumsum([0, *counts])
        sums = csr_array((np.ones(len(numbers)), numbers, ends), shape=(len(texts), len(self._table))) @ self._table
        means: NDArray[np.float64] = sums / np.maximum(counts, 1)[:, None]
        return means


def load_word_vectors(path: Path) -> WordVectors:
    """Return the encoder for a file of word vectors in a format of GloVe, word2vec or fastText, or in JSON.

    Raises:
        EncoderError: the file is unreadable, malformed or truncated.
    """
    try:
        return WordVectors(path)
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read ({error.strerror})") from None
