"""Texts that must not occur in a corpus, such as the sentences of a test set: which documents hold one of them.

    text -> lower case, words only -> every 8 words in a row -> 64-bit hashes -> met in a document: the document goes

A word is a run of letters and digits; all else separates ("don't" is "don", "t"). A text of 8 words or more is met
where any 8 of its words in a row are. One of 4 to 7 words is met where it is a whole sentence or line; among sentences
so is each such sentence of a longer text (a document is not given up for "that is not good"). One below 4 words is not
looked for (it would be met everywhere), and is counted. Languages written without spaces have no words here, and
nothing of them is met.
"""

import collections
import contextlib
import csv
import dataclasses
import hashlib
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from pipelines.errors import PipelineError
from pipelines.readers.content import look
from pipelines.readers.jsonl import parse_any
from pipelines.readers.streams import BOM, check_holes, naming, opened
from shards import storage

NGRAM = 8
SHORTEST = 4
TABLE_LINES = 100
"""The first lines of a csv file tell what parts its cells."""
csv.field_size_limit(1 << 26)
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
_FOREIGN = re.compile(r"[^\w\x00-\x7f]+")
_NEWLINE, _STOP, _SPACE = 1, 2, 4
_IS_WORD = np.array([byte >= 128 or chr(byte).isalnum() for byte in range(256)])
_MARKS = np.zeros(256, np.uint8)
_MARKS[list(b" \t\f\v\r\n")] |= _SPACE
_MARKS[list(b"\r\n")] |= _NEWLINE
_MARKS[list(b".!?")] |= _STOP
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MIX = np.uint64(0xD6E8FEB86659FD93)
_FILTER_BITS = 22


def _powers(size: int) -> tuple[np.ndarray, np.ndarray]:
    """_ODD and its inverse modulo 2^64, to the powers 0..size-1."""
    inverse = np.uint64(pow(int(_ODD), -1, 1 << 64))
    ones = np.ones(1, np.uint64)
    return tuple(np.cumprod(np.concatenate([ones, np.full(size - 1, base)])) for base in (_ODD, inverse))  # type: ignore


