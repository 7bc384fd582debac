"""Documents: one long text per record, kept if it has at least `min_tokens` tokens.

    record -> prepared text -> drop if bytes < min_tokens -> token ids -> drop if too few or too many -> batches (1 MiB)

An example is {id, tokens, source}. The id is a hash of the prepared text's bytes, so that a document has the same id
however the corpus is divided into files. The tokens are without special tokens. The source is "file:offset". A text
with fewer bytes than `min_tokens` is dropped before tokenization if each of the tokenizer's tokens takes at least one
byte.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from annotated_types import Ge

from clearspan.common.catalog import COMMANDS
from clearspan.common.options import Flag
from clearspan.pipelines.builders.text import ExamplesToWrite, TextBuilder, TextWorker, excluded_of
from clearspan.pipelines.builders.text_inputs import EMPTY, grouped, text_in
from clearspan.pipelines.counter import Counts, RecordCounter
from clearspan.pipelines.records import Record

TOKENIZE_BYTES = 1 << 20
"""Documents are tokenized in groups of about this many bytes of text."""
BATCH_EXAMPLES = 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Documents(TextBuilder):
    """Options of the kind `documents`: long texts."""

    min_tokens: Annotated[
        int, Flag("drop documents of fewer tokens (default 2048, as in DeCLUTR; for short texts, use 16)", "N"), Ge(1)
    ] = 2048
    max_tokens: Annotated[int | None, Flag("drop documents of more tokens (default: no limit)", "N")] = None

    name: ClassVar[str] = "documents"
    summary: ClassVar[str] = COMMANDS["documents"].summary
    description: ClassVar[str] = (
        "Make a dataset of tokenized documents, from Parquet, or from JSON lines, tables, plain text or tars of\n"
        "texts, also compressed (.gz, .bz2, .xz, .zst)."
    )
    example: ClassVar[str] = (
        "clearspan documents --input 'corpus/*.jsonl' --output data/train --tokenizer tokenizers/roberta-base"
    )
    rate: ClassVar[float] = 70e6
    """Rate measured on the 400 MB of `benchmarks.pipelines`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise ValueError("`max_tokens` must be at least `min_tokens`")

    @property
    def reasons(self) -> tuple[str, ...]:
        long = ["long_tokens"] if self.max_tokens else []
        return (EMPTY, "short_bytes", "short_tokens", *long, *super().reasons)

    def options(self) -> dict[str, Any]:
        return {"min_tokens": self.min_tokens, "max_tokens": self.max_tokens, **super().options()}

    def worker(self, resources: Mapping[str, bytes]) -> "DocumentWorker":
        return DocumentWorker(self, self.tokenization_of(resources), excluded_of(resources))


class DocumentWorker(TextWorker[Documents]):
    """Worker of the kind `documents`, which filters and tokenizes the documents."""

    def examples(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a work unit's records, in order, as record batches. Count every record in `counter`."""
        self.tokenization.start_unit()
        yield from self.batches(self._singly(records, counter), BATCH_EXAMPLES, self._batch)

    def _singly(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[ExamplesToWrite]:
        """Yield the documents to write to the dataset, one at a time. Count every record in `counter`.

        An `ExamplesToWrite` can hold several documents, but is never divided between batches. Because each one has only
        one document here, a batch can end after any document.
        """
        made = counter.made(records, lambda record: self._document(record, counter.counts))
        for documents in grouped(made, TOKENIZE_BYTES, TOKENIZE_BYTES):
            tokenized = self.tokenized(*zip(*documents, strict=True))
            yield from self.select(tokenized, counter, self.builder.min_tokens, self.builder.max_tokens).singly()

    def _document(self, record: Record, counts: Counts) -> tuple[tuple[str, str, str], int] | None:
        """Return ((prepared text, text before the preparation, source), size of the prepared text in bytes).

        The source is the file and place of the record. If the document is empty, dropped by a filter, or too short in
        bytes to have enough tokens, count it in `counts` as filtered and return None.

        Raises:
            RecordError: the record is bad, or the code of a filter fails on its text.
        """
        if (found := text_in(record, self.builder.text_field, counts)) is None:
            return None
        read, data = found
        if (selected := self.builder.selected(read, counts)) is None:
            return None
        text = self.builder.prepared(selected.text)
        num_bytes = len(data if text is read else text.encode())
        counts.measure("bytes", num_bytes)
        if self.tokenization.byte_level and num_bytes < self.builder.min_tokens:
            counts.filtered["short_bytes"] += 1
            return None
        return (text, selected.text, record.source), num_bytes

    def _batch(self, kept: ExamplesToWrite) -> pa.RecordBatch:
        batch = self.record_batch(kept, kept.columns, other_columns=[pa.array(kept.sources, pa.string())])
        return self.with_sketches(batch, kept.prepared)
