"""Helpers: web archives (WARC, WET) of given pages, written by fastwarc."""

import gzip
import io

import pytest

pytest.importorskip("fastwarc", reason="extra `web`")

from fastwarc.warc import WarcRecord, WarcRecordType

MENU = "<nav><ul><li><a href='/'>Home</a></li><li><a href='/contact'>Contact us</a></li></ul></nav>"
FOOTER = "<footer>All rights reserved. <a href='/terms'>Terms</a></footer>"


def record(
    content: bytes,
    kind: WarcRecordType = WarcRecordType.response,
    url: str = "https://example.org/",
    content_type: str = "application/http; msgtype=response",
) -> bytes:
    """Return a record as its bytes, with its block's digest."""
    made, data = WarcRecord(), io.BytesIO()
    made.init_headers(kind)
    made.headers["WARC-Target-URI"] = url
    made.headers["Content-Type"] = content_type
    made.is_http = content_type.startswith("application/http")
    made.set_bytes_content(content)
    made.write(data, checksum_data=True)
    return data.getvalue()


def html(text: str, title: str = "A page") -> str:
    """Return a page with a text as its main part, a paragraph a line."""
    escaped = text.replace("&", "&amp;").replace("<", "&lt;")
    paragraphs = "".join(f"<p>{line}</p>" for line in escaped.split("\n") if line.strip())
    return f"<html><head><title>{title}</title></head><body>{MENU}<main>{paragraphs}</main>{FOOTER}</body></html>"


def response(body: bytes, headers: str = "Content-Type: text/html; charset=utf-8", status: str = "200 OK") -> bytes:
    """Return an HTTP response."""
    return f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n".encode() + body


def info() -> bytes:
    return record(b"software: a crawler\r\n", WarcRecordType.warcinfo, content_type="application/warc-fields")


def warc(texts: list[str]) -> list[bytes]:
    """Return the records of a crawl of HTML pages: for each a request, the response and metadata."""
    records = [info()]
    for number, text in enumerate(texts):
        url = f"https://example.org/{number}"
        records += [
            record(b"GET / HTTP/1.1\r\n\r\n", WarcRecordType.request, url, "application/http; msgtype=request"),
            record(response(html(text, f"Page {number}").encode()), url=url),
            record(b"fetchTimeMs: 12\r\n", WarcRecordType.metadata, url, "application/warc-fields"),
        ]
    return records


def wet(texts: list[str]) -> list[bytes]:
    """Return the records of a crawl's texts."""
    pages = (record(text.encode(), WarcRecordType.conversion, content_type="text/plain") for text in texts)
    return [info(), *pages]


def members(records: list[bytes]) -> bytes:
    """Return an archive with a gzip member a record, as crawlers write them."""
    return b"".join(map(gzip.compress, records))
