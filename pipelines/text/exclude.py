"""Exclusion: drop documents that contain a text that must not occur, such as a sentence of a test set.

    text -> normalized (`word_hashes.comparable`) -> words -> 8 consecutive words -> 64-bit hashes
    documents with one of these hashes are dropped

A text of 8 words or more matches where any 8 of its consecutive words occur. A text of 4 to 7 words matches only a
whole sentence or line. If examples are sentences, short sentences (4 to 7 words) of longer excluded texts are searched
for as well. If examples are whole documents, such sentences are not searched for, because a document should not be
dropped for a common one such as "that is not good". A text of 1 to 3 words would occur everywhere, so it matches only
an example that has no other words. In scripts without spaces between words, letters are counted instead of words: 12
consecutive letters, and sentences of 4 to 11 letters (`word_hashes`).
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
from typing import Any, BinaryIO

import numpy as np

from clearspan.common.delimited import (
    DELIMITERS,
    TABLE_SUFFIXES,
    TABS,
    Dialect,
    RowError,
)
from clearspan.common.errors import PipelineError
from clearspan.common.terminal import warn
from clearspan.pipelines.readers.jsonl import parse_any
from clearspan.pipelines.readers.sniff import detect_format, is_about
from clearspan.pipelines.readers.streams import BOM, naming_damage, opened
from clearspan.pipelines.suffixes import type_suffix
from clearspan.pipelines.text.word_hashes import NORMALIZATION, SHORTEST, WordHashes
from clearspan.shards import storage
from clearspan.shards.finding import left_out_lines

TABLE_LINES = 100
"""Number of first lines of a file from which the delimiter and the labels are inferred."""
FORMATS = ("text", "csv", "jsonl", "json")
_NUMBER = re.compile(r"\s*[-+]?(\d[\d.,;|]*|[.,]\d+)(e[-+]?\d+)?\s*%?\s*", re.IGNORECASE)
"""Pattern of a number, or of a row of numbers."""
_LABEL = re.compile(r"[-+]?\d+(\.\d+)?|\w+:\w+|__label__\S+")
"""Pattern of a label beside the text of a line: a class or score (SST), COARSE:fine (TREC), fastText's."""
_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$")
_FILTER_BITS = 22
HEAD_CHARACTERS = 300
"""Number of characters of an excluded text that are stored, to name the text when a document contains it."""


