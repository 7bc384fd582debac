"""The kinds of datasets: the columns of each kind, its layout in a tar, and the column whose statistics the manifest
holds.

    documents  id, tokens, source
    sentences  id, tokens, view_0, view_1, ...: as many views as the pipeline's --views
    triplets   id, tokens, positive, and optionally positive_1, ..., negative, negative_1, ...: a row with fewer texts
               leaves the last columns empty
    images     id, image, label
    audio      id, frames, label: log-mel spectrograms, (frames, 128) float16
    vectors    id, source, vector, scale for int8 vectors, and optionally text, record, document, chunk, field_NAME

`source` is the place of the input record, as "file:offset", and `record` its number in the file. `document` and `chunk`
are the id of the whole text and the number of the chunk, if long texts were split. The columns `field_NAME` hold fields
of the input records that the user chose to store; only these columns are nullable. Every kind has an `id`, which is not
negative. A new kind is one more entry in KINDS.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from clearspan.shards.layouts import ARROW, EXTENSION, Layout, MemberError, Samples, array_type, npy, unpack

TOKENS = "tokens"
"""Name of the type of a column of token ids: list<uint16> or list<uint32>, depending on the vocabulary size, and the
same for all columns of a batch.
"""
VECTOR = "vector"
"""Name of the type of a column of embeddings: lists of as many values as the dataset's
dimension, of a type in VECTOR_TYPES.
"""
VECTOR_TYPES = {"float32": pa.float32(), "float16": pa.float16(), "int8": pa.int8()}
TYPES = {
    "int64": pa.int64(),
    "int32": pa.int32(),
    "string": pa.string(),
    "binary": pa.binary(),
    "float32": pa.float32(),
}
FIELD = "field_"
"""Prefix of the columns that hold fields of the input records, e.g. `field_url`, `field_meta.year`."""
FIELD_TYPES = {"string": pa.string(), "int64": pa.int64(), "double": pa.float64(), "bool": pa.bool_()}
"""Arrow types of the columns with the prefix FIELD, by name. The values may be null."""
ARRAY = re.compile(r"float16\[(\d+)\]")
"""Pattern of the type of a column of arrays, e.g. float16[128]: each value is (n, 128), and n may differ by row."""
LABEL = "label"
"""Name of the column of class numbers."""
MEL_BINS = 128
"""Number of mel bins of a frame of audio."""


def vector_type(dtype: str, dim: int) -> pa.DataType:
    """Return the Arrow type of a column of embeddings with `dim` values each; `dtype` is float32, float16 or int8."""
    return pa.list_(pa.field("item", VECTOR_TYPES[dtype], nullable=False), dim)


def token_type(vocab_size: int) -> pa.DataType:
    """Return the Arrow type of token ids: uint16 if it holds every id below `vocab_size`, otherwise uint32."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


