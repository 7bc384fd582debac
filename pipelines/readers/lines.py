"""Plain text with one document per line. A line belongs to the split of the file in which it starts. Blank lines are
skipped. A file whose lines end with CR alone is one split.
"""

import itertools
import tempfile
from collections.abc import Iterator
from typing import BinaryIO

from clearspan.common.line_ends import parts_end_with_cr, with_lf
from clearspan.pipelines.readers.formats import FirstBytes, Format, byte_ranges
from clearspan.pipelines.readers.streams import BOM, BUFFER_BYTES, HOLE, DamagedFileError, buffered, check_holes
from clearspan.pipelines.records import HEAD_BYTES, ReadOptions, Record, Split
from clearspan.shards import storage

HELD_BYTES = 1 << 26
"""Bytes of a text's beginning that are held in memory until its first LF is found; further ones are on the disk."""


class LineFormat(Format):
    """Base class of formats whose records are lines. Their files can be cut into splits at any byte."""

    is_text = is_numbered = by_lines = True

    def cut(self, path: str, num_bytes: int, unit_bytes: int, whole: bool) -> list[tuple[int, int | None]]:
        """Return the splits of a file, as (start, end) in bytes. A file whose lines end with CR alone is not cut."""
        if whole or num_bytes <= unit_bytes:
            return [(0, None)]
        with storage.open_input(path) as stream:
            has_cr = parts_end_with_cr(iter(lambda: stream.read(BUFFER_BYTES), b""))
        return [(0, None)] if has_cr else byte_ranges(num_bytes, unit_bytes)

    def ranges_outside(self, stream: BinaryIO, split: Split) -> list[tuple[int, int]]:
        """Return the byte ranges (start, end) outside a split that `read` also reads.

        They are the byte before the split, which shows whether a line begins at the start of the split, and the rest of
        the last line that begins in the split.
        """
        end = split.start + split.bytes
        stream.seek(end - 1)
        while (part := stream.readline(BUFFER_BYTES)) and not part.endswith(b"\n"):
            pass
        return [(max(0, split.start - 1), split.start), (end, stream.tell())]


class TextLines(LineFormat):
    """Format of plain text with one document per line. It is not detected, but used if the user passes `--text-per
    line`.
    """

    name = "lines"

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        return False

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield the lines of a split as records. A record's offset is the line's offset in the decompressed file."""
        name = split.input.name
        for number, offset, line, problem in lines(stream, reading.max_bytes, split.start, split.end, split.lines):
            if problem:
                yield Record(name, offset, None, line, problem, number=number)
            else:
                yield Record.of_text(name, offset, line.rstrip(b"\r\n"), reading.max_bytes, "line", number)


def lines(
    stream: BinaryIO, max_bytes: int, start: int = 0, end: int | None = None, lines_before: int = 0
) -> Iterator[tuple[int, int, bytes, str]]:
    """Yield (line number, offset, line, problem) of each line that begins in bytes `start` to `end` and is not blank.

    Lines are numbered from 1. The problem is "", or the message that a line is longer than `max_bytes`; of such a line,
    only the first HEAD_BYTES (1,000) bytes are yielded.

    Args:
        stream: the decompressed file.
        start, end: offsets in the decompressed file; `end` is excluded, and None as `end` is the end of the stream.
            Lines may end with CR alone only if the whole file is read.
        lines_before: number of line ends before `start`, from which the line numbers continue.

    Raises:
        DamagedFileError: there is a hole (a long run of zero bytes) in a line, or the stream ends before `end`.
    """
    offset, number = start, lines_before
    if not offset and end is None:
        stream = _with_line_feeds(stream)
    if offset:
        stream.seek(offset - 1)
        offset += _skip_line(stream, offset - 1) - 1
        number += offset > start  # count the end of the line that began before `start`
    while end is None or offset < end:
        line = stream.readline(max_bytes + 1)
        if not line:
            if end is not None:
                raise DamagedFileError(f"it ends at byte {offset:,}, before byte {end:,}")
            return
        check_holes(line, offset)
        number += 1
        size, problem = len(line), ""
        if size > max_bytes and not line.endswith(b"\n"):
            size += _skip_line(stream, offset + size, line)
            line = line[:HEAD_BYTES]
            problem = f"longer than {max_bytes:,} bytes: {size:,}"
        else:
            line = line.removeprefix(BOM)  # of this file, or of a file that was appended to it
        if problem or (line and not line.isspace()):
            yield number, offset, line, problem
        offset += size


def _with_line_feeds(stream: BinaryIO) -> BinaryIO:
    """Return a stream of the same lines, which end with LF if they end with CR alone.

    Args:
        stream: the decompressed file, at its start.
    """
    peek = getattr(stream, "peek", None)
    if peek is not None and b"\n" in peek(1)[:-1]:
        return stream
    parts = iter(lambda: stream.read(BUFFER_BYTES), b"")
    held = tempfile.SpooledTemporaryFile(HELD_BYTES)  # closed when nothing reads the parts any more

    def kept() -> Iterator[bytes]:
        for part in parts:
            held.write(part)
            yield part

    has_cr = parts_end_with_cr(kept())
    held.seek(0)
    again = itertools.chain(iter(lambda: held.read(BUFFER_BYTES), b""), parts)
    return buffered(map(with_lf, again) if has_cr else again)


def _skip_line(stream: BinaryIO, offset: int, before: bytes = b"") -> int:
    """Skip the rest of a line, in bounded memory; return the number of bytes skipped.

    Args:
        offset: the stream's position in the file, for error messages.
        before: the bytes of the line before this position, as far as they are known.

    Raises:
        DamagedFileError: there is a hole (a long run of zero bytes) in the line, also one that begins in `before`.
    """
    size = 0
    while part := stream.readline(BUFFER_BYTES):
        end = before[1 - len(HOLE) :]  # a hole may begin in the bytes that were read before
        check_holes(end + part, offset + size - len(end))
        size, before = size + len(part), part
        if part.endswith(b"\n"):
            break
    return size
