"""Layouts of a record batch in a tar: all rows in one member, or one file per row and column.

    ARROW     "00003-001-00004.arrow.zst": the batch as an Arrow stream in one zstd frame
    Samples   "00003-001-00004-00017-0123456789abcdef.jpg", "….cls": webdataset's usual form, one key per row

An Arrow stream holds a column of lists as flat values and cumulative lengths. The packed encoder takes the same two
arrays, so the columns of an unpacked member are used without copying. The key of a sample consists of the key of the
batch (the numbers of the work unit, shard and batch), the row's index in the batch, and the row's id in hexadecimal.
Reading therefore gives the same batches that were written. Unpacking runs no code from the data: it accepts Arrow
without extension types, raw bytes, integers written as text, and numpy arrays of numbers.
"""

import io
import re
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import zstandard

EXTENSION = "arrow.zst"
ZSTD_LEVEL = 2
"""Compression level. RoBERTa ids as uint16 shrink to 0.60 of their size at 200 MB/s per core; level 3 gives 0.59 at 140
MB/s and level 1 gives 0.63 at 310 MB/s. Compression takes most of the time of writing, but every byte is stored, sent
and read by every training run. Readers accept any level.
"""
MAX_MEMBER_BYTES = 1 << 30
"""Limit on the decompressed size of a member. A member that states a larger size is not decompressed."""
SAMPLE = re.compile(r"(?P<batch>\d{5}-\d{3}-\d{5})-(?P<row>\d{5})-(?P<id>[0-7][0-9a-f]{15})\.(?P<extension>[a-z0-9]+)")
MAX_ROWS = 100_000
"""Limit on the rows of a batch of samples, because a key has five digits for the row."""

Members = Iterable[tuple[str, bytes]]
Check = Callable[[pa.Schema], None]


class MemberError(ValueError):
    """The members of a tar are not batches of examples. The message names the member."""


class Layout(ABC):
    """Way in which batches are stored as the members of a tar.

    Attributes:
        row_is_sample: True if each row is stored as files of its own, so that it is a sample for webdataset; False if a
            whole batch is stored as one file.
    """

    row_is_sample: bool

    @abstractmethod
    def members(self, batch: pa.RecordBatch, key: str) -> Iterator[tuple[str, bytes]]:
        """Yield (name, content) of each file that stores a batch, in order; the same batch gives the same bytes.

        Args:
            key: the key of the batch, with which all names begin.
        """

    @abstractmethod
    def batches(self, members: Members, check: Check) -> Iterator[pa.RecordBatch]:
        """Yield the batches that the members of a tar hold.

        Args:
            members: (name, content) of each member, in order.
            check: called with the schema of the batches; raises MemberError to reject it.

        Raises:
            MemberError: a member is not a file that this layout writes, the members are not in the order in which it
                writes them, or `check` rejects the schema.
        """


class Arrow(Layout):
    """Layout with one member per batch: a zstd-compressed Arrow stream."""

    row_is_sample = False

    def members(self, batch: pa.RecordBatch, key: str) -> Iterator[tuple[str, bytes]]:
        yield f"{key}.{EXTENSION}", pack(batch)

    def batches(self, members: Members, check: Check) -> Iterator[pa.RecordBatch]:
        for name, data in members:
            if not name.endswith(f".{EXTENSION}"):
                raise MemberError(f"{name}: not a file with extension .{EXTENSION}")
            yield unpack(data, name, check)


ARROW = Arrow()


class Form(NamedTuple):
    """File format of a column in a layout that stores each value of the column as a file (`Samples`).

    Attributes:
        extension: extension of the column's files, as webdataset uses it.
        type: Arrow type of the column.
        to_bytes: function from a value of the column to the content of its file.
        from_bytes: function from the content of a file to its value; raises ValueError for invalid content.
    """

    extension: str
    type: pa.DataType
    to_bytes: Callable[[pa.Scalar], bytes]
    from_bytes: Callable[[bytes], Any]

    def column(self, values: Sequence[Any]) -> pa.Array:
        """Return values as an Arrow column of this format's type."""
        if is_array(self.type):
            return array_column(values, self.type.value_type.list_size)
        return pa.array(values, self.type)