@dataclasses.dataclass(frozen=True)
class Schema:
    """Schema of a kind of dataset: its columns and their layout in a tar.

    Attributes:
        name: the kind's name, in lower-case letters; the names of shards begin with it.
        columns: the columns that are always present, each as "name:type", e.g. "id:int64".
        optional: the columns that may be absent, each as "name:type". Those present follow `columns`, in this order. A
            star stands for any number of columns. `view_*` stands for view_0, view_1, ... The numbers begin with 1 if
            the name without a number is also a column: `negative`, negative_1, negative_2, ... `field_*` stands for
            any names with this prefix, whose types are string, int64, double or bool.
        layout: the way in which rows are stored in a tar.
        statistics: the column of arrays whose mean and standard deviation the manifest holds; "" if there is none.
    """

    name: str
    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()
    layout: Layout = ARROW
    statistics: str = ""

    @property
    def has_tokens(self) -> bool:
        """Return whether the examples hold token ids. Every dataset of such a kind has a tokenizer."""
        return any(column.endswith(f":{TOKENS}") for column in self.columns)

    def schema(
        self,
        tokens: pa.DataType | None = None,
        optional: Sequence[str] = (),
        vector: pa.DataType | None = None,
        fields: Mapping[str, pa.DataType] = MappingProxyType({}),
    ) -> pa.Schema:
        """Return the Arrow schema of the kind's batches.

        Args:
            tokens: Arrow type of a token id; None for a kind that has no token ids.
            optional: names of the optional columns that are present.
            vector: type of the column of embeddings; None for a kind that has no embeddings.
            fields: types of the `field_*` columns in `optional`, by name.

        Raises:
            KeyError: the kind has no such optional column, the type of a token id is needed but None, or `fields` lacks
                the type of a `field_*` column.
        """
        types = {**TYPES, TOKENS: pa.list_(pa.field("item", tokens, nullable=False))} if tokens else TYPES
        types = {**types, VECTOR: vector_type("float32", 1) if vector is None else vector}
        known = dict(column.split(":") for column in self.optional)
        columns = [column.split(":") for column in self.columns]
        columns += [[name, known[self._pattern(name)]] for name in optional]
        arrays = {name: array_type(int(match[1])) for _, name in columns if (match := ARRAY.fullmatch(name))}
        types = types | arrays
        return pa.schema(
            [
                pa.field(name, fields[name]) if type_name == FIELD else pa.field(name, types[type_name], nullable=False)
                for name, type_name in columns
            ]
        )

    def _pattern(self, name: str) -> str:
        """Return the name in `optional` that stands for a column of this name, e.g. `view_*` for view_3."""
        exact = {column.partition(":")[0] for column in self.optional}
        if name in exact:
            return name
        return f"{FIELD}*" if name.startswith(FIELD) else _stem(name)

    def check(self, batch_schema: pa.Schema) -> None:
        """Raise MemberError if `batch_schema`, the schema of a batch, does not have the columns of this kind."""
        if twice := [name for name in batch_schema.names if batch_schema.names.count(name) > 1]:
            raise MemberError(f"two columns are named {twice[0]}")
        optional = list(self._in_order(batch_schema.names[len(self.columns) :]))
        vector = next((field.type for field in batch_schema if is_vector(field.type)), None)
        allowed = FIELD_TYPES.values()
        fields = {field.name: field.type if field.type in allowed else pa.string() for field in batch_schema}
        expected = [self.schema(tokens, optional, vector, fields) for tokens in (pa.uint16(), pa.uint32())]
        if not any(batch_schema.equals(schema) for schema in expected):
            raise MemberError(
                f"columns {batch_schema.names} are not the columns of {self.name} ({', '.join(expected[0].names)})"
            )
        if vector is not None and pa.types.is_int8(vector.value_type) != ("scale" in optional):
            raise MemberError(f"vectors of {vector.value_type} {'with' if 'scale' in optional else 'without'} a scale")

    def _in_order(self, names: Sequence[str]) -> Iterator[str]:
        """Yield the names that the optional columns of a batch must have, in the order that they must have.

        The order is that of `optional`, and columns such as view_0, view_1, ... are numbered without gaps.

        Args:
            names: the names that the batch's columns have, without the columns that are always present.
        """
        columns = [column.partition(":")[0] for column in (*self.columns, *self.optional)]
        for name in columns[len(self.columns) :]:
            if name == f"{FIELD}*":
                yield from (name for name in names if name.startswith(FIELD))
            elif name.endswith("*"):
                first = int(name[:-2] in columns)
                count = sum(_stem(other) == name for other in names)
                yield from (f"{name[:-1]}{number}" for number in range(first, first + count))
            elif name in names:
                yield name


KINDS: dict[str, Schema] = {
    kind.name: kind
    for kind in (
        Schema("documents", ("id:int64", "tokens:tokens", "source:string")),
        Schema("sentences", ("id:int64", "tokens:tokens"), optional=("view_*:tokens",)),
        Schema(
            "triplets",
            ("id:int64", "tokens:tokens", "positive:tokens"),
            optional=("positive_*:tokens", "negative:tokens", "negative_*:tokens"),
        ),
        Schema("images", ("id:int64", "image:binary", "label:int64"), layout=Samples(image="jpg", label="cls")),
        Schema(
            "audio",
            ("id:int64", f"frames:float16[{MEL_BINS}]", "label:int64"),
            layout=Samples(frames=npy(MEL_BINS), label="cls"),
            statistics="frames",
        ),
        Schema(
            "vectors",
            ("id:int64", "source:string", "vector:vector"),
            optional=(
                "scale:float32",
                "text:string",
                "record:int64",
                "document:int64",
                "chunk:int32",
                f"{FIELD}*:{FIELD}",
            ),
        ),
    )
}


