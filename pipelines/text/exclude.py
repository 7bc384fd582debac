"""Texts that must not occur in a corpus, such as the sentences of a test set: which documents hold one of them.

    text -> `comparable` -> words -> every 8 words in a row -> 64-bit hashes -> met in a document: the document goes

A text of 8 words or more is met where any 8 of its words in a row are. One of 4 to 7 words is met where it is a whole
sentence or line; among sentences so is each such sentence of a longer text (a document is not given up for "that is not
good"). One below 4 words is not looked for (it would be met everywhere), and is counted. In languages written without
spaces between words it is 12 letters in a row, and sentences of 4 to 11 (`word_hashes`).
"""

import collections
import contextlib
import csv
import dataclasses
import functools
import hashlib
import itertools
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import numpy as np

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers.jsonl import parse_any
from clearspan.pipelines.readers.sniff import is_about, look
from clearspan.pipelines.readers.streams import BOM, check_holes, naming, opened
from clearspan.pipelines.text.word_hashes import NORMALIZATION, Words
from clearspan.shards import storage

TABLE_LINES = 100
"""The first lines of a csv file tell what parts its cells."""
csv.field_size_limit(1 << 26)
FORMATS = ("text", "csv", "jsonl", "json")
_NUMBER = re.compile(r"\s*[-+]?(\d[\d.,;|]*|[.,]\d+)(e[-+]?\d+)?\s*%?\s*", re.IGNORECASE)
"""A number, or a row of them."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
_FILTER_BITS = 22
HEAD_CHARACTERS = 300
"""So much is kept of a text that is looked for, to say which one a document holds."""


@dataclasses.dataclass(frozen=True)
class _Known:
    """Hashes, sorted, each once (n,) uint64; and the number of the first text that each is of (n,) uint32."""

    hashes: np.ndarray
    texts: np.ndarray

    @classmethod
    def of(cls, hashes: Sequence[np.ndarray], texts: Sequence[int]) -> "_Known":
        """What is known of the hashes of each of these texts."""
        owners = np.repeat(np.array(texts, np.uint32), list(map(len, hashes)))
        found, first = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]), return_index=True)
        return cls(found, owners[first])

    def first(self, found: np.ndarray) -> int | None:
        """The text of the first of these hashes (n,) that is known."""
        found = found[self._may_be[found >> np.uint64(64 - _FILTER_BITS)]]
        if not len(found):
            return None
        places = np.minimum(np.searchsorted(self.hashes, found), len(self.hashes) - 1)
        (met,) = np.nonzero(self.hashes[places] == found)
        return int(self.texts[places[met[0]]]) if len(met) else None

    @functools.cached_property
    def _may_be(self) -> np.ndarray:
        """Whether a hash of these upper bits may be known, (2^22,) bool: most are ruled out without a search."""
        found = np.zeros(1 << _FILTER_BITS, bool)
        found[self.hashes >> np.uint64(64 - _FILTER_BITS)] = True
        return found


@dataclasses.dataclass(frozen=True)
class Excluded:
    """The hashes that may not occur; of how many texts, how many of them sentences or not looked for; and the head of
    each text that is looked for, a line of JSON (`heads`)."""

    ngrams: _Known
    sentences: _Known
    heads: bytes
    texts: int
    short: int
    ignored: int

    @classmethod
    def of(cls, texts: Iterable[str], among_sentences: bool = False) -> "Excluded":
        """The exclusion of these texts; among sentences, of each short sentence of the longer ones too."""
        ngrams: list[np.ndarray] = []
        sentences: list[np.ndarray] = []
        heads: list[str] = []
        total = short = ignored = 0
        for text in texts:
            words = Words(text)
            total += 1
            grams = words.ngrams()
            whole = words.sentences() if among_sentences and len(grams) else words.line()
            ignored += not len(grams) and not len(whole)
            short += not len(grams) and bool(len(whole))
            if len(grams) or len(whole):
                ngrams.append(grams)
                sentences.append(whole)
                heads.append(text.strip()[:HEAD_CHARACTERS])
        numbers = range(len(heads))
        lines = (json.dumps(head, ensure_ascii=False).encode("utf-8", "replace") + b"\n" for head in heads)
        known = _Known.of(ngrams, numbers), _Known.of(sentences, numbers)
        return cls(*known, b"".join(lines), total, short, ignored)

    def meets(self, text: str) -> bool:
        """Whether one of the texts occurs in this one."""
        return self._first(text) is not None

    def found_in(self, text: str) -> str | None:
        """The head of one of the texts that occurs in this one; None where none does."""
        number = self._first(text)
        if number is None:
            return None
        start, end = self._line_ends[number : number + 2]
        return str(json.loads(self.heads[start:end]))

    def _first(self, text: str) -> int | None:
        words, found = Words(text), None
        if len(self.ngrams.hashes):
            found = self.ngrams.first(words.ngrams())
        if found is None and len(self.sentences.hashes):
            found = self.sentences.first(words.sentences())
        return found

    @functools.cached_property
    def _line_ends(self) -> np.ndarray:
        ends = np.flatnonzero(np.frombuffer(self.heads, np.uint8) == ord("\n")) + 1
        return np.concatenate([[0], ends])

    def options(self) -> dict[str, Any]:
        """What of it shapes the dataset, for the fingerprint."""
        counts = {"texts": self.texts, "short_sentences": self.short, "too_short": self.ignored}
        counts["normalization"] = NORMALIZATION
        return {"sha256": hashlib.sha256(self.to_bytes()).hexdigest(), **counts}

    def to_bytes(self) -> bytes:
        """Everything but the texts' heads."""
        parts = (self.ngrams, self.sentences)
        sizes = [*(len(part.hashes) for part in parts), self.texts, self.short, self.ignored]
        hashes = [part.hashes.astype("<u8").tobytes() for part in parts]
        owners = [part.texts.astype("<u4").tobytes() for part in parts]
        return b"".join([np.array(sizes, "<u8").tobytes(), *hashes, *owners])

    @classmethod
    def from_bytes(cls, data: bytes, heads: bytes) -> "Excluded":
        """What `to_bytes` gave, and the heads."""
        sizes = np.frombuffer(data, "<u8", 5)
        num_ngrams, num, texts, short, ignored = (int(value) for value in sizes)
        hashes = np.frombuffer(data, "<u8", num_ngrams + num, sizes.nbytes)
        owners = np.frombuffer(data, "<u4", offset=sizes.nbytes + hashes.nbytes)
        known = [_Known(hashes[part], owners[part]) for part in (slice(num_ngrams), slice(num_ngrams, None))]
        return cls(known[0], known[1], heads, texts, short, ignored)


