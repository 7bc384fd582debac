"""Whole files, such as images: one record per file, with its bytes."""

import dataclasses
from collections.abc import Iterator
from typing import BinaryIO

from clearspan.pipelines.labels import Listed
from clearspan.pipelines.readers.formats import FirstBytes, Format
from clearspan.pipelines.readers.streams import BUFFER_BYTES
from clearspan.pipelines.records import HEAD_BYTES, ReadOptions, Record, Split


class WholeFiles(Format):
    """Format of images and audio clips: one record per file. A file has this format if its extension is one of those
    that the kind of dataset lists; its content is not examined.
    """

    name = "file"
    is_numbered = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        return False

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield one record: the bytes of the file, with the class of the file as its label."""
        assert reading.classes is not None
        # The limit keeps buffers small: there may be a million small files.
        record = whole_file_record(stream, split.input.name, min(reading.max_bytes, split.input.bytes))
        yield dataclasses.replace(record, label=reading.classes.label(Listed(split.input.name, split.input.label)))
        while stream.read(BUFFER_BYTES):
            pass  # a file that is too long is read to its end, so that damage is found


def whole_file_record(stream: BinaryIO, name: str, max_bytes: int) -> Record:
    """Return the content of a stream as one record, which is bad if the content is longer than `max_bytes`.

    Args:
        name: the name of the file, for the record.
    """
    data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        return Record(name, None, None, data[:HEAD_BYTES], f"longer than {max_bytes:,} bytes")
    return Record(name, None, data, data[:HEAD_BYTES])
