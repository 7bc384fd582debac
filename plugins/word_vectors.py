"""Word vectors as an encoder: a text's embedding is the mean of its words' vectors, as in SentEval's bag of words.

    file -> word -> place of its row          text -> words, split at spaces -> rows of the known words -> mean

The largest files in use hold two or three million words in four gigabytes. One pass records the place of each word's
row, and a row is parsed when a text holds the word. Words are bytes, compared exactly; of a repeated word the first row
counts. Case is kept, nothing is normalized or weighted, and unknown words do not count. The embedding of a text without
known words is zero; that of an empty text is the vector of a full stop, as in SentEval's script.
"""

import functools
import json
import mmap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from clearspan.common.encoder.fingerprint import digest
from clearspan.common.encoder.sentence_encoder import Encoder
from clearspan.common.files import sha256
from clearspan.common.model_folder import EncoderError
from clearspan.common.progress import Bar
from clearspan.eval.files import head

EMPTY = "."
TEXTS = 1 << 15
"""Number of texts of a matrix product."""
AGAIN = "copy the complete file from its source again"
MOST_WORD = 1 << 12
"""Longest word of a binary file, in bytes."""
MOST_JSON = 1 << 29
"""Largest JSON file, in bytes; reading it takes about five times as much memory."""
BOM = "\ufeff".encode()
OTHERS = {
    b"\x1f\x8b": "is packed with gzip: unpack it first",
    b"PK": "is a zip archive: unpack it first",
    b"\x80": "is a pickle, which can run code and is never read: export it as text, a word and its numbers per line",
    (793712314).to_bytes(4, "little"): "is fastText's binary model: give its .vec, or export its words as text",
}
Numbers = NDArray[Any] | list[Any]


@dataclass
class Vectors:
    """The vectors of a file: their width, the place of each word's row, and a function that reads the row there."""

    path: Path
    dim: int
    places: dict[bytes, int]
    row: Callable[[int], Numbers]

    def find(self, word: bytes) -> NDArray[np.float32] | None:
        """Return the word's vector, float32 (dim,); None for an unknown word.

        Raises:
            EncoderError: the word's row is damaged.
        """
        if (place := self.places.get(word)) is None:
            return None
        where = f"{self.path}: the vector of {_shown(word)}"
        try:
            with np.errstate(over="ignore"):
                row = np.array(self.row(place), np.float64).astype(np.float32)
        except ValueError:
            row = np.empty(0, np.float32)
        if row.shape != (self.dim,):
            raise EncoderError(f"{where} is not {self.dim} numbers: {AGAIN}")
        if not np.isfinite(row).all():
            raise EncoderError(f"{where} holds a NaN or an infinity: {AGAIN}")
        return row


