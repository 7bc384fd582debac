"""What a text member holds: one Arrow record batch of many examples, as a stream in one zstd frame.

The ragged token columns' buffers are the flat tokens and the cumulative lengths that the packed encoder wants, so a
decoded member is used without copying. Only data types of the schemas here are accepted: decoding runs no code.

    documents  id, tokens, source
"""

from typing import Any

import pyarrow as pa
import zstandard

EXTENSION = "arrow.zst"
MAX_MEMBER_BYTES = 1 << 30
"""A member that says it decompresses to more than this is refused before any of it is decompressed."""

KINDS: dict[str, tuple[str, ...]] = {
    "documents": ("id:int64", "tokens:tokens", "source:string"),
}
"""Columns of each kind of text shard, as name:type. `tokens` is list<uint16> or list<uint32>, by vocabulary size."""


def token_type(vocab_size: int) -> pa.DataType:
    """The narrowest unsigned type that holds every id below `vocab_size`."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def schema(kind: str, tokens: pa.DataType) -> pa.Schema:
    """The Arrow schema of a kind, e.g. `schema("documents", pa.uint16())`."""
    types = {"int64": pa.int64(), "string": pa.string(), "tokens": pa.list_(pa.field("item", tokens, nullable=False))}
    fields = (column.split(":") for column in KINDS[kind])
    return pa.schema([pa.field(name, types[type_name], nullable=False) for name, type_name in fields])


def token_columns(batch_schema: pa.Schema) -> list[str]:
    """The ragged token columns of a schema, in order."""
    return [field.name for field in batch_schema if pa.types.is_list(field.type)]


def encode(batch: pa.RecordBatch) -> bytes:
    """One record batch as the bytes of a tar member; the same batch gives the same bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return zstandard.ZstdCompressor(level=3).compress(memoryview(sink.getvalue()))


def decode(data: bytes, name: str = "member") -> pa.RecordBatch:
    """The record batch in a tar member's bytes.

    Raises:
        ValueError: it is not one zstd frame of at most MAX_MEMBER_BYTES holding one batch of a known kind.
    """
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_MEMBER_BYTES:
            raise ValueError(f"{name}: a frame of {size:,} bytes is outside the limit of {MAX_MEMBER_BYTES:,}")
        stream = pa.ipc.open_stream(pa.py_buffer(zstandard.ZstdDecompressor().decompress(data)))
        batches = list(stream)
    except (zstandard.ZstdError, pa.ArrowException) as error:
        raise ValueError(f"{name}: not a zstd-compressed Arrow stream ({str(error).splitlines()[0]})") from None
    if len(batches) != 1:
        raise ValueError(f"{name}: holds {len(batches)} record batches, expected 1")
    batch = batches[0]
    known = [schema(kind, tokens) for kind in KINDS for tokens in (pa.uint16(), pa.uint32())]
    if not any(batch.schema.equals(candidate) for candidate in known):
        raise ValueError(f"{name}: columns {batch.schema.names} are of no known kind ({', '.join(KINDS)})")
    batch.validate(full=True)
    return batch


def num_tokens(batch: pa.RecordBatch) -> int:
    """Tokens in all token columns of a batch."""
    return sum(len(batch.column(name).flatten()) for name in token_columns(batch.schema))


def webdataset_decoder(key: str, data: bytes) -> Any:
    """`wds.WebDataset(tars).decode(shards.schema.webdataset_decoder)` gives record batches under "arrow.zst"."""
    return decode(data, key) if key.endswith(EXTENSION) else None