def read_texts(patterns: Sequence[str]) -> Iterator[str]:
    """The texts in files or folders: lines, or their tab-separated cells; cells of csv, and its rows; all strings of
    JSON lines. Numbers are left out. A license or readme, whose sentences many corpora hold, is read only where its own
    path is given.

    Raises:
        PipelineError: a file is missing, damaged, no text, or holds no text to exclude.
    """
    for pattern in patterns:
        num_texts = 0
        for path in _files(pattern):
            is_blank = True
            with storage.open_input(path) as stored:
                file_format, compression = look(stored, path)
            if file_format not in FORMATS:
                raise PipelineError(f"--exclude {path}: {file_format}: expected text, csv or JSON lines")
            with naming(path, compression), opened(path, compression) as stream:
                for text in filter(str.strip, _texts(path, _lines(stream), file_format)):
                    is_blank = False
                    if not _NUMBER.fullmatch(text):
                        num_texts += 1
                        yield text
            if is_blank:
                raise PipelineError(f"--exclude {path}: holds no text: leave it out, or name what it should hold")
        if not num_texts:
            raise PipelineError(f"--exclude {pattern}: holds numbers alone: name the files with the texts")


def _files(pattern: str) -> list[str]:
    """Return the files that a path, a folder or a glob names; of a folder or a glob without licenses and the like."""
    try:
        files = storage.find(pattern)
    except FileNotFoundError as error:
        raise PipelineError(f"--exclude {error}") from None
    if not storage.is_folder(pattern) and storage.exists(pattern):
        return list(files)
    found = [path for path in files if not is_about(path)]
    if not found:
        raise PipelineError(f"--exclude {pattern}: holds licences and readmes alone: name the files with the texts")
    return found


def _lines(stream: BinaryIO) -> Iterator[str]:
    """The lines, ended in any way, with their ends."""
    offset = 0
    for line in stream:
        check_holes(line, offset)
        offset += len(line)
        # Test sets come in Latin-1 too: what is no UTF-8 spoils at most the words it is in.
        yield from _LINE.findall(line.removeprefix(BOM).decode("utf-8", "replace"))


def _texts(path: str, lines: Iterator[str], file_format: str) -> Iterator[str]:
    if file_format == "json":
        found = _json_strings(whole := "".join(lines))
        yield from [whole] if found is None else found
        return
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
        if delimiter != "\t":
            with contextlib.suppress(csv.Error):
                yield from next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))
        # No quoting: in SentEval's tables a quote is a character like any other.
        yield from line.rstrip("\r\n").split("\t")


def _csv_texts(path: str, lines: Iterator[str], delimiter: str) -> Iterator[str]:
    taken: list[str] = []

    def taking() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    rows = csv.reader(taking(), delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in rows:
            yield from row  # before the whole: what a document is said to hold is the first that it does
            if len(row) > 1:  # or it is one sentence, and what parts it a comma
                yield "".join(taken).rstrip("\r\n")
            taken.clear()
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