class _Words:
    """A text's words, and hashes of runs of them from sums over its bytes: no run is looked at twice.

    The hash of bytes a..b is sum((byte + 1) * ODD^(i - a)) modulo 2^64, mixed; ODD is invertible, so prefix sums give
    it for any a and b.
    """

    _up, _down = _powers(1 << 12)

    def __init__(self, text: str) -> None:
        text = text.lower()
        if not text.isascii():
            text = _FOREIGN.sub(" ", text)
        data = np.frombuffer(text.encode("utf-8", "replace"), np.uint8)
        is_word = _IS_WORD[data]
        edges = np.flatnonzero(np.diff(is_word, prepend=False, append=False))
        starts, ends = edges[::2], edges[1::2]
        self.starts = self.ends = self.unit_starts = self.unit_ends = starts
        self.num_lines = 0
        self.sums = np.zeros(1, np.uint64)
        if not len(starts):
            return
        # The words with one space between them: `joined`, and where they are in it.
        kept = is_word
        kept[ends[:-1]] = True
        joined = data[kept]
        self.ends = np.cumsum(ends - starts + 1) - 1
        self.starts = self.ends - (ends - starts)
        joined[self.ends[:-1]] = ord(" ")
        if len(joined) > len(self._up):
            _Words._up, _Words._down = _powers(2 * len(joined))
        self.sums = np.zeros(len(joined) + 1, np.uint64)
        np.cumsum((joined.astype(np.uint64) + np.uint64(1)) * self._up[: len(joined)], out=self.sums[1:])
        # A sentence ends between two words where a line does, or a stop stands there beside a space.
        between = _marks_between(data, starts, ends)
        line_ends = (between & _NEWLINE) > 0
        sentence_ends = line_ends | ((between & (_STOP | _SPACE)) == _STOP | _SPACE)
        ends_of = [np.append(np.flatnonzero(last) + 1, len(starts)) for last in (sentence_ends, line_ends)]
        self.unit_ends = np.concatenate(ends_of)
        self.unit_starts = np.concatenate([np.append(0, found[:-1]) for found in ends_of])
        self.num_lines = len(ends_of[1])

    def _hashes(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Hashes the words first..last, both inclusive."""
        start, end = self.starts[first], self.ends[last]
        mixed = (self.sums[end] - self.sums[start]) * self._down[start]
        mixed = (mixed ^ (mixed >> np.uint64(32))) * _MIX
        return mixed ^ (mixed >> np.uint64(29))

    def ngrams(self) -> np.ndarray:
        first = np.arange(len(self.starts) - NGRAM + 1)
        return self._hashes(first, first + NGRAM - 1)

    def sentences(self) -> np.ndarray:
        """Hashes its sentences and its lines of SHORTEST to NGRAM - 1 words."""
        lengths = self.unit_ends - self.unit_starts
        wanted = (lengths >= SHORTEST) & (lengths < NGRAM)
        return self._hashes(self.unit_starts[wanted], self.unit_ends[wanted] - 1)


def _marks_between(data: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Tells which marks are among the bytes between each word and the next."""
    if len(starts) < 2:
        return np.empty(0, np.uint8)
    bounds = np.column_stack([ends[:-1], starts[1:]]).ravel()
    return np.bitwise_or.reduceat(_MARKS[data], bounds)[::2]


@dataclasses.dataclass(frozen=True)
class Excluded:
    """The hashes that may not occur, sorted; and of how many texts, how many of them sentences or not looked for."""

    ngrams: np.ndarray
    sentences: np.ndarray
    texts: int
    short: int
    ignored: int

    def __post_init__(self) -> None:
        for name, hashes in (("_may", self.ngrams), ("_may_sentence", self.sentences)):
            may = np.zeros(1 << _FILTER_BITS, bool)
            may[hashes >> np.uint64(64 - _FILTER_BITS)] = True
            object.__setattr__(self, name, may)

    @classmethod
    def of(cls, texts: Iterable[str], among_sentences: bool = False) -> "Excluded":
        """The exclusion of these texts; among sentences, of each short sentence of the longer ones too."""
        ngrams, sentences = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
        total = short = ignored = 0
        for text in texts:
            words = _Words(text)
            total += 1
            if len(words.starts) >= NGRAM:
                ngrams.append(words.ngrams())
                if among_sentences:
                    sentences.append(words.sentences())
            elif len(words.starts) >= SHORTEST and words.num_lines == 1:
                sentences.append(words.sentences()[-1:])  # the line that it is
                short += 1
            else:
                ignored += 1
        return cls(np.unique(np.concatenate(ngrams)), np.unique(np.concatenate(sentences)), total, short, ignored)

    def meets(self, text: str) -> bool:
        """Whether one of the texts occurs in this one."""
        words = _Words(text)
        shift = np.uint64(64 - _FILTER_BITS)
        pairs = ((words.ngrams, self.ngrams, "_may"), (words.sentences, self.sentences, "_may_sentence"))
        for of, hashes, name in pairs:
            if len(hashes):
                found = of()
                found = found[getattr(self, name)[found >> shift]]
                places = np.minimum(np.searchsorted(hashes, found), len(hashes) - 1)
                if (hashes[places] == found).any():
                    return True
        return False

    def options(self) -> dict[str, Any]:
        """What of it shapes the dataset, for the fingerprint."""
        counts = {"texts": self.texts, "sentences_of_4_to_7_words": self.short, "too_short": self.ignored}
        return {"sha256": hashlib.sha256(self.to_bytes()).hexdigest(), **counts}

    def to_bytes(self) -> bytes:
        head = np.array([len(self.ngrams), len(self.sentences), self.texts, self.short, self.ignored], "<u8")
        return head.tobytes() + self.ngrams.astype("<u8").tobytes() + self.sentences.astype("<u8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "Excluded":
        values = np.frombuffer(data, "<u8")
        ngrams, _, texts, short, ignored = (int(value) for value in values[:5])
        return cls(values[5 : 5 + ngrams], values[5 + ngrams :], texts, short, ignored)


def read_texts(patterns: Sequence[str]) -> Iterator[str]:
    """The texts in files or folders: lines, or their tab-separated cells; rows of csv, and their cells; all strings of
    JSON lines.

    Raises:
        PipelineError: a file is missing, damaged, no text, or holds no text to exclude.
    """
    for pattern in patterns:
        try:
            files = storage.find(pattern)
        except FileNotFoundError as error:
            raise PipelineError(f"--exclude {error}") from None
        for path in files:
            found = False
            with storage.open_input(path) as stored:
                file_format, compression = look(stored, path)
            if file_format not in ("text", "csv", "jsonl"):
                raise PipelineError(f"--exclude {path}: {file_format}: expected text, csv or JSON lines")
            with naming(path, compression), opened(path, compression) as stream:
                for text in _texts(path, _lines(stream), file_format):
                    found = found or bool(text.strip())
                    yield text
            if not found:
                raise PipelineError(f"--exclude {path}: holds no text: leave it out, or name what it should hold")


def _lines(stream: BinaryIO) -> Iterator[str]:
    """The lines, ended in any way, with their ends."""
    offset = 0
    for line in stream:
        check_holes(line, offset)
        offset += len(line)
        # Test sets come in Latin-1 too: what is no UTF-8 spoils at most the words it is in.
        yield from _LINE.findall(line.removeprefix(BOM).decode("utf-8", "replace"))


def _texts(path: str, lines: Iterator[str], file_format: str) -> Iterator[str]:
    if file_format == "jsonl":
        for line in lines:
            found = _json_strings(line)
            yield from [line] if found is None else found
        return
    first = list(itertools.islice(lines, TABLE_LINES))
    lines = itertools.chain(first, lines)
    named_csv = ".csv" in [suffix.lower() for suffix in PurePosixPath(path).suffixes]
    delimiter = _delimiter(first, all_agree=not named_csv)
    if named_csv and delimiter != "\t":
        yield from _csv_texts(path, lines, delimiter)
        return
    for line in lines:
        if line.startswith(("[", "{")) and (found := _json_strings(line)):
            yield from found
        # No quoting: in SentEval's tables a quote is a character like any other.
        yield from (cell for cell in line.rstrip("\r\n").split("\t") if cell)
        if delimiter != "\t":
            with contextlib.suppress(csv.Error):
                yield from next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))


