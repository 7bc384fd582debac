"""Input formats for web pages: HTML files, and web archives (WARC, WET) of a crawl such as Common Crawl.

    archive -> archive records (a header, then Content-Length bytes) -> digest checked
            -> response: HTTP header removed, main text of the HTML
            -> conversion (WET) or resource: the text, or the main text of the HTML

Each page is a record. Web archives are a built-in format, recognized by their first bytes. The format for HTML files
must be requested with `--format clearspan.plugins.web:Pages`. The value of a record is {"url", "text"}; a page from
HTML also has "title", and a page from an HTML file has no "url". The offset of a record is the offset of the archive
record. Archive records without a page (requests, metadata, revisits, error pages, images) are skipped, and counted by
reason.

This module, and not fastwarc, divides an archive into its records, because fastwarc silently stops at a record that it
cannot read, takes a missing length for 0, and accepts a truncated record. Here, a record is bad if its digest is wrong
or if it cannot be decoded, and a file is damaged if a length is wrong. Memory holds at most two archive records of the
maximum size, and the syntax tree of one HTML page of at most HTML_BYTES.
"""

import base64
import contextlib
import gzip
import hashlib
import io
import re
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from clearspan.common.errors import check_extra
from clearspan.common.terminal import MAX_SAID, one_line
from clearspan.pipelines.readers.encodings import AUTO
from clearspan.pipelines.readers.formats import FirstBytes, Format
from clearspan.pipelines.readers.refused import is_page
from clearspan.pipelines.readers.streams import BUFFER_BYTES, DamagedFileError, check_holes
from clearspan.pipelines.records import HEAD_BYTES, ReadOptions, Record, Split, invalid_utf8

if TYPE_CHECKING:
    from fastwarc.warc import WarcRecord

HEADER_BYTES = 1 << 16
"""Maximum size of an archive record's header in bytes, far more than any crawler writes."""
HTML_BYTES = 1 << 24
"""Maximum size of an HTML page in bytes. Crawls cut pages at 1 to 5 MiB."""
DEPTH = 400
"""Maximum depth of nested elements. Browsers stop at 512; extraction takes n^2 steps for a depth of n."""
OTHER, STATUS, NO_TEXT, TRUNCATED = "other_record", "http_status", "not_text", "truncated"
"""Reasons for which an archive record is skipped: records of its type hold no page, its HTTP status is not 200, its
content is neither HTML nor text, or its body is cut short according to a header (Content-Length, WARC-Truncated)."""
INFLATED = {"gzip", "x-gzip", "deflate"}
"""Content and transfer encodings that `_inflated` decompresses."""
CHUNKED = "chunked"
HTML = ("text/html", "application/xhtml+xml")
_START = re.compile(rb"WARC/1\.\d\r?\n")
_LENGTH = re.compile(rb"\nContent-Length:[ \t]*(\d{1,18})[ \t]*\r?\n", re.IGNORECASE)
_CHUNK = re.compile(rb"(?:\r?\n)?([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\n]*)?\r?\n")
"""The line before a chunk of an HTTP body, with the end of the chunk before it."""
_TOO_DEEP = " > ".join(["*"] * DEPTH)


class ShortBodyError(Exception):
    """The body of an HTTP response is shorter than its header says."""