def register(kind: Schema) -> None:
    """Add a kind that a module outside this package defines; the module calls this when it is imported.

    Shards and manifests hold only the name of a kind and never the name of a module, so a dataset cannot choose what is
    imported. To read such a dataset, first import the module, or name it in the environment variable
    CLEARSPAN_EXTENSIONS.

    Raises:
        ValueError: the name does not consist of lower-case letters, or there is a kind of this name with different
            columns.
    """
    if not re.fullmatch("[a-z]+", kind.name):
        raise ValueError(f"kind {kind.name!r}: the name, with which shards' names begin, must be of lower-case letters")
    other = KINDS.setdefault(kind.name, kind)
    if (other.columns, other.optional) != (kind.columns, kind.optional):
        raise ValueError(f"kind {kind.name!r}: a kind of this name exists, of columns {', '.join(other.columns)}")


def schema(kind: str, tokens: pa.DataType | None = None, views: int = 0) -> pa.Schema:
    """Return the Arrow schema of a kind, e.g. `schema("sentences", pa.uint16(), views=2)`.

    Apart from the views, the schema has no optional columns.

    Args:
        kind: the kind's name.
        tokens: Arrow type of a token id; None for a kind that has no token ids.
        views: number of columns view_0, view_1, ...; 0 for a kind that has no views.

    Raises:
        KeyError: there is no such kind, the kind has no views although `views` is not 0, or it has token ids although
            `tokens` is None.
    """
    return KINDS[kind].schema(tokens, [f"view_{view}" for view in range(views)])


def is_vector(column_type: pa.DataType) -> bool:
    """Return whether a column of this type holds embeddings: lists of fixed size of float32, float16 or int8."""
    is_list = pa.types.is_fixed_size_list(column_type)
    return bool(is_list and column_type.value_type in VECTOR_TYPES.values() and column_type.list_size > 0)


def numbered(name: str, count: int) -> list[str]:
    """Return `count` names of columns: for "negative", these are negative, negative_1, negative_2, ..."""
    return [name if number == 0 else f"{name}_{number}" for number in range(count)]


def columns_named(name: str, names: Sequence[str]) -> list[str]:
    """Return the names in `names` that are `name`, or `name` with a number: for "negative" also negative_1, ..."""
    return [other for other in names if name in (other, _stem(other)[:-2])]


def _stem(name: str) -> str:
    """Return a column's name with a star in place of the number at its end, e.g. `view_*` for view_3."""
    return f"{name.rstrip('0123456789')}*"


def num_views(batch_schema: pa.Schema) -> int:
    """Return the number of columns view_0, view_1, ... in a schema."""
    return sum(name.startswith("view_") for name in batch_schema.names)


def ragged_columns(batch_schema: pa.Schema) -> list[str]:
    """Return the names of the columns of lists with varying lengths, in order."""
    return [field.name for field in batch_schema if pa.types.is_list(field.type)]


def token_columns(batch_schema: pa.Schema) -> list[str]:
    """Return the names of the columns of token ids, in order."""
    types = (pa.uint16(), pa.uint32())
    return [name for name in ragged_columns(batch_schema) if batch_schema.field(name).type.value_type in types]


def tokens_by_column(batch: pa.RecordBatch) -> dict[str, int]:
    """Return the number of tokens in each column of token ids."""
    return {name: len(batch.column(name).flatten()) for name in token_columns(batch.schema)}


def add_up(counts: Mapping[str, int], added: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of two tables of counts by name. A name that a table does not have counts as 0 in it."""
    return {name: counts.get(name, 0) + added.get(name, 0) for name in {**counts, **added}}


def count_classes(batch: pa.RecordBatch) -> dict[str, int]:
    """Return the number of examples in a batch by class number (as a string); empty for a kind without classes."""
    if LABEL not in batch.schema.names:
        return {}
    counts = batch.column(LABEL).value_counts()
    return {str(entry["values"]): entry["counts"] for entry in counts.to_pylist()}


def webdataset_decoder(key: str, data: bytes) -> Any:
    """Decode a tar member for webdataset: return the record batch of an Arrow member, and None for any other member.

    `wds.WebDataset(tars).decode(webdataset_decoder)` yields samples with a record batch under "arrow.zst".
    """
    return unpack(data, key, lambda _: None) if key.endswith(EXTENSION) else None
