"""The worker of the kind `vectors`: records -> texts with titles, or their chunks -> windows -> vectors -> batches.

A window is a group of texts that are sorted by length and embedded together.
"""

import dataclasses
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from clearspan.common.encoder.sentence_encoder import Embedded, FolderEncoder
from clearspan.common.encoder.shared_model import SharedModel
from clearspan.common.model_folder import EncoderError
from clearspan.common.same_text import text_id
from clearspan.common.terminal import one_line
from clearspan.pipelines.attached import HASHES, attach
from clearspan.pipelines.builders.copied import Copied
from clearspan.pipelines.builders.embedded_texts import EmbeddedTexts, Text
from clearspan.pipelines.builders.text_inputs import grouped, utf8
from clearspan.pipelines.counter import RecordCounter, RecordError
from clearspan.pipelines.errors import ModelFailedError
from clearspan.pipelines.records import Record
from clearspan.pipelines.text.chunks import Chunker
from clearspan.shards import vectors
from clearspan.shards.schema import KINDS

WINDOW_TEXTS = 8192
WINDOW_BYTES = 4_000_000
"""Limits of a window: number of texts, and bytes of text."""
BATCH_BYTES = 1 << 22


@dataclasses.dataclass(frozen=True)
class _Window:
    """Texts that are embedded together. A text that occurs several times is embedded once.

    If a dataset is updated, it already has the vectors of some texts. These texts are not embedded again.

    Attributes:
        texts: the texts.
        inputs: for each text, the string that is embedded after the prompt: its title and the text.
        new: the distinct strings that must be embedded.
        place: the row of each distinct string's vector in a table. The table has the vectors of `new`, in this order,
            and then the rows of `known`.
        known: the vectors that the updated dataset already has, in the columns that the dataset has for them; None if
            there are no such vectors.
    """

    texts: list[Text]
    inputs: list[str]
    new: list[str]
    place: dict[str, int]
    known: pa.RecordBatch | None

    @classmethod
    def of(cls, texts: list[Text], previous: Copied | None) -> "_Window":
        """Return the window of some texts. If a dataset is updated, read from it the vectors that it already has for
        them.

        Args:
            previous: the reader of the vectors of the updated dataset; None if the run makes a new dataset.
        """
        inputs = [text.model_input for text in texts]
        new = list(dict.fromkeys(inputs))
        known = list[str]()
        table = None
        if previous is not None:
            rows = previous.rows([text_id(text.encode()) for text in new])
            known = [text for text, row in zip(new, rows, strict=True) if row >= 0]
            new = [text for text, row in zip(new, rows, strict=True) if row < 0]
            table = previous.vectors(rows[rows >= 0]) if known else None
        return cls(texts, inputs, new, {text: row for row, text in enumerate([*new, *known])}, table)