def _csv_texts(path: str, lines: Iterator[str], delimiter: str) -> Iterator[str]:
    taken: list[str] = []

    def taking() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    rows = csv.reader(taking(), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in rows:
            if len(row) > 1:  # or it is one sentence, and what parts it a comma
                yield "".join(taken).rstrip("\r\n")
            taken.clear()
            yield from row
    except csv.Error as error:
        raise PipelineError(
            f"--exclude {path}: line {rows.line_num}: {error}: mend its quotes, or name the file .txt to take its lines"
        ) from None


def _json_strings(line: str) -> list[str] | None:
    """Every string of a line of JSON; None where it is no JSON."""
    value, problem = parse_any(line.encode("utf-8", "replace"))
    return None if problem else list(_strings(value))


def _strings(value: Any) -> Iterator[str]:
    """Every string in a JSON value, in lists and objects too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _delimiter(lines: Sequence[str], all_agree: bool) -> str:
    """What parts the cells of a table that begins with these lines: what gives most of its rows equally many, and more
    than one. A tab if there is none, or none of which all rows agree where they must.
    """

    def agreeing(delimiter: str) -> int:
        try:
            rows = [len(row) for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]
        except csv.Error:
            return 0
        most = max((rows.count(size) for size in set(rows) if size > 1), default=0)
        return 0 if all_agree and most < len(rows) else most

    tabs = collections.Counter(line.count("\t") for line in lines)
    counts = {"\t": max((count for number, count in tabs.items() if number), default=0)}
    counts |= {delimiter: agreeing(delimiter) for delimiter in ",;|"}
    return max(counts, key=lambda delimiter: counts[delimiter])