@dataclasses.dataclass(frozen=True)
class Excluded:
    """Texts that must not occur in examples, as hashes of runs of their words.

    A text with as many words as an n-gram (8) is stored as the hashes of its n-grams, and a shorter text as the hash of
    the whole text. The sentences of a text that are shorter than an n-gram are stored too, for examples that are
    sentences.

    Attributes:
        hashes: the n distinct hashes of all texts, (n,) uint64, sorted.
        owners: for each hash, the line of `heads`, from 0, of the first text that has this hash, (n,) uint32.
        heads: the beginnings of the texts that have words, as JSON lines: each line is a string.
        texts: number of all texts.
        short: number of texts that have words, but fewer words than an n-gram.
        ignored: number of texts without words.
    """

    hashes: np.ndarray
    owners: np.ndarray
    heads: bytes
    texts: int
    short: int
    ignored: int

    @classmethod
    def of(cls, texts: Iterable[str], among_sentences: bool = False) -> "Excluded":
        """Compute the hashes of the texts to exclude.

        Args:
            among_sentences: whether the dataset's examples are sentences. If true, the short sentences (4 to 7 words)
                of longer texts are excluded, too.
        """
        parts = [np.empty(0, np.uint64)]
        heads: list[bytes] = []
        total = short = 0
        for text in texts:
            words = WordHashes(text)
            total += 1
            grams = words.ngrams()
            sentences = words.sentences() if among_sentences and len(grams) else words.whole()
            if len(grams) or len(sentences):
                short += not len(grams)
                parts.append(np.append(grams, sentences))
                head = json.dumps(text.strip()[:HEAD_CHARACTERS], ensure_ascii=False)
                heads.append(head.encode("utf-8", "replace") + b"\n")
        hashes, first = np.unique(np.concatenate(parts), return_index=True)
        owners = np.repeat(np.arange(len(heads), dtype=np.uint32), list(map(len, parts[1:])))[first]
        return cls(hashes, owners, b"".join(heads), total, short, total - len(heads))

    def contains_excluded(self, text: str) -> bool:
        """Return whether a text contains an excluded text.

        It does if it contains 8 consecutive words (an n-gram) of the excluded text. An excluded text, or sentence, of 4
        to 7 words must be a whole sentence or line of the text. For an excluded text of 1 to 3 words, the text must
        consist of the same words.
        """
        return self._first(text) is not None

    def may_contain(self, texts: Sequence[str]) -> bool:
        """Return whether one of the texts may contain an excluded text, as a quick check before `contains_excluded`.

        If the result is false, `contains_excluded` is false for each of the texts; if it is true, `contains_excluded`
        must be called for each. All texts are read at once, which is much faster than a call of `contains_excluded` for
        each.
        """
        return self._first(*texts, shortest=1) is not None

    def found_in(self, text: str) -> str | None:
        """Return the beginning of the excluded text that a text contains (`contains_excluded`); None if it contains
        none.
        """
        number = self._first(text)
        return None if number is None else str(json.loads(self._head_lines[number]))

    def _first(self, *texts: str, shortest: int = SHORTEST) -> int | None:
        """Return the index in `heads` of an excluded text that the given texts contain; None if they contain none.

        Args:
            texts: the texts in which excluded texts are searched for, as if they were the lines of one text.
            shortest: minimum number of words of a sentence or line that is compared with short excluded texts.
        """
        words = WordHashes(*texts)
        hashes = np.concatenate([words.ngrams(), words.sentences(shortest), words.whole()])
        hashes = hashes[self._may_hold[hashes >> np.uint64(64 - _FILTER_BITS)]]
        if not len(hashes):
            return None
        places = np.minimum(np.searchsorted(self.hashes, hashes), len(self.hashes) - 1)
        (matches,) = np.nonzero(self.hashes[places] == hashes)
        return int(self.owners[places[matches[0]]]) if len(matches) else None

    @functools.cached_property
    def _may_hold(self) -> np.ndarray:
        """Table for a quick check of a hash, (2^22,) bool; its index is the number in the upper 22 bits of the hash.

        The table is true where an item of `hashes` has the same upper 22 bits. Where it is false, the hash cannot be
        one of `hashes`, and need not be searched for.
        """
        table = np.zeros(1 << _FILTER_BITS, bool)
        table[self.hashes >> np.uint64(64 - _FILTER_BITS)] = True
        return table

    @functools.cached_property
    def _head_lines(self) -> list[bytes]:
        return self.heads.splitlines()

    def options(self) -> dict[str, Any]:
        """Return the exclusion's entry in a dataset's fingerprint.

        It holds a hash of this object, the numbers `texts`, `short` and `ignored`, and the version of the normalization
        of texts.
        """
        counts = {"texts": self.texts, "short_sentences": self.short, "without_words": self.ignored}
        counts["normalization"] = NORMALIZATION
        return {"sha256": hashlib.sha256(self.to_bytes()).hexdigest(), **counts}

    def to_bytes(self) -> bytes:
        """Return all attributes except `heads` as bytes, for `from_bytes`."""
        counts = np.array([self.texts, self.short, self.ignored], "<u8")
        return b"".join(part.tobytes() for part in (counts, self.hashes.astype("<u8"), self.owners.astype("<u4")))

    @classmethod
    def from_bytes(cls, data: bytes, heads: bytes) -> "Excluded":
        """Restore the object from the result of its `to_bytes` and its attribute `heads`."""
        counts = np.frombuffer(data, "<u8", 3)
        num = (len(data) - counts.nbytes) // 12
        hashes = np.frombuffer(data, "<u8", num, counts.nbytes)
        owners = np.frombuffer(data, "<u4", num, counts.nbytes + hashes.nbytes)
        return cls(hashes, owners, heads, *map(int, counts))


