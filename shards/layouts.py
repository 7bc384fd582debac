"""How the rows of a record batch lie in a tar: all in one member, or a file or more for each.

    ARROW     "00003-001-00004.arrow.zst": the batch as an Arrow stream in one zstd frame
    Samples   "00003-001-00004-00017-0123456789abcdef.jpg", "….cls": webdataset's usual form, a row a key

The ragged columns of an Arrow stream are the flat values and the cumulative lengths that the packed encoder wants, so
an unpacked member is used without copying. Of a sample's key the first three numbers are the batch's, then come the
row in it and the row's id in hexadecimal, so that the same batches come back. Unpacking runs no code: Arrow without
extensions, bytes as they are, whole numbers as text, numpy's arrays of plain numbers.
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
"""Of RoBERTa ids as uint16 it leaves 0.60 at 200 MB/s a core, where level 3 leaves 0.59 at 140 and level 1 0.63 at 310:
compression is the largest part of writing, and each byte is stored, sent and read by every training run. Readers take
any level.
"""
MAX_MEMBER_BYTES = 1 << 30
"""A member that says it decompresses to more than this is refused before any of it is decompressed."""
SAMPLE = re.compile(r"(?P<batch>\d{5}-\d{3}-\d{5})-(?P<row>\d{5})-(?P<id>[0-7][0-9a-f]{15})\.(?P<extension>[a-z0-9]+)")
MAX_ROWS = 100_000
"""A batch of samples has at most so many: the row's number has five digits."""

Members = Iterable[tuple[str, bytes]]
Check = Callable[[pa.Schema], None]


class MemberError(ValueError):
    """A tar's members are no batches of examples. The message names the member."""


class Layout(ABC):
    """One way in which a batch's rows lie in a tar."""

    row_is_sample: bool
    """Whether plain webdataset gives a sample for each row; otherwise for each batch."""

    @abstractmethod
    def members(self, batch: pa.RecordBatch, key: str) -> Iterator[tuple[str, bytes]]:
        """(name, content) of the files that a batch is packed into, in order; `key` is the batch's own. The same batch
        gives the same bytes.
        """

    @abstractmethod
    def batches(self, members: Members, check: Check) -> Iterator[pa.RecordBatch]:
        """The batches that were packed into these files; `check` raises MemberError for columns that are not wanted.

        Raises:
            MemberError: a file is not what this layout writes, or not at its place.
        """


class Arrow(Layout):
    """A batch a member: a zstd-compressed Arrow stream."""

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
    """A form says how a value of a column is a file of a sample, and how what such files hold is a column again."""

    type: pa.DataType
    to_bytes: Callable[[pa.Scalar], bytes]
    from_bytes: Callable[[bytes], Any]
    column: Callable[[Sequence[Any]], pa.Array]


def _whole_number(data: bytes) -> int:
    if not re.fullmatch(rb"-?\d{1,19}", data) or not -(1 << 63) <= int(data) < 1 << 63:
        raise ValueError(f"{data[:20]!r} is not a whole number")
    return int(data)


MEL_BINS = 128
FRAMES = pa.list_(pa.field("item", pa.list_(pa.field("item", pa.float16(), nullable=False), MEL_BINS), nullable=False))
"""The type of a column of spectrograms: of each, (frames, MEL_BINS) float16."""


def frames_column(spectrograms: Sequence[np.ndarray]) -> pa.Array:
    """The column of these spectrograms, each (frames, MEL_BINS) float16."""
    offsets = np.cumsum([0, *map(len, spectrograms)]).astype(np.int32)
    values = np.concatenate([np.empty((0, MEL_BINS), np.float16), *spectrograms])
    frames = pa.FixedSizeListArray.from_arrays(pa.array(values.reshape(-1)), type=FRAMES.value_type)
    return pa.ListArray.from_arrays(offsets, frames, type=FRAMES)


def frames_of(spectrogram: pa.Scalar) -> np.ndarray:
    """One spectrogram of such a column, (frames, MEL_BINS) float16, without copying."""
    return np.asarray(spectrogram.values.flatten().to_numpy(zero_copy_only=True).reshape(-1, MEL_BINS))


def _to_npy(spectrogram: pa.Scalar) -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array(file, frames_of(spectrogram), version=(1, 0), allow_pickle=False)
    return file.getvalue()


def _from_npy(data: bytes) -> np.ndarray:
    file = io.BytesIO(data)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("not an array of numpy's format 1.0")
    shape, by_column, dtype = np.lib.format.read_array_header_1_0(file)
    if by_column or dtype != np.dtype("<f2") or len(shape) != 2 or shape[1] != MEL_BINS:
        raise ValueError(f"an array {shape} of {dtype}, not (frames, {MEL_BINS}) of float16 by rows")
    if len(data) - file.tell() != 2 * shape[0] * MEL_BINS:
        raise ValueError(f"{len(data):,} bytes, which are not those of an array {shape}")
    values = np.frombuffer(data, np.float16, offset=file.tell())
    # Of what is not finite, all bits of the exponent are set. The test on the bits is faster than isfinite and makes
    # no copy: below zero such values are the highest of uint16, above zero the highest of int16.
    if values.size and (values.view(np.uint16).max() >= 0xFC00 or values.view(np.int16).max() >= 0x7C00):
        raise ValueError("holds values that are not finite (NaN or infinity)")
    return values.reshape(shape)


