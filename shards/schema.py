"""The kinds of datasets: their columns, and how these lie in a tar. A new kind is one line here.

    documents  id, tokens, source
    sentences  id, tokens, view_0, view_1, ...: as many views as the pipeline was asked for
    triplets   id, tokens, positive, and perhaps negative
    images     id, image, label
    audio      id, frames, label

No column is nullable. Every kind has an `id`, which is not negative.
"""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from clearspan.shards.layouts import ARROW, EXTENSION, FRAMES, Layout, MemberError, Samples, unpack

TOKENS = "tokens"
"""The type of a column of token ids: list<uint16> or list<uint32>, by vocabulary size, the same in all of a batch."""
TYPES = {"int64": pa.int64(), "string": pa.string(), "binary": pa.binary(), "frames": FRAMES}
LABEL = "label"
"""The column of the number of an example's class."""


def token_type(vocab_size: int) -> pa.DataType:
    """The narrowest unsigned type that holds every id below `vocab_size`."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of dataset. Columns are given as name:type; of those in `optional`, which follow the others in this order,
    any may be absent, and `view_*` stands for view_0, view_1, ...
    """

    name: str
    columns: tuple[str, ...]
    optional: tuple[str, ...] = ()
    layout: Layout = ARROW

    @property
    def has_tokens(self) -> bool:
        """Whether its examples hold token ids, so that a dataset must have a tokenizer."""
        return any(column.endswith(f":{TOKENS}") for column in self.columns)

    def schema(self, tokens: pa.DataType | None = None, optional: Sequence[str] = ()) -> pa.Schema:
        """The Arrow schema, with the type of token ids, and those of the optional columns that are there.

        Raises:
            KeyError: it has no such optional column.
        """
        types = {**TYPES, TOKENS: pa.list_(pa.field("item", tokens, nullable=False))} if tokens else TYPES
        known = dict(column.split(":") for column in self.optional)
        columns = [column.split(":") for column in self.columns]
        columns += [[name, known[name if name in known else f"{name.rstrip('0123456789')}*"]] for name in optional]
        return pa.schema([pa.field(name, types[kind], nullable=False) for name, kind in columns])

    def check(self, found: pa.Schema) -> None:
        """Raises MemberError unless a batch's columns are this kind's."""
        optional = list(self._in_order(found.names[len(self.columns) :]))
        wanted = [self.schema(tokens, optional) for tokens in (pa.uint16(), pa.uint32())]
        if not any(found.equals(schema) for schema in wanted):
            raise MemberError(f"columns {found.names} are not those of {self.name} ({', '.join(wanted[0].names)})")

    def _in_order(self, names: Sequence[str]) -> Iterator[str]:
        """The optional columns that a batch with these may have."""
        for column in self.optional:
            name = column.partition(":")[0]
            if name.endswith("*"):
                yield from (f"{name[:-1]}{number}" for number in range(sum(n.startswith(name[:-1]) for n in names)))
            elif name in names:
                yield name


KINDS: dict[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("documents", ("id:int64", "tokens:tokens", "source:string")),
        Kind("sentences", ("id:int64", "tokens:tokens"), optional=("view_*:tokens",)),
        Kind("triplets", ("id:int64", "tokens:tokens", "positive:tokens"), optional=("negative:tokens",)),
        Kind("images", ("id:int64", "image:binary", "label:int64"), layout=Samples(image="jpg", label="cls")),
        Kind("audio", ("id:int64", "frames:frames", "label:int64"), layout=Samples(frames="npy", label="cls")),
    )
}


def register(kind: Kind) -> None:
    """Add a kind that a module outside this package defines; the module calls this when it is imported.

    Shards and manifests name a kind by its name alone and never a module: a dataset cannot choose what is imported.
    To read one, import the module first, or name it in the environment variable CLEARSPAN_EXTENSIONS.

    Raises:
        ValueError: the name is not of lower-case letters alone, or belongs to a kind with other columns.
    """
    if not re.fullmatch("[a-z]+", kind.name):
        raise ValueError(f"kind {kind.name!r}: the name, with which shards' names begin, must be of lower-case letters")
    other = KINDS.setdefault(kind.name, kind)
    if (other.columns, other.optional) != (kind.columns, kind.optional):
        raise ValueError(f"kind {kind.name!r}: a kind of this name exists, of columns {', '.join(other.columns)}")


def schema(kind: str, tokens: pa.DataType | None = None, views: int = 0) -> pa.Schema:
    """The Arrow schema of a kind with so many views, e.g. `schema("sentences", pa.uint16(), views=2)`."""
    return KINDS[kind].schema(tokens, [f"view_{view}" for view in range(views)])


def num_views(batch_schema: pa.Schema) -> int:
    """Counts the views that a schema stores beside the examples."""
    return sum(name.startswith("view_") for name in batch_schema.names)


def ragged_columns(batch_schema: pa.Schema) -> list[str]:
    """The columns of lists, in order."""
    return [field.name for field in batch_schema if pa.types.is_list(field.type)]


def token_columns(batch_schema: pa.Schema) -> list[str]:
    """The columns of token ids, in order."""
    types = (pa.uint16(), pa.uint32())
    return [name for name in ragged_columns(batch_schema) if batch_schema.field(name).type.value_type in types]


def tokens_by_column(batch: pa.RecordBatch) -> dict[str, int]:
    """Tokens in each token column of a batch."""
    return {name: len(batch.column(name).flatten()) for name in token_columns(batch.schema)}


def add_up(total: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The sum of two counts by name."""
    return {name: total.get(name, 0) + more.get(name, 0) for name in {**total, **more}}


def count_classes(batch: pa.RecordBatch) -> dict[str, int]:
    """Counts a batch's examples by the number of their class; empty for a kind without classes."""
    if LABEL not in batch.schema.names:
        return {}
    counts = batch.column(LABEL).value_counts()
    return {str(one["values"]): one["counts"] for one in counts.to_pylist()}


def check_known(found: pa.Schema) -> None:
    """Raises MemberError unless a batch's columns are those of some kind."""
    for kind in KINDS.values():
        try:
            return kind.check(found)
        except MemberError:
            continue
    raise MemberError(f"columns {found.names} are of no known kind ({', '.join(KINDS)})")


def webdataset_decoder(key: str, data: bytes) -> Any:
    """`wds.WebDataset(tars).decode(shards.schema.webdataset_decoder)` gives record batches under "arrow.zst"."""
    return unpack(data, key, check_known) if key.endswith(EXTENSION) else None
