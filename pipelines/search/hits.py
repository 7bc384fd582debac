"""Hits: what a search returns of a text, and where it stood in its file."""

import dataclasses
from typing import Any

import pyarrow as pa

FIELD = "field_"
"""Prefix of the columns of kept fields."""


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
    """

    score: float
    id: int
    source: str
    text: str | None = None
    record: int | None = None
    fields: dict[str, Any] = dataclasses.field(default_factory=dict)
    chunk: int | None = None
    collection: str = ""


def hit_of(batch: pa.RecordBatch, row: int, score: float, collection: str) -> Hit:
    """Return a row of a batch as a hit."""

    def value(name: str, default: Any = None) -> Any:
        return batch.column(name)[row].as_py() if name in batch.schema.names else default

    names = [name for name in batch.schema.names if name.startswith(FIELD)]
    return Hit(
        score,
        value("document", value("id")),
        value("source"),
        value("text"),
        value("record"),
        {name.removeprefix(FIELD): value(name) for name in names},
        value("chunk"),
        collection,
    )