def read_texts(patterns: Sequence[str]) -> Iterator[str]:
    """Yield the texts to exclude from files of plain text, tables or JSON.

    Texts are the lines of plain text, divided at tabs; the cells of tables, and their whole rows; the strings of JSON.
    Numbers are skipped. A license or readme, whose sentences occur in many corpora, is read only if its path is given.

    Args:
        patterns: paths of files or folders, or globs.

    Raises:
        PipelineError: a file is missing, damaged, not text, or holds no text to exclude.
    """
    for pattern in patterns:
        num_texts = 0
        for path in _files(pattern):
            is_blank = True
            with storage.open_input(path) as stored:
                file_format, compression = detect_format(stored, path)
            if file_format not in FORMATS:
                raise PipelineError(f"`exclude` {path}: {file_format}: expected text, csv or JSON lines")
            with naming_damage(path, compression), opened(path, compression) as stream:
                for text in filter(str.strip, _texts(path, _lines(path, stream), file_format)):
                    is_blank = False
                    if not _NUMBER.fullmatch(text):
                        num_texts += 1
                        yield text
            if is_blank:
                raise PipelineError(f"`exclude` {path}: holds no text: leave it out, or name the right file")
        if not num_texts:
            raise PipelineError(f"`exclude` {pattern}: holds only numbers: name the files with the texts")


def _files(pattern: str) -> list[str]:
    """Return the paths of the files to read.

    Args:
        pattern: the path of a file, which is always read; or a folder or glob, whose licenses and readmes are left out.
            So are files whose names begin with an underscore, which a message on stderr names.

    Raises:
        PipelineError: there is no such file, or only licenses and readmes.
    """
    try:
        left_out = set[str]()
        files = storage.find(pattern, left_out)
    except FileNotFoundError as error:
        raise PipelineError(f"`exclude` {error}") from None
    if not storage.is_folder(pattern) and storage.exists(pattern):
        return list(files)
    for line in left_out_lines(sorted(left_out)):
        warn(f"`exclude` {pattern}: {line}")
    data_files = [path for path in files if not is_about(path)]
    if not data_files:
        raise PipelineError(f"`exclude` {pattern}: holds only licenses and readmes: name the files with the texts")
    return data_files


def _lines(path: str, stream: BinaryIO) -> Iterator[str]:
    r"""Yield the decoded lines of a file, each with its line break: \n, \r or \r\n.

    Args:
        path: the path of the file, for error messages.
        stream: the content of the file.

    Raises:
        PipelineError: the file holds bytes of zero, as UTF-16 does, or is damaged.
    """
    for line in stream:
        if b"\0" in line:
            raise PipelineError(f"`exclude` {path}: holds bytes of zero, as UTF-16 does, or damage: save it as UTF-8")
        line = line.removeprefix(BOM)
        try:
            decoded = line.decode("utf-8")
        except UnicodeDecodeError:  # some test sets are in Latin-1, of which Windows-1252 is a superset
            decoded = line.decode("cp1252", "replace")
        yield from _LINE.findall(decoded)


