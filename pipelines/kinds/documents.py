"""Documents: one long text a record, kept when it has at least `min_tokens` tokens.

    record -> text -> (fewer bytes than tokens wanted: out) -> ids -> (too few: out) -> batches of about 1 MiB

An example is {id, tokens, source}: id from the text's own bytes, so that the same document has the same id however it
is packed; tokens without special ones; source "file:offset".
"""

import argparse
import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pipelines.kinds.text import text_id, text_of
from pipelines.records import Record
from pipelines.tally import Counts, RecordError, Tally
from pipelines.text.exclude import Excluded
from pipelines.text.tokenization import Encoder
from pipelines.units.job import Kind
from shards.schema import schema

ENCODE_BYTES = 1 << 20
BATCH_BYTES = 1 << 20
BATCH_EXAMPLES = 4096


@dataclasses.dataclass(frozen=True)
class _Document:
    text: str
    data: bytes
    source: str


@dataclasses.dataclass(frozen=True)
class Documents(Kind):
    """The kind "documents", with the options that shape it."""

    min_tokens: int = 2048
    text_field: str | None = None
    max_tokens: int | None = None

    name: ClassVar[str] = "documents"
    summary: ClassVar[str] = "long texts: JSON lines, plain text, tars of texts (plain, .gz, .bz2, .xz, .zst), parquet"
    example: ClassVar[str] = (
        "python -m pipelines documents --input 'corpus/*.jsonl' --output data/train --tokenizer tokenizers/roberta-base"
    )

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--min-tokens", type=int, default=2048, metavar="N", help="shorter ones go (default 2048)")
        parser.add_argument("--text-field", metavar="NAME", help="of JSON (default text) or a table (default found)")
        parser.add_argument("--max-tokens", type=int, metavar="N", help="longer ones go")

    @classmethod
    def from_arguments(cls, arguments: argparse.Namespace) -> "Documents":
        """Raises ValueError where a value makes no sense."""
        if arguments.min_tokens < 1:
            raise ValueError("--min-tokens must be at least 1")
        if arguments.max_tokens is not None and arguments.max_tokens < arguments.min_tokens:
            raise ValueError("--max-tokens must be at least --min-tokens")
        return cls(arguments.min_tokens, arguments.text_field, arguments.max_tokens)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why a document may be left out."""
        return ("short_bytes", "short_tokens", *(["long_tokens"] if self.max_tokens else []))

    @property
    def bytes_per_s(self) -> float:
        """Measured on the 400 MB of `benchmarks.pipelines`."""
        return 70e6

    def options(self) -> dict[str, Any]:
        """What shapes the dataset, for its fingerprint."""
        return dataclasses.asdict(self)

    def maker(self, encoder: Encoder, files: Mapping[str, bytes]) -> "Documents":
        """Needs nothing but its options."""
        return self

    def nothing_kept(self, counts: Counts) -> str:
        """Why no document was kept."""
        if too_long := counts.filtered.get("long_tokens"):
            return (
                f"none of {counts.read:,} documents has {self.min_tokens:,} to {self.max_tokens:,} tokens, "
                f"{too_long:,} have more: change --min-tokens or --max-tokens"
            )
        if "tokens" in counts.longest:
            seen = f"{counts.longest['tokens']:,} tokens"
        else:
            seen = f"{counts.longest.get('bytes', 0):,} bytes, so no more tokens than that"
        return (
            f"none of {counts.read:,} documents has {self.min_tokens:,} tokens, the longest {seen}: lower --min-tokens"
        )

    def batches(
        self, records: Iterable[Record], encoder: Encoder, tally: Tally, excluded: Excluded | None = None
    ) -> Iterator[pa.RecordBatch]:
        """The examples among a unit's records, in order, as record batches; every record is counted in `tally`."""
        batch = _Batch(encoder.dtype)
        for documents in self._groups(records, encoder.byte_level, tally):
            ids = encoder.encode([document.text for document in documents], [document.source for document in documents])
            for index, document in enumerate(documents):
                tokens = ids[index]
                tally.counts.measure("tokens", len(tokens))
                if len(tokens) < self.min_tokens:
                    tally.counts.filtered["short_tokens"] += 1
                    continue
                if self.max_tokens and len(tokens) > self.max_tokens:
                    tally.counts.filtered["long_tokens"] += 1
                    continue
                if excluded and excluded.meets(document.text):
                    tally.counts.filtered["excluded"] += 1
                    continue
                tally.counts.kept += 1
                batch.add(document, tokens)
                if batch.is_full:
                    yield batch.take()
        if batch.ids:
            yield batch.take()

    def _groups(self, records: Iterable[Record], byte_level: bool, tally: Tally) -> Iterator[list[_Document]]:
        """Documents to encode together: those that may be long enough."""
        group: list[_Document] = []
        size = 0
        for record in records:
            tally.counts.read += 1
            try:
                text, data = text_of(record, self.text_field)
            except RecordError as problem:
                tally.reject(record, problem)
                continue
            tally.counts.measure("bytes", len(data))
            if byte_level and len(data) < self.min_tokens:
                tally.counts.filtered["short_bytes"] += 1
                continue
            group.append(_Document(text, data, record.source))
            size += len(data)
            if size >= ENCODE_BYTES:
                yield group
                group, size = [], 0
        if group:
            yield group


class _Batch:
    """Examples on their way into one record batch."""

    def __init__(self, dtype: np.dtype) -> None:
        self.schema = schema("documents", pa.from_numpy_dtype(dtype))
        self._clear()

    def _clear(self) -> None:
        self.ids: list[int] = []
        self.tokens: list[np.ndarray] = []
        self.sources: list[str] = []
        self.num_bytes = 0

    @property
    def is_full(self) -> bool:
        return self.num_bytes >= BATCH_BYTES or len(self.ids) >= BATCH_EXAMPLES

    def add(self, document: _Document, tokens: np.ndarray) -> None:
        self.ids.append(text_id(document.data))
        self.tokens.append(tokens)
        self.sources.append(document.source)
        self.num_bytes += tokens.nbytes

    def take(self) -> pa.RecordBatch:
        """The batch; empties this one."""
        offsets = np.zeros(len(self.tokens) + 1, dtype=np.int32)
        np.cumsum([len(tokens) for tokens in self.tokens], out=offsets[1:])
        columns = [
            pa.array(self.ids, pa.int64()),
            pa.ListArray.from_arrays(offsets, np.concatenate(self.tokens), type=self.schema.field("tokens").type),
            pa.array(self.sources, pa.string()),
        ]
        self._clear()
        return pa.record_batch(columns, schema=self.schema)
