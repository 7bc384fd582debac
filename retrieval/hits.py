"""Hits, the results of a search: texts with their scores, contents and places in the input files."""

import dataclasses
from typing import Any

import pyarrow as pa

from clearspan.shards.schema import FIELD
from clearspan.shards.vectors import field_names


@dataclasses.dataclass(frozen=True)
class Hit:
    """A text that a query finds; if documents are cut into chunks, a document with its best chunk.

    Attributes:
        score: the score of the text, or of the best chunk: the model's similarity, BM25's score, or a combination of
            both.
        id: the id of the text, or of the document if documents are cut into chunks.
        source: the input file of the text.
        text: the text, or the best chunk; None if the dataset does not store texts.
        record: the number of the text's record in the input file, from 1; None if the dataset does not store it.
        fields: name of a field that the dataset stores (`--keep-fields`) -> value; None if the record lacks the field.
        chunk: the number of the best chunk in its document, from 0; None if documents are not cut into chunks.
        collection: the folder of the collection that holds the text.
        id_field: the name of the stored field that holds the user's own id of the text; None if there is no such field.
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
        """The id to show for the text: the user's own id if the dataset stores it, otherwise `id`.

        A file of queries uses this id, too, to name the text that a query should find.
        """
        known = self.fields.get(self.id_field or "")
        return str(self.id if known is None else known)


def hit_of(batch: pa.RecordBatch, row: int, score: float, collection: str, id_field: str | None) -> Hit:
    """Return the row with index `row` of a batch as a hit.

    Args:
        score: the score of the hit.
        collection: the folder of the collection.
        id_field: the name of the stored field that holds the user's own id of the text; None if there is no such field.
    """

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
