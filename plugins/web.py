"""Web archives (WARC, WET): the pages of a crawl such as Common Crawl's, one record per page.

    stream -> frames (a header, Content-Length bytes) -> digest -> response: HTTP -> main text of the HTML
                                                                  conversion (WET), resource: the text

`pipelines.readers` loads this format for files that begin as a web archive. A record's value is {"url", "text"}, with
the "title" of an HTML page; its offset is that of the archive's record. Other records (requests, metadata, revisits,
error pages, images) are skipped, with the reason for which they are counted.

The archive is framed here, because fastwarc ends at a record that it cannot read, takes a missing length for 0 and a
truncated body for a whole one. A record whose length is false, whose digest differs or that cannot be decoded is bad;
reading continues at the next line that begins a record. Memory is bounded by twice the longest allowed record, and by
the tree of an HTML page of HTML_BYTES.
"""

import base64
import contextlib
import dataclasses
import hashlib
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

from clearspan.pipelines.readers.sniff import WARC
from clearspan.pipelines.readers.streams import BUFFER_BYTES, DamagedError
from clearspan.pipelines.records import HEAD_BYTES, Piece, Reading, Record

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

HEADER_BYTES = 1 << 16
"""Longest header of a record: far more than any crawler writes."""
HTML_BYTES = 1 << 24
"""Largest HTML page: crawls cut pages at 1 to 5 MiB."""
DEPTH = 400
"""Deepest nesting of elements. Browsers stop at 512; extraction takes n^2 steps for a depth of n."""
OTHER, STATUS, NO_TEXT = "other_record", "http_status", "not_text"
"""Reasons for which a record is skipped: its type holds no page, its HTTP status is not 200, or it holds no HTML or
text."""
LINE_ENDS = 8
"""Most bytes of line ends after a record. The standard has 4."""
HTML = ("text/html", "application/xhtml+xml")
_START = re.compile(rb"WARC/1\.\d\r?\n")
_NEXT = re.compile(rb"\n(?=WARC/1\.\d\r?\n)")
_NEXT_BYTES = 16
_END_OF_HEADER = re.compile(rb"\r?\n\r?\n")
_LENGTH = re.compile(rb"\nContent-Length:[ \t]*(\d{1,18})[ \t]*\r?\n", re.IGNORECASE)
_AFTER = re.compile(rb"[\r\n]{0,%d}(?=WARC/1\.\d\r?\n|\Z)|\r?\n\r?\n" % LINE_ENDS)
_TOO_DEEP = " > ".join(["*"] * DEPTH)


class WebArchives:
    """The input format (`pipelines.readers.formats.Format`)."""

    def recognizes(self, head: bytes, path: str) -> bool:
        """Return whether a file begins as a web archive."""
        return head.startswith(WARC)

    def read(self, stream: BinaryIO, piece: Piece, reading: Reading) -> Iterator[Record]:
        """Yield the file's records, the skipped ones too, at their offsets in the decompressed file.

        Raises:
            DamagedError: the stream ends within a record.
        """
        for frame in _frames(_Window(stream), reading.max_bytes):
            yield _record(frame, piece.input.name, reading.max_bytes)


@dataclasses.dataclass(frozen=True)
class _Frame:
    """A record of the archive: header and block; of one that is too long or damaged, the beginning."""

    offset: int
    data: bytes
    problem: str = ""
    is_whole: bool = True


class _Window:
    """The bytes of a stream that have been read ahead, from `offset` on."""

    def __init__(self, stream: BinaryIO) -> None:
        self.stream, self.data, self.offset = stream, bytearray(), 0

    def has(self, size: int) -> bool:
        """Read ahead; return whether there are as many bytes before the end."""
        while len(self.data) < size and (part := self.stream.read(max(BUFFER_BYTES, size - len(self.data)))):
            self.data += part
        return len(self.data) >= size

    def drop(self, size: int) -> None:
        del self.data[:size]
        self.offset += size

    def drop_record(self) -> int:
        """Drop the bytes before the next line that begins a record, or the end; return their number."""
        begin = self.offset
        while not (line := _NEXT.search(self.data)):
            self.drop(max(0, len(self.data) - _NEXT_BYTES))
            if not self.has(len(self.data) + 1):
                self.drop(len(self.data))
                return self.offset - begin
        self.drop(line.end())
        return self.offset - begin


def _frames(window: _Window, max_bytes: int) -> Iterator[_Frame]:
    """Yield the records of an archive, damaged ones with a problem.

    Raises:
        DamagedError: the stream ends within a record.
    """
    while window.has(1):
        offset = window.offset
        window.has(HEADER_BYTES)
        head = bytes(window.data[:HEADER_BYTES])
        end = _END_OF_HEADER.search(head) if _START.match(head) else None
        length = _LENGTH.search(head, 0, end.end()) if end else None
        size = end.end() + int(length[1]) if end and length else None
        if size is not None and size <= max_bytes + HEADER_BYTES and window.has(size):
            window.has(size + 2 * _NEXT_BYTES)
            if after := _AFTER.match(window.data, size):
                yield _Frame(offset, bytes(window.data[:size]))
                window.drop(after.end())
                continue
        yield _unframed(window, offset, head, size)