def _whole_number(data: bytes) -> int:
    if not re.fullmatch(rb"-?\d{1,19}", data) or not -(1 << 63) <= int(data) < 1 << 63:
        raise ValueError(f"{data[:20]!r} is not an integer")
    return int(data)


NUMBER = Form("cls", pa.int64(), lambda value: b"%d" % value.as_py(), _whole_number)


def array_type(width: int) -> pa.DataType:
    """Return the Arrow type of a column of arrays, each (n, width) float16, where n may differ from row to row."""
    row = pa.list_(pa.field("item", pa.float16(), nullable=False), width)
    return pa.list_(pa.field("item", row, nullable=False))


def is_array(column_type: pa.DataType) -> bool:
    """Return whether a column of this type holds two-dimensional arrays, i.e. whether `array_type` returns the type."""
    return bool(pa.types.is_list(column_type) and pa.types.is_fixed_size_list(column_type.value_type))


def array_column(arrays: Sequence[np.ndarray], width: int) -> pa.Array:
    """Return an Arrow column of arrays, each (n, width) float16."""
    column_type = array_type(width)
    offsets = np.cumsum([0, *map(len, arrays)]).astype(np.int32)
    values = np.concatenate([np.empty((0, width), np.float16), *arrays])
    rows = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=column_type.value_type)
    return pa.ListArray.from_arrays(offsets, rows, type=column_type)


def array_of(value: pa.Scalar) -> np.ndarray:
    """Return one value of a column of arrays, (n, width) float16, without copying."""
    width = value.type.value_type.list_size
    return np.asarray(value.values.flatten().to_numpy(zero_copy_only=True).reshape(-1, width))


def npy(width: int) -> Form:
    """Return the file format for a column of arrays, each (n, width) float16. `np.load` reads the files."""
    return Form("npy", array_type(width), _to_npy, lambda data: _from_npy(data, width))


def _to_npy(value: pa.Scalar) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, array_of(value), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _from_npy(data: bytes, width: int) -> np.ndarray:
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not an array of numpy's format 1.0")
    shape, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    if fortran_order or dtype != np.dtype("<f2") or len(shape) != 2 or shape[1] != width:
        raise ValueError(f"an array {shape} of {dtype}, not (n, {width}) of float16 in C order")
    if len(data) - file.tell() != 2 * shape[0] * width:
        raise ValueError(f"{len(data):,} bytes, which is not the size of an array {shape}")
    values = np.frombuffer(data, np.float16, offset=file.tell())
    # NaN and infinity have all bits of the exponent set. Comparing the bits is faster than isfinite and makes no copy:
    # negative ones are the highest values of uint16, positive ones the highest of int16.
    if values.size and (values.view(np.uint16).max() >= 0xFC00 or values.view(np.int16).max() >= 0x7C00):
        raise ValueError("holds values that are not finite (NaN or infinity)")
    return values.reshape(shape)


def _form(extension: str) -> Form:
    """Return the file format for an extension: integers as text for `cls`, otherwise bytes, such as encoded images."""
    return NUMBER if extension == NUMBER.extension else Form(extension, pa.binary(), lambda value: value.as_py(), bytes)


