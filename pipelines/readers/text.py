"""Plain text: one document per file, with all of its characters, or one document between two separators.

A blank part between separators is not a record, and takes bounded memory however long it is.
"""

import dataclasses
import itertools
import re
from collections.abc import Iterator
from typing import BinaryIO

from clearspan.pipelines.readers.streams import BOM, BUFFER_BYTES, Bounded, check_holes, chunks
from clearspan.pipelines.records import HEAD_BYTES, Reading, Record

_ESCAPE = re.compile(r"\\(?:[ntrf0\\]|x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4})")


def unescaped(separator: str) -> str:
    r"""Return a separator with its escapes resolved: \n, \t, \f, \x1e and the like."""
    return _ESCAPE.sub(lambda escape: escape[0].encode("ascii").decode("unicode_escape"), separator)


def records(stream: BinaryIO, name: str, reading: Reading) -> Iterator[Record]:
    """Yield the text of a stream, or its parts between separators; `name` names the stream.

    Raises:
        DamagedError: there is a hole in it.
    """
    if reading.separator is not None:
        for offset, data, size in _parts(stream, reading.separator.encode(), reading.max_bytes):
            yield _record(name, offset, data, size, reading.max_bytes)
        return
    data = stream.read(reading.max_bytes + 1)
    check_holes(data)
    yield _record(name, None, data, None, reading.max_bytes)
    while stream.read(BUFFER_BYTES):
        pass  # read on to the end of a file that is too long: it must not be damaged


def _record(name: str, offset: int | None, data: bytes, size: int | None, max_bytes: int) -> Record:
    """Return the record of a text. `size`: its number of bytes, where `data` may be only the head."""
    of = "file" if offset is None else "document"
    if (size or len(data)) > max_bytes:
        actual = f": {size:,}" if size else ""
        return Record(name, offset, None, data[:HEAD_BYTES], f"longer than {max_bytes:,} bytes{actual}")
    try:
        text = (data if offset else data.removeprefix(BOM)).decode("utf-8")
    except UnicodeDecodeError as error:
        return Record(name, offset, None, data[:HEAD_BYTES], f"invalid UTF-8 at byte {error.start} of the {of}")
    return Record(name, offset, text, data)


def _parts(stream: BinaryIO, separator: bytes, limit: int) -> Iterator[tuple[int, bytes, int]]:
    """Yield (offset, bytes, number of bytes) of each part that is not blank; of a part above the limit, its head."""
    data, base = b"", 0
    part = _Part(0, limit)
    for more in itertools.chain(chunks(stream), [b""]):
        data, at = data + more, 0
        while (end := data.find(separator, at)) >= 0:
            part.add(data[at:end])
            yield from part.taken()
            at = end + len(separator)
            part = _Part(base + at, limit)
        kept = min(len(separator) - 1, len(data) - at) if more else 0
        rest = len(data) - kept
        part.add(data[at:rest])
        base, data = base + rest, data[rest:]
    yield from part.taken()


@dataclasses.dataclass
class _Part(Bounded):
    """The part of a document that has been read."""

    is_blank: bool = True

    def add(self, part: bytes) -> None:
        super().add(part)
        self.is_blank = self.is_blank and not (part if self.start else part.removeprefix(BOM)).strip()

    def taken(self) -> Iterator[tuple[int, bytes, int]]:
        if not self.is_blank:
            yield self.start, bytes(self.data), self.size