def _unframed(window: _Window, offset: int, head: bytes, size: int | None) -> _Frame:
    """Drop a record that is too long, or whose length (`size` with the header) is missing or false, and return it."""
    dropped = window.drop_record()
    is_record, is_end = _START.match(head), not window.data
    if size is not None and 0 <= dropped - size <= LINE_ENDS:
        return _Frame(offset, head, is_whole=False)
    if is_end and is_record and (size is None or dropped < size):
        raise DamagedError(f"it ends within the record at byte {offset:,}")
    elif is_record:
        problem = f"its Content-Length is {'missing' if size is None else 'false'}: {dropped:,} bytes skipped"
    else:
        problem = f"not a WARC record: {dropped:,} bytes skipped"
    return _Frame(offset, head[:HEAD_BYTES], problem)


def _record(frame: _Frame, name: str, max_bytes: int) -> Record:
    """Return the page in a record of the archive; a skipped or bad record if there is none."""
    from fastwarc.warc import WarcRecord

    raw = frame.data[:HEAD_BYTES]

    def bad(problem: str) -> Record:
        return Record(name, frame.offset, None, raw, problem)

    def skipped(reason: str) -> Record:
        return Record(name, frame.offset, None, raw, skipped=reason)

    if frame.problem:
        return bad(frame.problem)
    try:
        record = WarcRecord.from_bytes(frame.data)
        record_type = str(record.record_type)
        if record_type not in ("response", "resource", "conversion"):
            return skipped(OTHER)
        if frame.is_whole and (problem := _check_digest(record, frame.data)):
            return bad(problem)
        content_type = record.headers.get("Content-Type") or ""
        if record_type == "response":
            if not record.is_http:
                return skipped(OTHER)
            record.parse_http("all")
            status = record.http_headers.status_code
            if status is None:
                return bad("no HTTP status line")
            if status != 200:
                return skipped(STATUS)
            content_type = record.http_content_type or record.headers.get("WARC-Identified-Payload-Type") or ""
        media_type = content_type.partition(";")[0].strip().lower()
        if media_type not in HTML and (record_type == "response" or media_type != "text/plain"):
            return skipped(NO_TEXT)
        if not frame.is_whole:
            return bad(f"longer than {max_bytes:,} bytes")
        limit = min(max_bytes, HTML_BYTES) if media_type in HTML else max_bytes
        data = record.reader.read(limit + 1)
        if len(data) > limit:
            return bad(f"longer than {limit:,} bytes")
        value = {"url": (record.headers.get("WARC-Target-URI") or "").strip("<>")}
        if media_type in HTML:
            value |= _page(data, record.http_charset if record_type == "response" else None)
        else:
            value["text"] = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return bad(f"invalid UTF-8 at byte {error.start} of the text")
    except (OSError, ValueError) as error:
        return bad(f"not readable: {' '.join(str(error).split())}")
    return Record(name, frame.offset, value, raw)


def _check_digest(record: "WarcRecord", data: bytes) -> str:
    """Return the problem if a record's block differs from its digest; "" if not, or if there is no known digest."""
    algorithm, _, stated = (record.headers.get("WARC-Block-Digest") or "").strip().partition(":")
    if algorithm.lower() not in ("md5", "sha1", "sha256", "sha512"):
        return ""
    actual = hashlib.new(algorithm.lower(), memoryview(data)[len(data) - record.content_length :]).digest()
    if stated.upper().rstrip("=") in (base64.b32encode(actual).decode().rstrip("="), actual.hex().upper()):
        return ""
    return f"its bytes differ from its digest {algorithm}:{stated}"


def _page(data: bytes, charset: str | None) -> dict[str, str]:
    """Return the title and the main text of an HTML page.

    Args:
        charset: the encoding in the HTTP header.

    Raises:
        ValueError: elements are nested too deeply.
    """
    from resiliparse.extract.html2text import extract_plain_text
    from resiliparse.parse.html import HTMLTree

    html = _decoded(data, charset)
    tree = HTMLTree.parse(html)
    has_many = html.count("<") - html.count("</") >= DEPTH  # opening tags; the search takes a quarter of a page's time
    if has_many and tree.document and tree.document.query_selector(_TOO_DEEP):
        raise ValueError(f"elements nested more than {DEPTH} deep")
    text = extract_plain_text(tree, main_content=True, alt_texts=False, comments=False, post_meta=False)
    return {"title": " ".join((tree.title or "").split()), "text": text}


def _decoded(data: bytes, charset: str | None) -> str:
    """Decode a page: in the encoding of its HTTP header, else in UTF-8, else in that of its meta element or a guess.

    Bytes that are not of this encoding are left out: pages with a few of them are no damage.
    """
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

    encoding = map_encoding_to_html5(charset, fallback_utf8=False) if charset else None
    with contextlib.suppress(UnicodeDecodeError):
        return data.decode(encoding or "utf-8")
    return bytes_to_str(data, encoding or detect_encoding(data, from_html_meta=True) or "utf-8")