def open_vectors(path: Path) -> Vectors:
    """Open a file of word vectors; its content determines the format.

    The formats are GloVe's text (a word and its numbers per line), word2vec's and fastText's text (the same after a
    line with the numbers of words and dimensions), word2vec's binary format, and JSON (an object of word -> list of
    numbers).

    Raises:
        EncoderError: the file has another format, is truncated, or has rows of different lengths.
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        start = file.read(1 << 16)
        if not start:
            raise EncoderError(f"{path}: is empty")
        for magic, problem in OTHERS.items():
            if start.startswith(magic):
                raise EncoderError(f"{path}: {problem}")
        if start.lstrip()[:1] == b"{" and start.lstrip()[1:].lstrip()[:1] in (b'"', b"}"):
            return _json(path)
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    line, _, rest = start.partition(b"\n")
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        number, dim = int(fields[0]), int(fields[1])
        if not dim:
            raise EncoderError(f"{path}:1: promises vectors of 0 numbers")
        if not (_is_text(rest[:4096]) and _is_numbers(rest[:4096])):
            return _binary(path, content, len(line) + 1, dim, number)
        content.seek(len(line) + 1)
        return _text(path, content, dim, number)
    if not _is_text(line):
        raise EncoderError(f"{path}: is no file of word vectors; to score a transformer, give its folder")
    content.seek(len(BOM) if line.startswith(BOM) else 0)
    dim = next((number for number, field in enumerate(reversed(fields[1:])) if not _is_number(field)), len(fields) - 1)
    if dim < 1:
        raise EncoderError(f"{path}:1: expected a word and its numbers, separated by spaces, found {_shown(line)}")
    return _text(path, content, dim)


def _json(path: Path) -> Vectors:
    if path.stat().st_size > MOST_JSON:
        raise EncoderError(f"{path}: more than {MOST_JSON:,} bytes of JSON; write it as text, a word a line")
    try:
        # Reversed, so that the first pair of a repeated word is entered last and counts.
        content = json.loads(path.read_bytes(), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
    except (ValueError, RecursionError) as error:
        raise EncoderError(f"{path}: cannot be read as JSON ({head(str(error))})") from None
    if not content:
        raise EncoderError(f"{path}: holds no word")
    rows = list(content.values())
    for word, values in content.items():
        if not isinstance(values, list) or not values or not all(type(value) in (int, float) for value in values):
            raise EncoderError(f"{path}: {head(word)} must have a list of numbers")
        if len(values) != len(rows[0]):
            raise EncoderError(f"{path}: {head(word)} has {len(values)} numbers where other words have {len(rows[0])}")
    places = {word.encode("utf-8", "surrogatepass"): number for number, word in enumerate(content)}
    return Vectors(path, len(rows[0]), places, rows.__getitem__)


def _text(path: Path, content: mmap.mmap, dim: int, number: int | None = None) -> Vectors:
    """Return the vectors of a text file, from the position of `content`.

    The last `dim` fields of a line are the numbers: GloVe's words may contain spaces.

    Args:
        number: number of words in the file's header; None without a header.

    Raises:
        EncoderError: a line has the wrong number of fields, or rows are missing.
    """
    places: dict[bytes, int] = {}
    start, count = content.tell(), 0
    for line_number, line in enumerate(iter(content.readline, b""), 1 if number is None else 2):
        row = line.rstrip(b"\r\n ")  # word2vec's and fastText's programs end each line with a space
        more = row.count(b" ") - dim
        word = row.partition(b" ")[0] if more == 0 else row.rsplit(b" ", dim)[0]
        # A word that ends in a number or a space is none: its row has too many numbers or doubled spaces.
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
        raise EncoderError(f"{path}: holds {count:,} of the {number or 1:,} words that it promises: {AGAIN}")

    def row_at(place: int) -> Numbers:
        content.seek(place)
        return list(map(float, content.readline().split()))

    return Vectors(path, dim, places, row_at)


def _binary(path: Path, content: mmap.mmap, start: int, dim: int, number: int) -> Vectors:
    """Return the vectors in word2vec's binary format: word, space, `dim` little-endian float32, at times LF."""
    places: dict[bytes, int] = {}
    for row in range(number):
        while content[start : start + 1] == b"\n":
            start += 1
        end = content.find(b" ", start, start + MOST_WORD)
        if end < 0 or end + 1 + 4 * dim > len(content):
            raise EncoderError(f"{path}: ends within word {row + 1:,} of the {number:,} that it promises: {AGAIN}")
        places.setdefault(content[start:end], end + 1)
        start = end + 1 + 4 * dim
    if not number:
        raise EncoderError(f"{path}: holds no word")
    if content[start : start + MOST_WORD].strip():
        raise EncoderError(f"{path}: goes on after the {number:,} words of {dim} numbers that it promises: {AGAIN}")
    return Vectors(path, dim, places, lambda place: np.frombuffer(content, "<f4", dim, place))


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _is_text(start: bytes) -> bool:
    """Return whether the bytes are text: binary float32 numbers nearly always contain control characters."""
    return not any(byte < 0x20 and byte not in b"\t\n\r" for byte in start)


def _is_numbers(start: bytes) -> bool:
    """Return whether only characters of numbers follow the first word."""
    row = bytes(start).partition(b"\n")[0].partition(b" ")[2]
    return not row.strip(b"0123456789+-.,eE infatyINFATY\t\r")


def _shown(data: bytes) -> str:
    return head(data[:200].decode("utf-8", "backslashreplace"))


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
            for start in range(0, len(texts), TEXTS):
                words = [text.split() or [EMPTY] for text in texts[start : start + TEXTS]]
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
    """Load a file of word vectors; see `open_vectors`.

    Raises:
        EncoderError: the file is unreadable, malformed or truncated.
    """
    try:
        return WordVectors(path)
    except OSError as error:
        raise EncoderError(f"{path}: cannot be read ({error.strerror})") from None