class WebArchives(Format):
    """The format of web archives (WARC, WET). It is built in."""

    name = "warc"
    described = "WARC"
    is_container = True

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        """Return whether a file is a web archive, by its first bytes."""
        return head.startswith(b"WARC/1.")

    def check(self, path: str) -> None:
        check_extra("web", "fastwarc", "resiliparse", feature=f"{path}: a web archive")

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield a `Record` for each archive record. If an archive record holds no page, its `Record` is skipped or bad.

        Raises:
            DamagedFileError: the stream ends within a record, or the length of a record is missing or wrong.
        """
        for frame in _frames(stream, reading.max_bytes):
            yield _record(frame, split.input.name, reading.max_bytes)


class Pages(Format):
    """The format of HTML files. The title and the main text of a file are read.

    The user requests it with `--format clearspan.plugins.web:Pages`.
    """

    def recognizes(self, head: FirstBytes, path: str) -> bool:
        """Return whether a file is an HTML page, by its extension or its beginning."""
        return is_page(path, head)

    def read(self, stream: BinaryIO, split: Split, reading: ReadOptions) -> Iterator[Record]:
        """Yield one record with the page of the file; the record is bad if the page is too long or cannot be read.

        Raises:
            DamagedFileError: the file holds a long run of zero bytes.
            PipelineError: the extra `web` is not installed.
        """
        check_extra("web", "resiliparse", feature=f"{split.input.name}: an HTML page")
        limit = min(reading.max_bytes, HTML_BYTES)
        data = stream.read(limit + 1)
        check_holes(data)
        raw, value, problem = data[:HEAD_BYTES], None, f"longer than {limit:,} bytes"
        if len(data) <= limit:
            try:
                value, problem = _page(data, reading.encoding if reading.encoding != AUTO else None), ""
            except ValueError as error:
                problem = f"not readable: {error}"
        yield Record(split.input.name, None, value, raw, problem)
        while stream.read(BUFFER_BYTES):
            pass  # read on to the end of a page that is too long: it must not be damaged


class _Frame(NamedTuple):
    """A record of a web archive, not yet parsed: its WARC header and its content.

    Attributes:
        offset: the offset of the record in the decompressed archive, in bytes.
        data: the header and the content of the record; if the content is longer than the maximum, only its beginning.
        is_whole: whether `data` holds all of the content.
    """

    offset: int
    data: bytes
    is_whole: bool


def _frames(stream: BinaryIO, max_bytes: int) -> Iterator[_Frame]:
    """Yield the records of a decompressed web archive, not yet parsed.

    Args:
        stream: the decompressed archive.
        max_bytes: the maximum size of a page in bytes. A record may be 64 KiB longer, because it also holds an HTTP
            header. If its content is even longer, only the beginning of the content is returned.

    Raises:
        DamagedFileError: the stream ends within a record, or there is no record where the next record must begin.
    """
    offset, header = 0, b""
    for line in iter(lambda: stream.readline(HEADER_BYTES), b""):
        is_empty = not line.strip(b"\r\n")
        if is_empty and not header:  # after a record
            offset += len(line)
            continue
        header += line
        length = _LENGTH.search(header) if _START.match(header) and is_empty else None
        if length:
            size = int(length[1])
            is_whole = size <= max_bytes + HEADER_BYTES
            block = stream.read(size if is_whole else HEADER_BYTES)
            left = size - len(block)
            while left and (part := stream.read(min(left, BUFFER_BYTES))):
                left -= len(part)
            if left:
                break
            yield _Frame(offset, header + block, is_whole)
            offset, header = offset + len(header) + size, b""
        elif is_empty or len(header) > HEADER_BYTES:
            raise DamagedFileError(f"no WARC record with a Content-Length at byte {offset:,}")
    if header:
        raise DamagedFileError(f"it ends within the record at byte {offset:,}")


def _record(frame: _Frame, name: str, max_bytes: int) -> Record:
    """Return the page of an archive record as a `Record`.

    If the archive record holds no page, for example a request or an image, the `Record` is marked as skipped. If the
    page is too long or cannot be read, it is marked as bad.

    Args:
        frame: the archive record.
        name: the name of the archive file.
        max_bytes: the maximum size of a page in bytes. HTML pages of more than HTML_BYTES (16 MiB) are always too long.
    """
    from fastwarc.warc import WarcRecord

    raw = frame.data[:HEAD_BYTES]

    def bad(problem: str, is_not_utf8: bool = False) -> Record:
        return Record(name, frame.offset, None, raw, problem, is_not_utf8=is_not_utf8)

    def skipped(reason: str) -> Record:
        return Record(name, frame.offset, None, raw, skipped=reason)

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
            record.parse_http("none")
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
        data = _body(record, frame.data, limit + 1) if record_type == "response" else record.reader.read(limit + 1)
        if len(data) > limit:
            return bad(f"longer than {limit:,} bytes")
        value = {"url": (record.headers.get("WARC-Target-URI") or "").strip("<>")}
        if media_type in HTML:
            value |= _page(data, record.http_charset if record_type == "response" else None)
        else:
            value["text"] = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return bad(invalid_utf8(error.start, "text"), is_not_utf8=True)
    except ShortBodyError:
        return skipped(TRUNCATED)
    except (EOFError, OSError, ValueError, zlib.error) as error:
        if record.headers.get("WARC-Truncated"):
            return skipped(TRUNCATED)
        return bad(f"not readable: {one_line(error, MAX_SAID)}")
    return Record(name, frame.offset, value, raw)


def _body(record: "WarcRecord", data: bytes, num_bytes: int) -> bytes:
    """Return the decoded body of an HTTP response, at most its first `num_bytes` bytes.

    This function, and not fastwarc, decodes chunks, gzip and deflate, because fastwarc takes a body that ends early for
    a whole one.

    Args:
        record: the archive record, whose HTTP header is parsed, and whose body is not yet read.
        data: the bytes of the same record.

    Raises:
        ShortBodyError: the body is shorter than the HTTP header says, or its last chunk is missing.
        EOFError, OSError, ValueError, zlib.error: the body is cut short, or cannot be decoded.
    """
    headers = record.http_headers
    transfer, content = (
        [name.strip().lower() for name in (headers.get(header) or "").split(",")]
        for header in ("Transfer-Encoding", "Content-Encoding")
    )
    encodings = [name for name in (*content, *transfer) if name not in ("", "identity")]  # the last one comes off first
    if not set(encodings) <= {*INFLATED, CHUNKED}:
        whole = type(record).from_bytes(data)
        whole.parse_http("all")
        return bytes(whole.reader.read(num_bytes))
    body = record.reader.read(num_bytes if not encodings else -1)
    stated = headers.get("Content-Length") or ""
    if stated.isdecimal() and not any(transfer) and len(body) < min(int(stated[:18]), num_bytes):
        raise ShortBodyError
    for number, encoding in enumerate(reversed(encodings), start=1):
        limit = num_bytes if number == len(encodings) else len(data) + num_bytes
        body = _joined(body) if encoding == CHUNKED else _inflated(body, limit)
    return bytes(body[:num_bytes])


def _joined(body: bytes) -> bytes:
    """Return the content of the chunks of a body (RFC 9112, 7.1).

    Raises:
        EOFError: the body is cut short within a chunk.
        ShortBodyError: the last chunk, which is empty, is missing.
        ValueError: no chunk begins where one must.
    """
    parts, at = list[bytes](), 0
    while head := _CHUNK.match(body, at):
        size, at = int(head[1], 16), head.end()
        if not size:
            return b"".join(parts)
        parts.append(body[at : at + size])
        at += size
        if at > len(body):
            raise EOFError("its body is cut short within a chunk")
    if body[at:].strip(b"\r\n"):
        raise ValueError(f"no chunk at byte {at:,} of its body: {body[at : at + 40]!r}")
    raise ShortBodyError


def _inflated(body: bytes, num_bytes: int) -> bytes:
    """Decompress gzip or deflate, and return at most the first `num_bytes` bytes.

    Raises:
        EOFError: the data are cut short.
        OSError, zlib.error: the data are damaged, or followed by something else.
    """
    if body.startswith(b"\x1f\x8b"):  # in one part or several
        with gzip.GzipFile(fileobj=io.BytesIO(body)) as parts:
            try:
                return parts.read(num_bytes)
            except EOFError:
                raise EOFError("its compressed body is cut short") from None
    stream = zlib.decompressobj()
    data = stream.decompress(body, num_bytes)
    if len(data) < num_bytes and not stream.eof:
        raise EOFError("its compressed body is cut short")
    if stream.unused_data:
        raise OSError("data follow its compressed body")
    return data


def _check_digest(record: "WarcRecord", data: bytes) -> str:
    """Return an error message if an archive record's content does not have the digest that the record's header states.

    Return "" if it has, or if the header states no digest of a known algorithm (MD5, SHA-1, SHA-256, SHA-512).

    Args:
        record: the archive record, parsed.
        data: the bytes of the same record: its header and its content.
    """
    algorithm, _, stated = (record.headers.get("WARC-Block-Digest") or "").strip().partition(":")
    if algorithm.lower() not in ("md5", "sha1", "sha256", "sha512"):
        return ""
    actual = hashlib.new(algorithm.lower(), memoryview(data)[len(data) - record.content_length :]).digest()
    if stated.upper().rstrip("=") in (base64.b32encode(actual).decode().rstrip("="), actual.hex().upper()):
        return ""
    return f"its bytes differ from its digest {algorithm}:{stated}"


def _page(data: bytes, charset: str | None) -> dict[str, str]:
    """Return the title and the main text of an HTML page, as {"title": ..., "text": ...}.

    Args:
        data: the bytes of the page.
        charset: the encoding that the HTTP header or the user names; None if neither names one.

    Raises:
        ValueError: elements of the page are nested more than DEPTH (400) deep.
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
    """Decode the bytes of an HTML page. Bytes that are invalid in the encoding are left out.

    Args:
        data: the bytes of the page.
        charset: the name of the encoding. If it is None or an unknown name, the first of these is used: UTF-8 if the
            page is valid UTF-8; the encoding that a meta element of the page names; a guessed encoding.
    """
    from resiliparse.parse.encoding import bytes_to_str, detect_encoding, map_encoding_to_html5

    encoding = map_encoding_to_html5(charset, fallback_utf8=False) if charset else None
    with contextlib.suppress(UnicodeDecodeError):
        return data.decode(encoding or "utf-8")
    return bytes_to_str(data, encoding or detect_encoding(data, from_html_meta=True) or "utf-8")
