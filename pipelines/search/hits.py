"""Hits: what a search returns of a text, and where it stood in its file."""

import dataclasses
from typing import Any

import pyarrow as pa

from clearspan.shards.schema import FIELD
from clearspan.shards.vectors import field_names


@dataclasses.dataclass(frozen=True)
class Hit:
    """A text that a query finds; of a dataset of chunks, a document with its best chunk.

    Attributes:
        score: as `Collection.search` defines it.
        id: the text's id; of a dataset of chunks, the document's.
        source: the text's file.
        text: the text, or the best chunk; None if the dataset keeps no texts.
        record: the number of the record in its file, from 1; None if the dataset does not hold it.
        fields: the kept fields by name; a field that a record lacks is None.
        chunk: the number of the best chunk in its document, from 0; None without chunks.
        collection: the folder of the collection that holds the text.
        id_field: the kept field that holds the text's id in its file; None: no such field is kept.
    """

    score: float
    id: int
    source: str
    text: str | None = None
    record: int | None = None
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    chunk: int | None = None
    collection: str = ""
    id_field: str | None = None

    @property
    def name(self) -> str:
        """The id that is shown, and that files of queries name: that in the text's file if it is kept, or else `id`."""
        known = self.fields.get(self.id_field or "")
        return str(self.id if known is None else known)


def hit_of(batch: pa.RecordBatch, row: int, score: float, collection: str, id_field: str | None) -> Hit:
    """Return a row of a batch as a hit; `collection` and `id_field` as in `Hit`."""

    def value(name: str, default: Any = None) -> Any:
        return batch.column(name)[row].as_py() if name in batch.schema.names else default

    fields = {name: value(FIELD + name) for name in field_names(batch.schema)}
    identity = value("document", value("id"))
    return Hit(
        score,
        identity,
        value("source"),
        value("text"),
        value("record"),
        fields,
        value("chunk"),
        collection,
        id_field,
    )