@dataclasses.dataclass
class VectorWorker:
    """Worker of the kind `vectors`, which embeds the texts.

    Attributes:
        texts: the part that makes the texts to embed of the records.
        model: the model, loaded in this process, or shared by all worker processes.
        batch_tokens: number of tokens that the model encodes at a time.
        prompt: the prompt to put before each text; "" for no prompt.
        dtype: type of the stored values.
        keep_text: whether each text is stored with its vector.
        chunk_tokens: maximum number of tokens of a chunk; None if texts are not split into chunks.
        chunk_overlap: number of tokens that may be repeated at the beginning of the next chunk.
        old: the reader of the vectors of the dataset that is updated; None if the run makes a new dataset.
    """

    texts: EmbeddedTexts
    model: FolderEncoder | SharedModel
    batch_tokens: int
    prompt: str
    dtype: str
    keep_text: bool
    chunk_tokens: int | None
    chunk_overlap: int
    old: Copied | None = None

    def examples(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a work unit's records, in order, as record batches.

        Every record is counted in `counter`. If texts are split into chunks, each chunk counts as one record.

        Raises:
            ModelFailedError: the model cannot embed the texts; the message says why.
        """
        texts = counter.made(records, lambda record: self.texts.build(record, counter.counts))
        if self.chunk_tokens is not None:
            texts = self._chunked(texts, counter)
        ahead: deque[_Window] = deque()

        def new() -> Iterator[list[str]]:
            for window in grouped(((text, text.size) for text in texts), WINDOW_BYTES, WINDOW_TEXTS):
                ahead.append(_Window.of(window, self.old))
                yield ahead[-1].new

        made = self.model.embed_windows(new(), self.batch_tokens, self.prompt)
        try:
            for embedded in made:
                yield from self._examples(ahead.popleft(), embedded, counter)
        except EncoderError as error:
            raise ModelFailedError(one_line(error)) from None

    def _chunked(self, texts: Iterator[Text], counter: RecordCounter) -> Iterator[Text]:
        """Yield the chunks of the texts. In `counter`, each chunk counts as one record that was read."""
        sizes = (self.chunk_tokens or 0, self.chunk_overlap, self.model.most_tokens)
        chunker = Chunker(self.model.count_tokens, *sizes)
        for window in grouped(((text, text.size) for text in texts), WINDOW_BYTES, WINDOW_TEXTS):
            titles = [chunker.cut_title(self.prompt, text.title) if text.title else "" for text in window]
            before = [f"{self.prompt}{title} " if title else self.prompt for title in titles]
            spans = chunker.chunks([text.text for text in window], before)
            counter.counts.count("documents", len(window))
            for text, title, parts in zip(window, titles, spans, strict=True):
                counter.counts.read += len(parts) - 1  # the text was counted
                counter.counts.count("chunks", len(parts))
                document = text_id(utf8(text.model_input))
                for number, (start, end) in enumerate(parts):
                    part = text.text[start:end]
                    yield text._replace(text=part, size=len(utf8(part)), title=title, document=document, chunk=number)

    def _examples(self, window: _Window, embedded: Embedded, counter: RecordCounter) -> Iterator[pa.RecordBatch]:
        """Yield the examples of a window's texts, and count them in `counter`. A text whose vector is not finite is a
        bad record.

        Args:
            embedded: the embeddings of `window.new`, in this order.
        """
        number = len(window.new)
        is_finite = np.ones(len(window.place), bool)
        truncated = np.concatenate([embedded.truncated, self._are_truncated([*window.place][number:])])
        table = window.known
        if number:
            stored, is_finite[:number] = self._stored(embedded)
            table = pa.concat_batches([stored, table]) if table else stored
        assert table is not None
        kept = []
        for text, model_input in zip(window.texts, window.inputs, strict=True):
            row = window.place[model_input]
            if is_finite[row]:
                kept.append((text, row))
                counter.counts.count("truncated", int(truncated[row]))
            else:
                counter.reject(text.record, RecordError(f"its vector is not finite in {self.dtype}"))
        counter.counts.kept += len(kept)
        size = max(1, BATCH_BYTES // (table.nbytes // len(table) + 1))
        for first in range(0, len(kept), size):
            yield self._batch(kept[first : first + size], table)

    def _are_truncated(self, known: list[str]) -> np.ndarray:
        """Return whether the model reads only the beginning of each of n texts that are not embedded again, (n,) bool.

        Chunks are short enough.
        """
        if not known or self.chunk_tokens is not None or self.model.most_tokens is None:
            return np.zeros(len(known), bool)
        counts = self.model.count_tokens([self.prompt + text for text in known])
        return np.array(counts) > self.model.most_tokens

    def _stored(self, embedded: Embedded) -> tuple[pa.RecordBatch, np.ndarray]:
        """Return n embeddings in the form in which the dataset stores them, and a mask of the finite ones, (n,) bool.

        The form is a record batch with the column `vector`, and the column `scale` if the type of the vectors needs
        one. The mask is true for a vector whose values are finite both before and after the conversion to this form.

        Args:
            embedded: the n embeddings.
        """
        is_finite = np.asarray(np.isfinite(embedded.vectors).all(axis=1))
        stored = vectors.columns(np.where(is_finite[:, None], embedded.vectors, 0), self.dtype)
        table = pa.record_batch(list(stored.values()), names=list(stored))
        return table, is_finite & np.isfinite(vectors.decoded(table)).all(axis=1)

    def _batch(self, kept: list[tuple[Text, int]], table: pa.RecordBatch) -> pa.RecordBatch:
        """Return the examples of some texts as a record batch.

        Args:
            kept: each text, and the row of its vector in `table`.
            table: the columns with the vectors.
        """
        texts = [text for text, _ in kept]
        taken = table.take(pa.array([row for _, row in kept], pa.int64()))
        columns = {
            "id": pa.array((text_id(text.model_input.encode()) for text in texts), pa.int64()),
            "source": pa.array([text.record.name for text in texts], pa.string()),
            **dict(zip(table.schema.names, taken.columns, strict=True)),
        }
        if self.keep_text:
            columns["text"] = pa.array([text.text for text in texts], pa.string())
        columns["record"] = pa.array([text.record.number for text in texts], pa.int64())
        if self.chunk_tokens is not None:
            columns["document"] = pa.array([text.document for text in texts], pa.int64())
            columns["chunk"] = pa.array([text.chunk for text in texts], pa.int32())
        columns |= self.texts.fields.columns([text.fields for text in texts])
        optional = [name for name in columns if name not in ("id", "source", "vector")]
        types = {name: column.type for name, column in columns.items()}
        schema = KINDS["vectors"].schema(optional=optional, vector=types["vector"], fields=types)
        batch = pa.record_batch(list(columns.values()), schema=schema)
        if not self.texts.compares:
            return batch
        digests = np.frombuffer(b"".join(text.digest for text in texts), "<u8").reshape(len(texts), -1)
        return attach(batch, HASHES, digests)
