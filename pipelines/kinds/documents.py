"""Documents: one long text per record, kept when it has at least `min_tokens` tokens.

    record -> prepared text -> drop if bytes < min_tokens -> token ids -> drop if too few or too many -> batches (1 MiB)

An example is {id, tokens, source}: the id is a hash of the prepared text's bytes, so that a document has the same id
however the corpus is packed; tokens have no special tokens; source is "file:offset".
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import pyarrow as pa
from annotated_types import Ge

from clearspan.common.options import Flag
from clearspan.pipelines.kinds.text import TextKind, TextWorker, excluded_of
from clearspan.pipelines.kinds.text_inputs import text_id, text_of
from clearspan.pipelines.records import Record
from clearspan.pipelines.tally import Counts, RecordError, Tally
from clearspan.shards.ragged import Ragged
from clearspan.shards.schema import schema

TOKENIZE_BYTES = 1 << 20
"""Documents are tokenized in groups of about this much text."""
BATCH_BYTES = 1 << 20
BATCH_EXAMPLES = 4096


@dataclasses.dataclass(frozen=True)
class _Document:
    """A document: the text that the filters leave, the prepared text, and the prepared text in UTF-8."""

    original: str
    text: str
    data: bytes
    source: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Documents(TextKind):
    """The kind `documents`."""

    min_tokens: Annotated[
        int, Flag("drop shorter documents (default 2048, DeCLUTR's length; for short texts 16)", "N"), Ge(1)
    ] = 2048
    max_tokens: Annotated[int | None, Flag("drop longer documents", "N")] = None

    name: ClassVar[str] = "documents"
    summary: ClassVar[str] = "long texts: JSON lines, plain text, tars of texts (plain, .gz, .bz2, .xz, .zst), parquet"
    example: ClassVar[str] = (
        "clearspan documents --input 'corpus/*.jsonl' --output data/train --tokenizer tokenizers/roberta-base"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise ValueError("--max-tokens must be at least --min-tokens")

    @property
    def reasons(self) -> tuple[str, ...]:
        return ("short_bytes", "short_tokens", *(["long_tokens"] if self.max_tokens else []), *super().reasons)

    @property
    def bytes_per_s(self) -> float:
        """Rate measured on the 400 MB of `benchmarks.pipelines`."""
        return 70e6

    def options(self) -> dict[str, Any]:
        return {"min_tokens": self.min_tokens, "max_tokens": self.max_tokens, **super().options()}

    def worker(self, resources: Mapping[str, bytes]) -> "DocumentWorker":
        return DocumentWorker(self, self.tokenization_of(resources), excluded_of(resources))

    def reasons_in_words(self, counts: Counts) -> dict[str, tuple[str, str]]:
        few = f"have fewer than {self.min_tokens:,} tokens (the longest {_longest(counts)})", "lower --min-tokens"
        many = f"have more than {self.max_tokens or 0:,} tokens", "raise --max-tokens"
        return {"short_bytes": few, "short_tokens": few, "long_tokens": many, **super().reasons_in_words(counts)}

    def nothing_kept(self, counts: Counts) -> str:
        if not counts.longest or any(map(counts.filtered.get, super().reasons)):
            return super().nothing_kept(counts)
        if too_long := counts.filtered.get("long_tokens"):
            return (
                f"none of {counts.read:,} documents has {self.min_tokens:,} to {self.max_tokens:,} tokens, "
                f"{too_long:,} have more: change --min-tokens or --max-tokens"
            )
        return (
            f"none of {counts.read:,} documents has {self.min_tokens:,} tokens, the longest {_longest(counts)}: "
            "lower --min-tokens"
        )


def _longest(counts: Counts) -> str:
    """Return the length of the longest document, in tokens if any was tokenized, else in bytes."""
    if "tokens" in counts.longest:
        return f"{counts.longest['tokens']:,} tokens"
    return f"{counts.longest.get('bytes', 0):,} bytes, so no more tokens than that"


class DocumentWorker(TextWorker[Documents]):
    """Worker of the kind `documents`."""

    def examples(self, records: Iterable[Record], tally: Tally) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a unit's records, in order, as record batches; count every record in `tally`."""
        kind, tokenization = self.kind, self.tokenization
        tokenization.start_unit()
        batch = _Batch(self)
        for documents in self._groups(records, tally):
            texts, sources = zip(*((document.text, document.source) for document in documents), strict=True)
            ids = tokenization.tokenize(texts, sources)
            for index, document in enumerate(documents):
                tokens = ids[index]
                tally.counts.measure("tokens", len(tokens))
                if len(tokens) < kind.min_tokens:
                    tally.counts.filtered["short_tokens"] += 1
                    continue
                if kind.max_tokens and len(tokens) > kind.max_tokens:
                    tally.counts.filtered["long_tokens"] += 1
                    continue
                if self.excludes(document.original, document.data, document.source, tally):
                    continue
                tally.counts.kept += 1
                batch.add(document, tokens)
                if batch.is_full:
                    yield batch.take()
        if batch.ids:
            yield batch.take()

    def _groups(self, records: Iterable[Record], tally: Tally) -> Iterator[list[_Document]]:
        """Yield groups of documents to tokenize together; filter those that cannot have enough tokens."""
        group: list[_Document] = []
        size = 0
        for record in records:
            tally.counts.read += 1
            try:
                read, data = text_of(record, self.kind.text_field)
                selected = self.kind.selected(read, tally.counts)
            except RecordError as problem:
                tally.reject(record, problem)
                continue
            if selected is None:
                continue
            original, text = selected.text, self.kind.prepared(selected.text)
            if text is not read:
                data = text.encode()
            tally.counts.measure("bytes", len(data))
            if self.tokenization.byte_level and len(data) < self.kind.min_tokens:
                tally.counts.filtered["short_bytes"] += 1
                continue
            group.append(_Document(original, text, data, record.source))
            size += len(data)
            if size >= TOKENIZE_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group


class _Batch:
    """Examples that are being collected for one record batch."""

    def __init__(self, worker: DocumentWorker) -> None:
        self.worker = worker
        self.schema = schema("documents", pa.from_numpy_dtype(worker.tokenization.dtype))
        self._clear()

    def _clear(self) -> None:
        self.ids: list[int] = []
        self.tokens: list[np.ndarray] = []
        self.sources: list[str] = []
        self.texts: list[str] = []
        self.num_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.num_bytes >= BATCH_BYTES or len(self.ids) >= BATCH_EXAMPLES

    def add(self, document: _Document, tokens: np.ndarray) -> None:
        self.ids.append(text_id(document.data))
        self.tokens.append(tokens)
        self.sources.append(document.source)
        self.texts.append(document.text)
        self.num_bytes += tokens.nbytes

    def take(self) -> pa.RecordBatch:
        """Return the collected examples as a record batch, and start over."""
        tokens = Ragged.of(self.tokens, self.tokens[0].dtype).to_arrow(self.schema.field("tokens").type)
        columns = [pa.array(self.ids, pa.int64()), tokens, pa.array(self.sources, pa.string())]
        batch = self.worker.with_sketches(pa.record_batch(columns, schema=self.schema), self.texts)
        self._clear()
        return batch
