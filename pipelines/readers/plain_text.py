"""Plain text: one document per file; or, with `--document-separator`, one document per part between separators.

The whitespace of a document is not changed. A blank part between separators is not a document.
"""

import itertools
from collections.abc import Iterator
from typing import BinaryIO

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers.formats import PLAIN_TEXT, FirstBytes, Format
from clearspan.pipelines.readers.lines import TextLines
from clearspan.pipelines.readers.streams import BOM, BUFFER_BYTES, check_holes, chunks
from clearspan.pipelines.readers.tables import TextTables
from clearspan.pipelines.records import MAX_BYTES, ReadOptions, Record, Split


class PlainText(Format):
    """Format of plain text: any text that no other format recognizes."""

    name = PLAIN_TEXT
    described = "UTF-8 text"
    suffixes = (".txt", ".text", ".md")
    is_text = is_numbered = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        return True

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        return records(stream, split.input.name, reading)

    def read_as(self, reading: ReadOptions) -> str:
        """Return the name of the format in which to read a text that no other format recognizes.

        It is `lines` if each line is a document (`--text-per line`), `csv` if columns are to be read, and otherwise the
        name of this format.
        """
        if reading.text_per == "line":
            return TextLines.name
        return TextTables.name if reading.columns else self.name


def records(stream: BinaryIO, name: str, reading: ReadOptions) -> Iterator[Record]:
    """Yield the whole text of a stream as one record; or, if `reading.separator` is set, each part between separators.

    Blank parts are left out. A text or part of more than `reading.max_bytes` bytes is a bad record.

    Args:
        name: name of the file, for the records.

    Raises:
        DamagedFileError: there is a hole (a long run of zero bytes) in the text.
        PipelineError: a part is longer than both `reading.max_bytes` and 64 MB, so the separator is probably wrong.
    """
    if reading.separator is not None:
        number = 0
        for offset, data in _parts(stream, name, reading):
            text = data if offset else data.removeprefix(BOM)
            if text.strip():
                number += 1
                yield Record.of_text(name, offset, text, reading.max_bytes, "document", number)
        return
    data = stream.read(len(BOM) + reading.max_bytes + 1).removeprefix(BOM)
    check_holes(data)
    yield Record.of_text(name, None, data, reading.max_bytes, "file")
    while stream.read(BUFFER_BYTES):
        pass  # a file that is too long is read to its end, so that damage is found


def _parts(stream: BinaryIO, name: str, reading: ReadOptions) -> Iterator[tuple[int, bytes]]:
    """Yield (offset of the first byte, bytes) of each part of a text between separators, also of blank parts.

    Raises:
        DamagedFileError: there is a hole (a long run of zero bytes) in the text.
        PipelineError: a part is longer than both `reading.max_bytes` and 64 MB, so the separator is probably wrong.
    """
    assert reading.separator is not None
    separator, most = reading.separator.encode(), max(reading.max_bytes, MAX_BYTES)
    rest, offset = b"", 0
    for more in itertools.chain(chunks(stream), [b""]):
        *parts, rest = (rest + more).split(separator)
        for part in parts if more else [*parts, rest]:
            yield offset, part
            offset += len(part) + len(separator)
        if len(rest) > most:
            raise PipelineError(
                f"{name}: no `document_separator` in {most:,} bytes from byte {offset:,} on: correct it"
            )
