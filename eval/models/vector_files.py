"""Read files of word vectors lazily: a vector is parsed when its word is looked up.

    file ──> open_vectors ──> index of words: hash, offset in the file ──> find(word) ──> its row is parsed

The largest files in use hold two or three million words in four gigabytes. So one pass records the offset of each row
and counts its fields, sixteen bytes a word stay in memory, and `find` parses a row. Words are bytes, compared exactly;
of a repeated word the first row counts.
"""

import json
import mmap
from array import array
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from clearspan.common.model_folder import EncoderError
from clearspan.eval.files import head

Row = NDArray[np.float32]
Places = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Offset of each row in the file, and length of its word, in bytes."""
AGAIN = "copy the complete file from its source again"
CHUNK = 1 << 24
MOST_WORD = 1 << 12
"""Longest word of a binary file, in bytes."""
MOST_JSON = 1 << 29
"""Largest JSON file, in bytes; reading it takes about five times as much memory."""
_BOM = "\ufeff".encode()
OTHERS = {
    b"\x1f\x8b": "is packed with gzip: unpack it first",
    b"PK": "is a zip archive: unpack it first",
    b"\x80": "is a pickle, which can run code and is never read: export it as text, a word and its numbers per line",
    (793712314).to_bytes(4, "little"): "is fastText's binary model: give its .vec, or export its words as text",
}


class Vectors(Protocol):
    """Word vectors. Attribute: `dim`, their width."""

    @property
    def dim(self) -> int: ...

    def find(self, word: bytes) -> Row | None:
        """Return the word's vector, float32 (dim,); None for an unknown word.

        Raises:
            EncoderError: the word's row is damaged.
        """


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
            return _Json(path)
        content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    line, _, rest = start.partition(b"\n")
    fields = line.split()
    if len(fields) == 2 and all(field.isdigit() for field in fields):
        number, dim = int(fields[0]), int(fields[1])
        if not dim:
            raise EncoderError(f"{path}:1: promises vectors of 0 numbers")
        if _is_text(rest[:4096]) and _is_numbers(rest[:4096]):
            return _Rows(path, content, dim, _text_rows(path, content, len(line) + 1, dim, number), first_line=2)
        return _Rows(path, content, dim, _binary_rows(path, content, len(line) + 1, dim, number))
    if not _is_text(line):
        raise EncoderError(f"{path}: is no file of word vectors; to score a transformer, give its folder")
    dim = _dim_of(fields)
    if not dim:
        raise EncoderError(f"{path}:1: expected a word and its numbers, separated by spaces, found {_shown(line)}")
    return _Rows(path, content, dim, _text_rows(path, content, 0, dim), first_line=1)


class _Json:
    def __init__(self, path: Path) -> None:
        if path.stat().st_size > MOST_JSON:
            raise EncoderError(f"{path}: more than {MOST_JSON:,} bytes of JSON; write it as text, a word a line")
        try:
            # Reversed, so that the first pair of a repeated word is entered last and counts.
            content = json.loads(path.read_bytes(), object_pairs_hook=lambda pairs: dict(reversed(pairs)))
        except (ValueError, RecursionError) as error:
            raise EncoderError(f"{path}: cannot be read as JSON ({head(str(error))})") from None
        if not content:
            raise EncoderError(f"{path}: holds no word")
        dim = None
        for word, values in content.items():
            if not isinstance(values, list) or not values or not all(type(value) in (int, float) for value in values):
                raise EncoderError(f"{path}: {head(word)} must have a list of numbers")
            dim = dim or len(values)
            if len(values) != dim:
                raise EncoderError(f"{path}: {head(word)} has {len(values)} numbers where other words have {dim}")
        self._path, self.dim = path, int(dim or 0)
        self._numbers = {word.encode("utf-8", "surrogatepass"): number for number, word in enumerate(content)}
        with np.errstate(over="ignore"):
            self._table = np.array(list(content.values()), np.float64).astype(np.float32)

    def find(self, word: bytes) -> Row | None:
        number = self._numbers.get(word)
        if number is None:
            return None
        return _finite(self._table[number], f"{self._path}", word)


class _Rows:
    """Rows of a memory-mapped file; `first_line` is the line number of the first row in a text, 0 in a binary file."""

    def __init__(self, path: Path, content: mmap.mmap, dim: int, places: Places, first_line: int = 0) -> None:
        self._path, self._content, self.dim, self._first_line = path, content, dim, first_line
        self._starts, self._lengths = places
        ends = self._starts + self._lengths
        bounds = zip(self._starts.tolist(), ends.tolist(), strict=True)
        keys = np.fromiter((hash(content[start:end]) for start, end in bounds), np.int64, len(ends))
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]

    def find(self, word: bytes) -> Row | None:
        key = hash(word)
        place = int(np.searchsorted(self._keys, key))
        while place < len(self._keys) and self._keys[place] == key:
            number = int(self._order[place])
            start = int(self._starts[number])
            end = start + int(self._lengths[number])
            if self._content[start:end] == word:
                return self._row(number, end + 1, word)
            place += 1
        return None

    def _row(self, number: int, start: int, word: bytes) -> Row:
        if not self._first_line:
            row = np.frombuffer(self._content, "<f4", self.dim, start).astype(np.float32)
            return _finite(row, f"{self._path}: vector {number + 1:,}", word)
        where = f"{self._path}:{self._first_line + number}"
        end = self._content.find(b"\n", start)
        values = self._content[start : end if end >= 0 else len(self._content)].split()
        try:
            with np.errstate(over="ignore"):
                row = np.array(list(map(float, values)), np.float64).astype(np.float32)
        except ValueError:
            row = np.empty(0, np.float32)
        if len(row) != self.dim:
            raise EncoderError(f"{where}: expected {self.dim} numbers after {_shown(word)}: {AGAIN}")
        return _finite(row, where, word)


def _text_rows(path: Path, content: mmap.mmap, start: int, dim: int, number: int | None = None) -> Places:
    """Return the places of a text file's rows, from byte `start`.

    The last `dim` fields of a line are the numbers: GloVe's words may contain spaces.

    Args:
        number: number of words in the file's header; None without a header.

    Raises:
        EncoderError: a line has the wrong number of fields, or rows are missing.
    """
    starts, lengths, count = [], [], 0
    first_line = 1 if number is None else 2
    size = len(content)
    if not start and content[:3] == _BOM:
        start = 3
    while size > start and content[size - 1] in b"\r\n ":
        size -= 1  # strip the end of the last line, and empty lines after it
    while start < size:
        stop = size if start + CHUNK >= size else content.rfind(b"\n", start, start + CHUNK) + 1
        if not stop:
            raise EncoderError(f"{path}: has a line of more than {CHUNK:,} bytes, too long for a word and its numbers")
        chunk = np.frombuffer(content, np.uint8, stop - start, start)
        ends = np.flatnonzero(chunk == 0x0A)
        if stop == size:
            ends = np.append(ends, len(chunk))
        begins = np.concatenate([[0], ends[:-1] + 1])
        for blank in (0x0D, 0x20):  # CR LF; word2vec's and fastText's programs end each line with a space
            ends = ends - ((ends > begins) & (chunk[np.maximum(ends - 1, 0)] == blank))
        spaces = np.flatnonzero(chunk == 0x20)
        before, up_to = np.searchsorted(spaces, begins), np.searchsorted(spaces, ends)
        num_spaces = up_to - before
        if (num_spaces < dim).any():
            row = int(np.argmax(num_spaces < dim))
            line = chunk[begins[row] : ends[row]].tobytes()
            raise EncoderError(
                f"{path}:{first_line + count + row}: expected a word and {dim} numbers, found {num_spaces[row] + 1} "
                f"fields: {_shown(line)}: {AGAIN}"
            )
        words = spaces[up_to - dim]
        for row in np.flatnonzero(num_spaces > dim).tolist():
            if _ends_in_number(chunk[begins[row] : words[row]].tobytes()):
                line = chunk[begins[row] : ends[row]].tobytes()
                raise EncoderError(
                    f"{path}:{first_line + count + row}: expected a word and {dim} numbers, separated by "
                    f"single spaces, found {num_spaces[row] + 1} fields: {_shown(line)}: {AGAIN}"
                )
        starts.append(begins + start)
        lengths.append(words - begins)
        start, count = stop, count + len(begins)
    if count < (number or 1):
        raise EncoderError(f"{path}: holds {count:,} of the {number or 1:,} words that it promises: {AGAIN}")
    return np.concatenate(starts), np.concatenate(lengths)


def _binary_rows(path: Path, content: mmap.mmap, start: int, dim: int, number: int) -> Places:
    """Return the places of rows in word2vec's binary format: word, space, `dim` little-endian float32, at times LF."""
    starts, lengths = array("q"), array("q")
    for row in range(number):
        while content[start : start + 1] == b"\n":
            start += 1
        end = content.find(b" ", start, start + MOST_WORD)
        if end < 0 or end + 1 + 4 * dim > len(content):
            raise EncoderError(f"{path}: ends within word {row + 1:,} of the {number:,} that it promises: {AGAIN}")
        starts.append(start)
        lengths.append(end - start)
        start = end + 1 + 4 * dim
    if not number:
        raise EncoderError(f"{path}: holds no word")
    if content[start : start + MOST_WORD].strip():
        raise EncoderError(f"{path}: goes on after the {number:,} words of {dim} numbers that it promises: {AGAIN}")
    return np.frombuffer(starts, np.int64), np.frombuffer(lengths, np.int64)


def _ends_in_number(word: bytes) -> bool:
    """Return whether a word with spaces ends in a number or a space.

    Then its row has too many numbers or doubled spaces, and no text could contain the word.
    """
    last = word.rpartition(b" ")[2]
    try:
        float(last or b"0")
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


def _dim_of(fields: list[bytes]) -> int:
    """Return how many fields at the end are numbers; the first field is always the word."""
    count = 0
    for field in reversed(fields[1:]):
        try:
            float(field)
        except ValueError:
            break
        count += 1
    return count


def _finite(row: Row, where: str, word: bytes) -> Row:
    if not np.isfinite(row).all():
        raise EncoderError(f"{where}: the vector of {_shown(word)} holds a NaN or an infinity: {AGAIN}")
    return row


def _shown(data: bytes) -> str:
    return head(data[:200].decode("utf-8", "backslashreplace"))
