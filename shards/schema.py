"""What a text member holds: one Arrow record batch of many examples, as a stream in one zstd frame.

The ragged token columns' buffers are the flat tokens and the cumulative lengths that the packed encoder wants, so a
decoded member is used without copying. Only data types of the schemas here are accepted: decoding runs no code.

    documents  id, tokens, source
    sentences  id, tokens, view_0, view_1, ...: as many views as the pipeline was asked for
"""

import struct
from typing import Any

import pyarrow as pa
import zstandard

EXTENSION = "arrow.zst"
ZSTD_LEVEL = 2
"""Of RoBERTa ids as uint16 it leaves 0.60 at 200 MB/s a core, where level 3 leaves 0.59 at 140 and level 1 0.63 at 310:
compression is the largest part of writing, and each byte is stored, sent and read by every training run. Readers take
any level.
"""
MAX_MEMBER_BYTES = 1 << 30
"""A member that says it decompresses to more than this is refused before any of it is decompressed."""

KINDS: dict[str, tuple[str, ...]] = {
    "documents": ("id:int64", "tokens:tokens", "source:string"),
    "sentences": ("id:int64", "tokens:tokens"),
}
"""Columns of each kind of text shard, as name:type. `tokens` is list<uint16> or list<uint32>, by vocabulary size."""
VIEWS = ("sentences",)
"""Kinds whose columns may be followed by view_0, view_1, ..., of type `tokens`."""


class MemberError(ValueError):
    """A member's bytes are no batch of examples. The message names the member."""


def token_type(vocab_size: int) -> pa.DataType:
    """The narrowest unsigned type that holds every id below `vocab_size`."""
    return pa.uint16() if vocab_size <= 1 << 16 else pa.uint32()


def schema(kind: str, tokens: pa.DataType, views: int = 0) -> pa.Schema:
    """The Arrow schema of a kind, e.g. `schema("sentences", pa.uint16(), views=2)`."""
    types = {"int64": pa.int64(), "string": pa.string(), "tokens": pa.list_(pa.field("item", tokens, nullable=False))}
    fields = [column.split(":") for column in KINDS[kind]]
    fields += [[f"view_{view}", "tokens"] for view in range(views)]
    return pa.schema([pa.field(name, types[type_name], nullable=False) for name, type_name in fields])


def num_views(batch_schema: pa.Schema) -> int:
    """How many views a schema stores beside the examples."""
    return sum(name.startswith("view_") for name in batch_schema.names)


def token_columns(batch_schema: pa.Schema) -> list[str]:
    """The ragged token columns of a schema, in order."""
    return [field.name for field in batch_schema if pa.types.is_list(field.type)]


def encode(batch: pa.RecordBatch) -> bytes:
    """One record batch as the bytes of a tar member; the same batch gives the same bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(memoryview(sink.getvalue()))


def decode(data: bytes, name: str = "member") -> pa.RecordBatch:
    """The record batch in a tar member's bytes.

    Raises:
        MemberError: it is not one zstd frame of at most MAX_MEMBER_BYTES holding one batch of a known kind.
    """
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_MEMBER_BYTES:
            stated = f"of {size:,} bytes" if size >= 0 else "that does not state its size"
            raise MemberError(f"{name}: a frame {stated} is outside the limit of {MAX_MEMBER_BYTES:,}")
        stream = pa.py_buffer(zstandard.ZstdDecompressor().decompress(data))
        messages = list(pa.ipc.MessageReader.open_stream(stream))
        if [message.type for message in messages] != ["schema", "record batch"]:
            raise MemberError(f"{name}: holds {[message.type for message in messages]}, expected one record batch")
        batch_schema = pa.ipc.read_schema(messages[0])
        views = num_views(batch_schema)
        known = [
            schema(kind, tokens, views if kind in VIEWS else 0)
            for kind in KINDS
            for tokens in (pa.uint16(), pa.uint32())
        ]
        if not any(batch_schema.equals(candidate) for candidate in known):
            raise MemberError(f"{name}: columns {batch_schema.names} are of no known kind ({', '.join(KINDS)})")
        if _is_compressed(messages[1].metadata):
            raise MemberError(f"{name}: compressed inside its frame, where the limit on its size does not reach")
        batch = pa.ipc.read_record_batch(messages[1], batch_schema)
        batch.validate(full=True)
    except MemberError:
        raise
    except (zstandard.ZstdError, pa.ArrowException, OSError, ValueError, OverflowError, struct.error) as error:
        raise MemberError(f"{name}: not a zstd-compressed Arrow stream ({error})".splitlines()[0]) from None
    return batch


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Whether an Arrow record batch message says that its buffers are compressed.

    Reads the field of its flatbuffer that pyarrow does not show: Message.header (field 2), then RecordBatch.compression
    (field 3). A table's field is absent where its vtable is too short or holds 0.
    """
    data = metadata.to_pybytes()

    def field(table: int, index: int) -> int:
        vtable = table - int(struct.unpack_from("<i", data, table)[0])
        if 4 + 2 * index >= struct.unpack_from("<H", data, vtable)[0]:
            return 0
        offset = int(struct.unpack_from("<H", data, vtable + 4 + 2 * index)[0])
        return table + offset if offset else 0

    header = field(struct.unpack_from("<I", data, 0)[0], 2)
    return field(header + struct.unpack_from("<I", data, header)[0], 3) != 0


def num_tokens(batch: pa.RecordBatch) -> int:
    """Tokens in all token columns of a batch."""
    return sum(len(batch.column(name).flatten()) for name in token_columns(batch.schema))


def webdataset_decoder(key: str, data: bytes) -> Any:
    """`wds.WebDataset(tars).decode(shards.schema.webdataset_decoder)` gives record batches under "arrow.zst"."""
    return decode(data, key) if key.endswith(EXTENSION) else None
