"""The way of a record through a builder of texts. Each builder adds the two steps that are its own: `build`, `batch`.

    1. build(record)       -> its texts, raw and prepared, those of one example after those of another; or none
    2. gather              -> the texts of many records
    3. tokenize(texts)     -> their token ids
    4. select(tokenized)   -> the examples that are neither too short nor too long, and without an excluded text
    5. batch(examples)     -> a record batch of about 1 MiB of token ids, with the dataset's columns

A reader hands in one record at a time, and `units.unit` takes one record batch at a time: between them are the
generators `texts` (step 1), `tokenized` (2 and 3) and `examples` (4 and 5). What is dropped is counted where it ends.

An id is a hash of the prepared text's bytes. A text therefore has the same id however the corpus is divided into files.
To find duplicates and to choose held-out texts, prepared texts are compared without regard to white space, letter case
and Unicode form (`common.same_text`). Excluded texts are searched for in the text as read, whose line breaks show where
sentences end. A space that the tokenizer adds before a text changes neither its id nor the comparisons.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from clearspan.common import same_text
from clearspan.common.ragged import Ragged
from clearspan.common.same_text import text_id
from clearspan.pipelines.attached import GROUPS, HASHES, attach
from clearspan.pipelines.builders import BuildPlan, groups
from clearspan.pipelines.builders.text_steps import TextSteps
from clearspan.pipelines.counter import Counts, RecordCounter
from clearspan.pipelines.records import Record
from clearspan.pipelines.text.exclude import Excluded
from clearspan.pipelines.text.joining import TokenizedTexts
from clearspan.pipelines.text.minhash import COLUMN, sketches
from clearspan.pipelines.text.tokenization import Tokenization
from clearspan.shards.schema import KINDS

EXCLUDE_TOGETHER = 64
BATCH_BYTES = 1 << 20
"""Bytes of token ids of a record batch."""


class TextBuilder(Protocol):
    """Builder of texts, as its worker sees it."""

    name: ClassVar[str]

    @property
    def steps(self) -> TextSteps: ...
    @property
    def plan(self) -> BuildPlan: ...
    @property
    def min_tokens(self) -> int: ...
    @property
    def whitespace(self) -> str: ...
    @property
    def near_dedup(self) -> float | None: ...
    @property
    def group_field(self) -> str | None: ...


class BuiltTexts(NamedTuple):
    """The texts of one or more examples, before they are tokenized.

    Attributes:
        prepared: the texts to tokenize: in single spaces or lower case, if the options say so. The ids of examples are
            hashes of these texts.
        raw: the same texts with their own spaces and case, in which excluded texts are looked for.
        source: the file and place that the texts were read from.
        group: the name of the group of the examples, which are all held out or all trained on; "" for no group.
        size: the size of the texts, in the unit of `TextWorker.together`.
    """

    prepared: Sequence[str]
    raw: Sequence[str]
    source: str
    group: str = ""
    size: int = 0


class ExamplesToWrite(NamedTuple):
    """Examples to write to the dataset.

    Attributes:
        ids: ids of n examples, (n,) int64.
        columns: for each column of token ids in the dataset, the token ids of all examples.
        prepared: the prepared text of each example; if an example has several texts, the first of them.
        raw: the texts in `prepared` as they were before the preparation.
        sources: the file and place that each example was read from.
        hashes: a hash of each of the t texts of an example, as two numbers, (n, 2 * t) uint64; (n, 0) if the run does
            not search for equal texts.
        groups: the hash of each example's group, (n, 1) uint64; (n, 0) if rows have no groups.
    """

    ids: np.ndarray
    columns: list[Ragged]
    prepared: list[str]
    raw: list[str]
    sources: list[str]
    hashes: np.ndarray
    groups: np.ndarray

    @classmethod
    def joined(cls, parts: Sequence["ExamplesToWrite"]) -> "ExamplesToWrite":
        """Return the examples of one or more parts, concatenated."""
        ids, columns, *texts, hashes, of_groups = zip(*parts, strict=True)
        of_columns = [Ragged.concatenate(column) for column in zip(*columns, strict=True)]
        prepared, raw, sources = ([text for part in of_parts for text in part] for of_parts in texts)
        ids, hashes, of_groups = map(np.concatenate, (ids, hashes, of_groups))
        return cls(ids, of_columns, prepared, raw, sources, hashes, of_groups)

    def singly(self) -> Iterator["ExamplesToWrite"]:
        """Yield an `ExamplesToWrite` for each example."""
        for index in range(len(self.ids)):
            row = slice(index, index + 1)
            columns = [column.slice(row) for column in self.columns]
            texts = (self.prepared[row], self.raw[row], self.sources[row])
            yield ExamplesToWrite(self.ids[row], columns, *texts, self.hashes[row], self.groups[row])


AnyBuilder = TypeVar("AnyBuilder", bound=TextBuilder)


@dataclasses.dataclass(frozen=True)
class TextWorker(ABC, Generic[AnyBuilder]):
    """The steps of the builders of texts, in a worker process.

    Attributes:
        builder: the builder, with its options.
        tokenization: converts texts to token ids.
        excluded: the texts that no example may contain; None if there are none.
        batch_examples: the maximum number of examples in a batch, unless examples that belong together are more.
        batch_room: a batch ends when this number of further examples would exceed `batch_examples`, even if fewer
            follow.
        ends_anywhere: whether a batch may end after any example. If not, it ends only after all examples of texts that
            were tokenized together.
    """

    builder: AnyBuilder
    tokenization: Tokenization
    excluded: Excluded | None = None

    batch_examples: ClassVar[int]
    batch_room: ClassVar[int] = 0
    ends_anywhere: ClassVar[bool] = False

    @property
    @abstractmethod
    def together(self) -> tuple[int, int]:
        """The limits of the texts that are tokenized together: their number, and the sum of their sizes."""

    @abstractmethod
    def build(self, record: Record, counts: Counts) -> Iterable[BuiltTexts]:
        """Return the texts of the examples that are made of a record. If there are none, count it as filtered.

        Raises:
            RecordError: the record is bad, or the code of a filter fails on its text.
        """

    @abstractmethod
    def batch(self, examples: ExamplesToWrite, counts: Counts) -> pa.RecordBatch:
        """Return examples as a record batch with the columns of the dataset."""

    @property
    @abstractmethod
    def max_tokens(self) -> int | None:
        """The maximum number of tokens of each text, for which all of its tokens count; None for no maximum."""

    def examples(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a work unit's records, in order, as record batches. Count every record in `counter`.

        Raises:
            PipelineError: the texts of the unit do not fit together, or cannot be tokenized.
        """
        self.tokenization.start_unit()
        waiting: list[ExamplesToWrite] = []
        num = size = 0
        for tokenized in self.tokenized(records, counter):
            selected = self.select(tokenized, counter)
            for part in selected.singly() if self.ends_anywhere else [selected]:
                room = self.batch_room or len(part.ids)
                if size >= BATCH_BYTES or (waiting and num + room > self.batch_examples):
                    yield self.batch(ExamplesToWrite.joined(waiting), counter.counts)
                    waiting, num, size = [], 0, 0
                if len(part.ids):
                    waiting.append(part)
                    num += len(part.ids)
                    size += sum(column.values.nbytes for column in part.columns)
        if waiting:
            yield self.batch(ExamplesToWrite.joined(waiting), counter.counts)

    def texts(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[BuiltTexts]:
        """Yield the texts of all examples. Count every record in `counter`."""
        for built in counter.made(records, lambda record: self.build(record, counter.counts)):
            yield from built

    def tokenized(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[TokenizedTexts]:
        """Yield the texts of all examples with their token ids, many at a time."""
        waiting: list[BuiltTexts] = []
        num = size = 0
        is_first = True
        for texts in self.texts(records, counter):
            waiting.append(texts)
            num += len(texts.prepared)
            size += texts.size
            if num >= self.together[0] or size >= self.together[1]:
                yield from self.tokenize(waiting, counter.counts, is_first)
                waiting, num, size, is_first = [], 0, 0, False
        if waiting:
            yield from self.tokenize(waiting, counter.counts, is_first)

    def tokenize(self, texts: Sequence[BuiltTexts], counts: Counts, is_first: bool) -> Iterator[TokenizedTexts]:
        """Yield texts with their token ids.

        Args:
            texts: the texts that are tokenized together.
            is_first: whether they are the first ones of the work unit.
        """
        prepared = [text for each in texts for text in each.prepared]
        raw = [text for each in texts for text in each.raw]
        sources = [each.source for each in texts for _ in each.prepared]
        yield TokenizedTexts(prepared, raw, sources, self.tokenization.tokenize(prepared, sources))

    def example_id(self, texts: Sequence[str]) -> int:
        """Return the id of an example: a hash of its text. A builder with several texts per example overrides this
        method.

        Args:
            texts: the prepared texts of the example.
        """
        return text_id(texts[0].encode())

    def select(self, tokenized: TokenizedTexts, counter: RecordCounter) -> ExamplesToWrite:
        """Return the examples to write to the dataset.

        An example is dropped if one of its texts has fewer than `min_tokens` or more than `max_tokens` tokens, or
        contains an excluded text. An empty text of an example with several texts stands for a missing one, which may
        have no tokens. Every example is counted in `counter`, as kept or as filtered.

        Args:
            tokenized: the tokenized texts of one or more examples.
        """
        min_tokens, max_tokens, width = self.builder.min_tokens, self.max_tokens, tokenized.width
        filtered = counter.counts.filtered
        lengths = tokenized.tokens.lengths.reshape(-1, width)
        counter.counts.measure("tokens", int(lengths.max()))
        short = np.where(absent(tokenized), min_tokens, lengths - tokenized.num_uncounted).min(1) < min_tokens
        long = ~short & (lengths.max(1) > (np.inf if max_tokens is None else max_tokens))
        filtered["short_tokens"] += int(short.sum())
        if "long_tokens" in filtered:
            filtered["long_tokens"] += int(long.sum())
        kept = np.flatnonzero(~(short | long))

        def of(index: int, texts: Sequence[str]) -> Sequence[str]:
            return texts[index * width : (index + 1) * width]

        if self.excluded:
            held = [text for index in kept.tolist() for text in of(index, tokenized.raw)]
            places = np.unique(np.array(containing_excluded(held, self.excluded), np.int64) // width)
            for index in kept[places].tolist():
                held_text = next(filter(None, map(self.excluded.found_in, of(index, tokenized.raw))))
                number = self.example_id(of(index, tokenized.prepared))
                counter.exclude(tokenized.sources[index * width], number, held_text)
            kept = np.delete(kept, places)
        counter.counts.kept += len(kept)
        ids = np.array([self.example_id(of(index, tokenized.prepared)) for index in kept.tolist()], np.int64)
        firsts = (kept * width).tolist()
        read = (tokenized.prepared, tokenized.raw, tokenized.sources)
        prepared, raw, sources = ([texts[first] for first in firsts] for texts in read)
        columns = [tokenized.tokens.take(kept * width + column) for column in range(width)]
        hashes = of_groups = np.empty((len(kept), 0), np.uint64)
        if self.builder.plan.compares and len(kept):
            # A missing text is replaced by the example's first text, so that it links the example to no other example.
            rows = (of(index, tokenized.prepared) for index in kept.tolist())
            compared = (text or row[0] for row in rows for text in row)
            hashes = same_text.digests(compared, self.builder.whitespace == "collapse").reshape(len(kept), -1)
            if self.builder.group_field is not None:
                of_groups = groups.digests([tokenized.groups[first] for first in firsts], hashes[:, 0])
        return ExamplesToWrite(ids, columns, prepared, raw, sources, hashes, of_groups)

    def record_batch(
        self,
        kept: ExamplesToWrite,
        columns: Sequence[Ragged],
        optional_columns: Sequence[str] = (),
        other_columns: Sequence[pa.Array] = (),
    ) -> pa.RecordBatch:
        """Return examples as a record batch with the columns of the kind.

        Args:
            kept: the examples, from which the ids and the hashes are taken.
            columns: for each column of token ids, the token ids of all examples.
            optional_columns: the names of the last columns in `columns`, if they are columns that some datasets of the
                kind lack, such as `view_0`.
            other_columns: further columns, which follow the columns of token ids.
        """
        fields = KINDS[self.builder.name].schema(pa.from_numpy_dtype(columns[0].values.dtype), optional_columns)
        lists = [column.to_arrow(fields.field("tokens").type) for column in columns]
        batch = pa.record_batch([pa.array(kept.ids), *lists, *other_columns], schema=fields)
        if not self.builder.plan.compares:
            return batch
        batch = attach(batch, HASHES, kept.hashes)
        return batch if self.builder.group_field is None else attach(batch, GROUPS, kept.groups)

    def with_sketches(self, batch: pa.RecordBatch, texts: Sequence[str]) -> pa.RecordBatch:
        """Return a batch with the MinHash sketch of each row's text attached; unchanged if near-duplicates are not
        dropped.

        Args:
            texts: the text of each row.
        """
        return batch if self.builder.near_dedup is None else attach(batch, COLUMN, sketches(texts))


def absent(tokenized: TokenizedTexts) -> np.ndarray:
    """Return a mask of the texts of n examples, (n, width) bool: true for each text that is missing.

    Args:
        tokenized: the texts of the examples. An empty text stands for a missing one, except if examples have one text.
    """
    width = tokenized.width
    return np.array([width > 1 and not text for text in tokenized.prepared], bool).reshape(-1, width)


def containing_excluded(texts: Sequence[str], excluded: Excluded) -> list[int]:
    """Return the indices of the texts that contain an excluded text.

    For speed, texts are first tested in groups, as if they were the lines of one text.
    """
    indices = []
    for first in range(0, len(texts), EXCLUDE_TOGETHER):
        together = texts[first : first + EXCLUDE_TOGETHER]
        if excluded.may_contain(together):
            indices += [first + index for index, text in enumerate(together) if excluded.contains_excluded(text)]
    return indices