NUMBER = Form(pa.int64(), lambda value: b"%d" % value.as_py(), _whole_number, lambda found: pa.array(found, pa.int64()))
TEXT = Form(
    pa.string(),
    lambda value: str(value).encode(),
    lambda data: data.decode("utf-8"),
    lambda found: pa.array(found, pa.string()),
)
AS_IT_IS = Form(pa.binary(), lambda value: value.as_py(), bytes, lambda found: pa.array(found, pa.binary()))
SPECTROGRAM = Form(FRAMES, _to_npy, _from_npy, frames_column)
FORMS = {"cls": NUMBER, "txt": TEXT, "npy": SPECTROGRAM}
"""The forms by extension, with webdataset's meanings; a file of any other holds the column's bytes as they are."""


class Samples(Layout):
    """A row a key: a file for each column but the id, e.g. `Samples(image="jpg", label="cls")`."""

    row_is_sample = True

    def __init__(self, **extensions: str) -> None:
        self.extensions = extensions
        self.forms = [FORMS.get(extension, AS_IT_IS) for extension in extensions.values()]
        columns = [("id", pa.int64()), *((name, form.type) for name, form in zip(extensions, self.forms, strict=True))]
        self.schema = pa.schema([pa.field(name, kind, nullable=False) for name, kind in columns])

    def members(self, batch: pa.RecordBatch, key: str) -> Iterator[tuple[str, bytes]]:
        if batch.num_rows > MAX_ROWS:
            raise ValueError(f"a batch of {batch.num_rows:,} samples: make it of at most {MAX_ROWS:,}")
        columns = [batch.column(name) for name in self.extensions]
        for row, number in enumerate(batch.column("id").to_pylist()):
            for column, extension, form in zip(columns, self.extensions.values(), self.forms, strict=True):
                yield f"{key}-{row:05d}-{number:016x}.{extension}", form.to_bytes(column[row])

    def batches(self, members: Members, check: Check) -> Iterator[pa.RecordBatch]:
        check(self.schema)
        extensions = list(self.extensions.values())
        rows: list[list[Any]] = []
        batch = ""
        for name, data in members:
            found = SAMPLE.fullmatch(name)
            if not found:
                raise MemberError(f"{name}: not a file of a sample: its key is not UUUUU-SSS-BBBBB-RRRRR-ID")
            if found["batch"] != batch:
                if rows:
                    yield self._batch(rows, batch)
                batch, rows = found["batch"], []
            if not rows or len(rows[-1]) > len(extensions):
                rows.append([int(found["id"], 16)])
            row = rows[-1]
            place = (len(rows) - 1, row[0], extensions[len(row) - 1])
            if (int(found["row"]), int(found["id"], 16), found["extension"]) != place:
                raise MemberError(f"{name}: .{place[2]} of row {place[0]} of batch {batch} is expected in its place")
            try:
                row.append(self.forms[len(row) - 1].from_bytes(data))
            except ValueError as error:
                raise MemberError(f"{name}: {error}") from None
        if rows:
            yield self._batch(rows, batch)

    def _batch(self, rows: list[list[Any]], batch: str) -> pa.RecordBatch:
        if lacking := list(self.extensions.values())[len(rows[-1]) - 1 :]:
            raise MemberError(f"{batch}: its last sample is without .{lacking[0]}")
        ids, *columns = zip(*rows, strict=True)
        made = [form.column(column) for form, column in zip(self.forms, columns, strict=True)]
        return pa.record_batch([pa.array(ids, pa.int64()), *made], schema=self.schema)


def pack(batch: pa.RecordBatch) -> bytes:
    """One record batch as the bytes of a tar member; the same batch gives the same bytes."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    return zstandard.ZstdCompressor(level=ZSTD_LEVEL).compress(memoryview(sink.getvalue()))


def unpack(data: bytes, name: str, check: Check) -> pa.RecordBatch:
    """The record batch in a tar member's bytes; its columns are checked before any value is read.

    Raises:
        MemberError: it is not one zstd frame of at most MAX_MEMBER_BYTES holding one batch of such columns.
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
            raise MemberError("compressed inside its frame, where the limit on its size does not reach")
        batch = pa.ipc.read_record_batch(messages[1], batch_schema)
        batch.validate(full=True)
    except MemberError as error:
        raise MemberError(f"{name}: {error}") from None
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
