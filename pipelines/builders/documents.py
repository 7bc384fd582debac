"""Documents: one long text per record, kept if it has at least `min_tokens` tokens.

    record -> prepared text -> drop if bytes < min_tokens -> token ids -> drop if too few or too many -> batches (1 MiB)

An example is {id, tokens, source}. The id is a hash of the prepared text's bytes, so that a document has the same id
however the corpus is divided into files. The tokens are without special tokens. The source is "file:offset". A text
with fewer bytes than `min_tokens` is dropped before tokenization if each of the tokenizer's tokens takes at least one
byte.
"""

import dataclasses
import functools
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import pyarrow as pa
from annotated_types import Ge

from clearspan.cli.catalog import COMMANDS
from clearspan.common.options import Flag
from clearspan.pipelines.builders import Builder, Dedup
from clearspan.pipelines.builders.text import BuiltTexts, ExamplesToWrite, TextWorker
from clearspan.pipelines.builders.text_inputs import EMPTY, FileOptions, TextOptions, text_in, text_of
from clearspan.pipelines.builders.text_steps import NearDedup, TextSteps, Whitespace, excluded_lines, excluded_of
from clearspan.pipelines.counter import Counts
from clearspan.pipelines.records import Inputs, ReadOptions, Record
from clearspan.pipelines.text.filters import Filter, FilteredText, LanguageOptions, QualityOptions, kept


@dataclasses.dataclass(frozen=True, kw_only=True)
class Documents(Builder):
    """Builder of the kind `documents`: long texts."""

    min_tokens: Annotated[int, Flag("N"), Ge(1)] = 2048
    """Drop documents of fewer tokens (default 2048, as in DeCLUTR; for short texts, use 16)."""
    max_tokens: Annotated[int | None, Flag("N")] = None
    """Drop documents of more tokens (default: no limit)."""
    whitespace: Whitespace = "keep"
    """Keep whitespace as it is, or collapse each run of whitespace to one space."""
    dedup: Dedup = False
    """Drop duplicates: keep only the first of equal examples."""
    near_dedup: NearDedup = None
    """Drop near-duplicates: examples whose Jaccard similarity to an earlier one is at least S (0.5 to 1, e.g. 0.8)."""
    texts: TextOptions = dataclasses.field(default_factory=TextOptions)
    files: FileOptions = dataclasses.field(default_factory=FileOptions)
    steps: TextSteps = dataclasses.field(default_factory=TextSteps)
    languages: LanguageOptions = dataclasses.field(default_factory=LanguageOptions)
    filtering: QualityOptions = dataclasses.field(default_factory=QualityOptions)

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

    def validate(self) -> None:
        super().validate()
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise ValueError("`max_tokens` must be at least `min_tokens`")

    @functools.cached_property
    def filters(self) -> tuple[Filter, ...]:
        return self.steps.filters(self.languages.filter, *self.filtering.filters)

    @property
    def reasons(self) -> tuple[str, ...]:
        long = ["long_tokens"] if self.max_tokens else []
        return (EMPTY, "short_bytes", "short_tokens", *long, *self.steps.reasons(self.filters))

    def options(self) -> dict[str, Any]:
        return {
            "min_tokens": self.min_tokens,
            "max_tokens": self.max_tokens,
            **self.texts.described(),
            **self.steps.described(self.files, self.plan, self.whitespace, self.languages.filter),
            **self.filtering.described(),
        }

    def reading(self) -> ReadOptions:
        return self.texts.reading(self.files)

    def check(self, record: Record) -> None:
        text_of(record, self.texts.text_field)

    def resources(self, inputs: Inputs) -> dict[str, bytes]:
        return self.steps.resources()

    def fingerprint(self, resources: Mapping[str, bytes]) -> dict[str, Any]:
        return self.steps.fingerprint(super().fingerprint(resources), resources)

    def worker(self, resources: Mapping[str, bytes]) -> "DocumentWorker":
        return DocumentWorker(self, self.steps.loaded(resources), excluded_of(resources))

    def remarks(self, fingerprint: Mapping[str, Any], sums: Mapping[str, int]) -> list[str]:
        return [*excluded_lines(fingerprint), *self.filtering.removed(sums)]


class DocumentWorker(TextWorker[Documents]):
    """Worker of the kind `documents`, which filters and tokenizes the documents, about 1 MB of text at a time."""

    together = (1 << 20, 1 << 20)
    batch_examples = 4096
    ends_anywhere = True

    @property
    def max_tokens(self) -> int | None:
        return self.builder.max_tokens

    def build(self, record: Record, counts: Counts) -> list[BuiltTexts]:
        """Return the text of a record.

        If the document is empty, dropped by a filter, or too short in bytes to have enough tokens, count it in `counts`
        as filtered.
        """
        if (found := text_in(record, self.builder.texts.text_field, counts)) is None:
            return []
        read, data = found
        if (document := kept(FilteredText(read), self.builder.filters, counts)) is None:
            return []
        text = self.builder.steps.prepared(document.text, self.builder.whitespace)
        num_bytes = len(data if text is read else text.encode())
        counts.measure("bytes", num_bytes)
        if self.tokenization.byte_level and num_bytes < self.builder.min_tokens:
            counts.filtered["short_bytes"] += 1
            return []
        return [BuiltTexts([text], [document.text], record.source, size=num_bytes)]

    def batch(self, examples: ExamplesToWrite, counts: Counts) -> pa.RecordBatch:
        batch = self.record_batch(examples, examples.columns, other_columns=[pa.array(examples.sources, pa.string())])
        return self.with_sketches(batch, examples.prepared)