def _texts(path: str, lines: Iterator[str], file_format: str) -> Iterator[str]:
    if file_format == "json":
        lines = iter(["".join(lines)])
    if file_format in ("json", "jsonl"):
        for number, line in enumerate(lines, 1):
            if (strings := _json_strings(line)) is not None:
                yield from strings
            elif line.strip():
                broken = f"line {number} is no JSON" if file_format == "jsonl" else "is no JSON"
                raise PipelineError(
                    f"`exclude` {path}: {broken}: correct it, or give the texts as lines in a .txt file"
                )
        return
    first = list(itertools.islice(lines, TABLE_LINES))
    lines = itertools.chain(first, lines)
    delimiter = "\t"
    if type_suffix(path) in TABLE_SUFFIXES:
        rows = list(lines)
        is_tsv = type_suffix(path) == ".tsv"
        dialect = Dialect.of(first, is_tsv, lambda: (row.encode("utf-8", "replace") for row in rows))
        if dialect.form != TABS:
            yield from _csv_texts(path, rows, dialect)
            return
        lines = iter(rows[dialect.num_declared :])
    else:
        delimiter = _delimiter(first)
    labels = _labels(first)
    for line in lines:
        if any(labels) and not _NUMBER.fullmatch(line):  # the whole line follows: the label may be a word
            yield from _without_labels(line, *labels).split("\t")
        if line.startswith(("[", "{")) and (strings := _json_strings(line)):
            yield from strings
        if delimiter != "\t":
            with contextlib.suppress(csv.Error):
                yield from next(csv.reader([line], delimiter=delimiter, skipinitialspace=True, strict=True))
        # No quoting: in SentEval's tables a quote is an ordinary character.
        yield from line.rstrip("\r\n").split("\t")


def _labels(lines: Sequence[str]) -> tuple[bool, bool]:
    """Return (whether each line begins with a label, whether each line ends with a label).

    A label is a class or score beside the text, as in "1 a fine film". The first of several lines is ignored, because
    it may be a header.
    """
    words = [line.split(" ") for line in filter(None, map(str.strip, lines))]
    words = words[1:] or words
    before, after = (all(_LABEL.fullmatch(row[place]) for row in words) for place in (0, -1))
    return before, after


def _without_labels(line: str, at_start: bool, at_end: bool) -> str:
    """Return a line without its label, such as "1" in "1 a fine film".

    Args:
        at_start: if true, a label at the beginning is removed.
        at_end: if true, a label at the end is removed.
    """
    text = line.strip()
    if at_start and _LABEL.fullmatch(text.partition(" ")[0]):
        text = text.partition(" ")[2]
        while text.startswith("__label__"):  # a text in fastText's format may have several labels
            text = text.partition(" ")[2]
    if at_end and _LABEL.fullmatch(text.rpartition(" ")[2]):
        text = text.rpartition(" ")[0]
    return text


def _csv_texts(path: str, lines: Sequence[str], dialect: Dialect) -> Iterator[str]:
    delimiter = dialect.form["delimiter"]
    try:
        for _, row in dialect.rows(lines, skipinitialspace=delimiter != "\t"):
            yield from row  # cells first: a document is reported with the first text that it contains
            if len(row) > 1:  # the row may be one sentence with commas
                yield delimiter.join(row)
    except RowError as error:
        raise PipelineError(f"`exclude` {path}: line {error.line}: {error}: correct its quotes") from None


def _json_strings(line: str) -> list[str] | None:
    """Return the strings among the values of a line of JSON, at any depth; None if the line is not JSON."""
    value, problem, _ = parse_any(line.encode("utf-8", "replace"))
    return None if problem else list(_strings(value))


def _strings(value: Any) -> Iterator[str]:
    """Yield the strings in a JSON value, at any depth of lists and objects; names of fields are left out."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, (list, dict)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _strings(inner)


def _delimiter(lines: Sequence[str]) -> str:
    """Return the delimiter of lines that may be rows of a table: comma, semicolon, bar or tab.

    It is the one that divides all lines into the same number of cells, at least two. The tab is returned if it does
    so, or if none of them does.
    """

    def agreeing(delimiter: str) -> int:
        try:
            rows = [len(row) for row in csv.reader(lines, delimiter=delimiter, skipinitialspace=True)]
        except csv.Error:
            return 0
        most = max((rows.count(size) for size in set(rows) if size > 1), default=0)
        return 0 if most < len(rows) else most

    tabs = collections.Counter(line.count("\t") for line in lines)
    counts = {"\t": max((count for number, count in tabs.items() if number), default=0)}
    counts |= {delimiter: agreeing(delimiter) for delimiter in DELIMITERS}
    return max(counts, key=lambda delimiter: counts[delimiter])