class Samples(Layout):
    """Layout with one file per row and column, e.g. `Samples(image="jpg", label="cls")`.

    Args:
        columns: for each column except `id`, the format of its files: a `Form`, or only the extension, which is `cls`
            for a column of integers and any other one for a column of bytes. The id is in the names of the files.
    """

    row_is_sample = True

    def __init__(self, **columns: str | Form) -> None:
        self.names = list(columns)
        self.forms = [form if isinstance(form, Form) else _form(form) for form in columns.values()]
        types = [("id", pa.int64()), *((name, form.type) for name, form in zip(self.names, self.forms, strict=True))]
        self.schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in types])

    def members(self, batch: pa.RecordBatch, key: str) -> Iterator[tuple[str, bytes]]:
        if batch.num_rows > MAX_ROWS:
            raise ValueError(f"a batch of {batch.num_rows:,} samples: make it of at most {MAX_ROWS:,}")
        columns = [batch.column(name) for name in self.names]
        for row, number in enumerate(batch.column("id").to_pylist()):
            for column, form in zip(columns, self.forms, strict=True):
                yield f"{key}-{row:05d}-{number:016x}.{form.extension}", form.to_bytes(column[row])

    def batches(self, members: Members, check: Check) -> Iterator[pa.RecordBatch]:
        check(self.schema)
        rows: list[list[Any]] = []
        batch = ""
        for name, data in members:
            match = SAMPLE.fullmatch(name)
            if not match:
                raise MemberError(f"{name}: not a file of a sample: its key is not UUUUU-SSS-BBBBB-RRRRR-ID")
            if match["batch"] != batch:
                if rows:
                    yield self._batch(rows, batch)
                batch = match["batch"]
                rows = []
            if not rows or len(rows[-1]) > len(self.forms):
                rows.append([int(match["id"], 16)])
            row = rows[-1]
            form = self.forms[len(row) - 1]
            expected = (len(rows) - 1, row[0], form.extension)
            if (int(match["row"]), int(match["id"], 16), match["extension"]) != expected:
                raise MemberError(
                    f"{name}: .{form.extension} of row {len(rows) - 1} of batch {batch} is expected in its place"
                )
            try:
                row.append(form.from_bytes(data))
            except ValueError as error:
                raise MemberError(f"{name}: {error}") from None
        if rows:
            yield self._batch(rows, batch)

    def _batch(self, rows: list[list[Any]], batch: str) -> pa.RecordBatch:
        if missing := self.forms[len(rows[-1]) - 1 :]:
            raise MemberError(f"{batch}: its last sample is without .{missing[0].extension}")
        ids, *values = zip(*rows, strict=True)
        columns = [form.column(column) for form, column in zip(self.forms, values, strict=True)]
        return pa.record_batch([pa.array(ids, pa.int64()), *columns], schema=self.schema)


def pack(batch: pa.RecordBatch) -> bytes:
    """Return the bytes of a tar member that holds one record batch; the same batch gives the same bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(memoryview(sink.getvalue()))


def unpack(data: bytes, name: str, check: Check) -> pa.RecordBatch:
    """Return the record batch that a tar member holds.

    Args:
        data: the content of the member: an Arrow stream, compressed with zstd.
        name: the member's name, for error messages.
        check: called with the schema of the batch before any value is read; raises MemberError to reject it.

    Raises:
        MemberError: the content is not one zstd frame that holds one batch, or it is larger than 1 GiB when it is
            decompressed, or `check` rejects the schema.
    """
    try:
        size = zstandard.frame_content_size(data)
        if not 0 <= size <= MAX_MEMBER_BYTES:
            stated = f"of {size:,} bytes" if size >= 0 else "that does not state its size"
            raise MemberError(f"a frame {stated} is outside the limit of {MAX_MEMBER_BYTES:,}")
        stream = pa.py_buffer(zstandard.ZstdDecompressor().decompress(data))
        messages = list(pa.ipc.MessageReader.open_stream(stream))
        if [message.type for message in messages] != ["schema", "record batch"]:
            raise MemberError(f"holds {[message.type for message in messages]}, expected one record batch")
        batch_schema = pa.ipc.read_schema(messages[0])
        check(batch_schema)
        if _is_compressed(messages[1].metadata):
            raise MemberError("Arrow buffers compressed inside the zstd frame, where no limit on their size applies")
        batch = pa.ipc.read_record_batch(messages[1], batch_schema)
        batch.validate(full=True)
    except MemberError as error:
        raise MemberError(f"{name}: {error}") from None
    except (zstandard.ZstdError, pa.ArrowException, OSError, ValueError, OverflowError, struct.error) as error:
        raise MemberError(f"{name}: not a zstd-compressed Arrow stream ({error})".splitlines()[0]) from None
    return batch


def _is_compressed(metadata: pa.Buffer) -> bool:
    """Return whether the buffers of an Arrow record batch are compressed, according to the metadata of its message.

    pyarrow does not expose this field, so it is read from the flatbuffer: field 2 of Message is `header`, and field 3
    of RecordBatch is `compression`. A field is absent if the vtable is too short for it or holds 0 for it.
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
