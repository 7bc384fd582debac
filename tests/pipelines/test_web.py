"""Web archives: each page once, skipped records counted, damaged ones rejected with their place."""

import gzip
import importlib.util
import re
import tracemalloc
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from fastwarc.warc import WarcRecordType

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.records import Input, ReadOptions, Record, Split
from clearspan.pipelines.units.plan import cut, describe
from clearspan.plugins import web
from tests.pipelines.archives import html, info, members, record, response, warc, wet
from tests.pipelines.conftest import logged, rows, summary
from tests.pipelines.packings import read_all

LIMIT = 200_000


@pytest.fixture(scope="module")
def pages(texts: list[str]) -> list[str]:
    """Thirty texts of at least 1,000 characters."""
    return [text for text in texts if len(text) >= 1000][:30]


def read(folder: Path, data: bytes, limit: int = LIMIT) -> list[Record]:
    (folder / "a.warc").write_bytes(data)
    (entry,) = describe(str(folder), {"a.warc": len(data)}, ReadOptions())
    assert entry.format == "warc"
    (unit,) = cut(str(folder), [entry], 10**9)
    return list(read_splits(str(folder), unit.splits, ReadOptions(limit)))


def words(text: str) -> list[str]:
    return text.split()


PACKED: dict[str, Callable[[list[bytes]], bytes]] = {
    "a.warc": b"".join,
    "a.warc.gz": members,
    "one.warc.gz": lambda records: gzip.compress(b"".join(records)),
    "a.warc.zst": lambda records: zstandard.compress(b"".join(records)),
}


@pytest.mark.parametrize("name", PACKED)
def test_pages_are_read_in_order_however_the_archive_is_packed(pages: list[str], tmp_path: Path, name: str) -> None:
    found = read_all({name: PACKED[name](warc(pages))}, tmp_path, 10_000)
    assert [one.skipped for one in found] == ["other_record", *["other_record", "", "other_record"] * len(pages)]
    read = [one for one in found if not one.skipped]
    assert not any(one.problem for one in read)
    assert [one.value["url"] for one in read] == [f"https://example.org/{number}" for number in range(len(pages))]
    assert [one.value["title"] for one in read] == [f"Page {number}" for number in range(len(pages))]
    # A few lines (a list's short items) may be taken for a menu; the menu and the footer themselves are not text.
    shares = [len(words(one.value["text"])) / len(words(page)) for one, page in zip(read, pages, strict=True)]
    assert min(shares) > 0.9 and max(shares) <= 1
    assert not any("Contact us" in one.value["text"] or "All rights" in one.value["text"] for one in read)


def test_texts_of_a_wet_file_are_as_written_and_at_their_offsets(pages: list[str], tmp_path: Path) -> None:
    data = b"".join(wet(pages))
    _, *found = read(tmp_path, data)
    assert [one.value["text"] for one in found] == pages
    for one in found:
        assert one.offset is not None and data[one.offset :].startswith(b"WARC/1")
        assert data[one.offset :].partition(b"\r\n\r\n")[2].startswith(pages[found.index(one)].encode())


def of(body: bytes, headers: str = "Content-Type: text/html; charset=utf-8", status: str = "200 OK") -> bytes:
    return record(response(body, headers, status))


TEXT = "Größe und Gewicht: ein Satz über Käse."


@pytest.mark.parametrize(
    "data",
    [
        of(html(TEXT).encode()),
        of(html(TEXT).encode("latin-1"), "Content-Type: text/html; charset=ISO-8859-1"),
        of(b"<meta charset=windows-1252>" + html(TEXT).encode("cp1252"), "Content-Type: text/html"),
        of(html(TEXT).encode(), "Content-Type: TEXT/HTML; charset=nonsense"),
        of(gzip.compress(html(TEXT).encode()), "Content-Type: text/html\r\nContent-Encoding: gzip"),
        of(
            b"%x\r\n%b\r\n0\r\n\r\n" % (len(html(TEXT).encode()), html(TEXT).encode()),
            "Content-Type: application/xhtml+xml\r\nTransfer-Encoding: chunked",
        ),
        record(html(TEXT).encode(), WarcRecordType.resource, content_type="text/html"),
        record(TEXT.encode(), WarcRecordType.resource, content_type="text/plain; charset=utf-8"),
    ],
    ids=["utf-8", "latin-1", "meta", "unknown charset", "gzip", "chunked xhtml", "resource", "text resource"],
)
def test_a_page_is_decoded_as_its_headers_say(tmp_path: Path, data: bytes) -> None:
    (found,) = read(tmp_path, data)
    assert (found.problem, found.value["text"]) == ("", TEXT)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (info(), web.OTHER),
        (record(b"", WarcRecordType.revisit), web.OTHER),
        (record(b"93.184.216.34", url="dns:example.org", content_type="text/dns"), web.OTHER),
        (of(html(TEXT).encode(), status="404 Not Found"), web.STATUS),
        (of(b"\x89PNG", "Content-Type: image/png"), web.NO_TEXT),
        (of(b"User-agent: *", "Content-Type: text/plain"), web.NO_TEXT),
        (of(b"%PDF" + b"x" * LIMIT * 2, "Content-Type: application/pdf"), web.NO_TEXT),
        (record(b"{}", WarcRecordType.conversion, content_type="application/json"), web.NO_TEXT),
    ],
)
def test_a_record_without_a_page_is_skipped_with_a_reason(tmp_path: Path, data: bytes, reason: str) -> None:
    found = read(tmp_path, data)
    assert [(one.skipped, one.problem) for one in found] == [(reason, "")]


def with_length(data: bytes, length: str) -> bytes:
    return re.sub(rb"Content-Length: \d+", f"Content-Length: {length}".encode(), data, count=1)


PAGE = of(html(TEXT).encode())


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (PAGE.replace("Käse".encode(), b"Wurst"), "its bytes differ from its digest sha1:"),
        (of(b"\xff\xff", "Content-Type: text/html\r\nContent-Encoding: gzip"), "not readable: "),
        (of(b"5\r\nhel", "Content-Type: text/html\r\nTransfer-Encoding: chunked"), "not readable: "),
        (of(gzip.compress(b" " * 10**8), "Content-Type: text/html\r\nContent-Encoding: gzip"), "longer than 200,000 b"),
        (of(b"<p>" + b"x " * LIMIT), "longer than 200,000 bytes"),
        (of(b"<div>" * 1000), "not readable: elements nested more than 400 deep"),
        (record(b"nonsense\r\n\r\n"), "no HTTP status line"),
        (record(b"\xe9", WarcRecordType.conversion, content_type="text/plain"), "invalid UTF-8 at byte 0 of the text"),
    ],
)
def test_a_damaged_record_is_bad_and_its_neighbors_are_read(tmp_path: Path, data: bytes, problem: str) -> None:
    found = read(tmp_path, PAGE + data + PAGE)
    assert [one.problem.startswith(problem) for one in found] == [False, True, False]
    assert found[1].is_not_utf8 == problem.startswith("invalid UTF-8")
    assert found[0].value["text"] == found[2].value["text"] == TEXT
    assert found[1].offset == len(PAGE) and found[1].value is None


BODY = html(f"{TEXT}\n" * 200).encode()
ENCODED = {"gzip": gzip.compress(BODY), "x-gzip": gzip.compress(BODY), "deflate": zlib.compress(BODY)}
ENCODED["GZIP, identity"] = gzip.compress(BODY[:999]) + gzip.compress(BODY[999:])
ENCODED["gzip, deflate"] = zlib.compress(gzip.compress(BODY))


@pytest.mark.parametrize("encoding", ENCODED)
def test_a_compressed_body_is_whole_or_bad(tmp_path: Path, encoding: str) -> None:
    body, headers = ENCODED[encoding], f"Content-Type: text/html\r\nContent-Encoding: {encoding}"
    for end in (-1, -9, -len(body) // 3):
        whole, cut = read(tmp_path, of(body, headers) + of(body[:end], headers))
        assert whole.value["text"].count(TEXT) == 200
        assert (cut.value, cut.problem) == (None, "not readable: its compressed body is cut short")


def chunked(body: bytes, size: int = 700) -> bytes:
    parts = [body[start : start + size] for start in range(0, len(body), size)]
    return b"".join(b"%X; a=b\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\nname: value\r\n\r\n"


@pytest.mark.parametrize("encoding", ["gzip", "x-gzip", "deflate"])
def test_a_body_that_was_compressed_on_the_way_is_whole_or_bad(tmp_path: Path, encoding: str) -> None:
    body, header = ENCODED[encoding], f"Content-Type: text/html\r\nTransfer-Encoding: {encoding}"
    for end in (-1, -9, -len(body) // 3):
        whole, cut = read(tmp_path, of(body, header) + of(body[:end], header))
        assert whole.value["text"].count(TEXT) == 200
        assert (cut.value, cut.problem) == (None, "not readable: its compressed body is cut short")
        parts = [of(chunked(each, 20), f"{header}, chunked") for each in (body, body[:end])]
        whole, cut = read(tmp_path, b"".join(parts))
        assert whole.value["text"].count(TEXT) == 200
        assert (cut.value, cut.problem) == (None, "not readable: its compressed body is cut short")


def test_a_body_without_its_last_chunk_is_skipped(tmp_path: Path) -> None:
    header, body = "Content-Type: text/html\r\nTransfer-Encoding: chunked", chunked(BODY)
    last = body.rindex(b"0\r\nname")
    ends = [len(body), last, last - 2, last - 9]
    found = read(tmp_path, b"".join(of(body[:end], header) for end in ends))
    assert [one.skipped for one in found] == ["", web.TRUNCATED, web.TRUNCATED, ""]
    assert [one.problem for one in found] == ["", "", "", "not readable: its body is cut short within a chunk"]


@pytest.mark.parametrize("body", [BODY, ENCODED["gzip"]])
def test_a_body_that_is_shorter_than_its_header_says_is_skipped(tmp_path: Path, body: bytes) -> None:
    headers = "Content-Type: text/html\r\n" + ("" if body is BODY else "Content-Encoding: gzip\r\n")
    stated = f"{headers}Content-Length: {len(body)}"
    found = read(tmp_path, of(body, stated) + of(body[:-99], stated))
    assert [(one.skipped, one.problem) for one in found] == [("", ""), (web.TRUNCATED, "")]


def test_a_compressed_body_that_the_crawler_cut_is_skipped(tmp_path: Path) -> None:
    page = of(ENCODED["gzip"][:-99], "Content-Type: text/html\r\nContent-Encoding: gzip")
    told = page.replace(b"Content-Type: application", b"WARC-Truncated: length\r\nContent-Type: application", 1)
    assert [one.skipped for one in read(tmp_path, told)] == [web.TRUNCATED]


def test_a_problem_is_short_whatever_a_body_holds(tmp_path: Path) -> None:
    (found,) = read(tmp_path, of(b"x" * 9999, "Content-Type: text/html\r\nTransfer-Encoding: chunked"))
    assert found.problem.startswith("not readable: ") and len(found.problem) < 400


@pytest.mark.parametrize(
    "data",
    [
        with_length(PAGE, "10"),
        with_length(PAGE, "900"),
        with_length(PAGE, "99999999999999"),
        PAGE.replace(b"Content-Length", b"Content-Width", 1),
        b"lost and found\r\n" * 9,
        PAGE.replace(b"WARC/1", b"WART/1", 1),
        b"WARC/1.1\r\nName: " + b"x" * 200_000 + b"\r\n\r\n",
    ],
)
def test_a_record_without_its_length_stops_the_run(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(PipelineError, match=r"a\.warc: damaged or cut short \(.* at byte [\d,]+\)"):
        read(tmp_path, PAGE + data + PAGE)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("pack", [b"".join, members])
def test_a_cut_archive_is_an_error_that_names_it(pages: list[str], tmp_path: Path, pack: Callable) -> None:
    data = pack([info(), record(html(pages[0]).encode())])
    for size in range(len(data) - 1000, len(data) - 8, 97):
        with pytest.raises(PipelineError, match=r"a\.warc: damaged or cut short .* fetch or make it again"):
            read(tmp_path, data[:size])


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.parametrize("encoding", ["", "gzip", "deflate", "gzip, gzip"])
def test_a_page_without_an_end_takes_little_memory(tmp_path: Path, encoding: str) -> None:
    body = b"<p>" + b"Owls hunt at night. " * 1_500_000
    for name in filter(None, encoding.split(", ")):
        body = gzip.compress(body, 1) if name == "gzip" else zlib.compress(body, 1)
    data = of(body, f"Content-Type: text/html\r\nContent-Encoding: {encoding}")
    path = tmp_path / "a.warc"
    path.write_bytes(data)
    del data, body
    entry = Input("a.warc", path.stat().st_size, "warc", None, "")
    tracemalloc.start()
    (found,) = read_splits(str(tmp_path), [Split(entry, 0, None)], ReadOptions(LIMIT))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.value is None and found.problem == "longer than 200,000 bytes"
    assert peak < 12_000_000


@pytest.mark.slow
@pytest.mark.guarantee("records-counted")
def test_a_run_counts_pages_skipped_records_and_damage(direct, pages: list[str], tmp_path: Path, tree) -> None:
    broken = PAGE.replace("Käse".encode(), b"Wurst")
    for number, name in enumerate(("a.warc.gz", "b.wet.gz")):
        (tmp_path / name).write_bytes(members([*(warc(pages), wet(pages))[number], broken, PAGE]))
    words = ["--input", tmp_path / "*.gz", "--min-tokens", "32", "--max-bad-fraction", "0.1"]
    found = summary(direct(*words, "--unit-bytes", "1000", "--json"))
    assert found["kept"] == 2 * len(pages) and found["bad"] == 2
    assert found["filtered"] == {"empty": 0, "short_bytes": 0, "short_tokens": 2, "other_record": 2 * len(pages) + 2}
    made = rows(tmp_path / "out")
    assert len({row["source"] for row in made}) == 2 * len(pages)
    assert re.fullmatch(r"a\.warc\.gz:\d+", made[0]["source"])
    rejected = logged(tmp_path / "out" / "_rejected")
    assert [line["source"] for line in rejected] == ["a.warc.gz", "b.wet.gz"]
    assert all(line["offset"] > 0 for line in rejected)


def test_the_missing_extra_is_named(direct, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.warc.gz").write_bytes(members([info()]))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    outcome = direct("--input", tmp_path / "a.warc.gz")
    (line,) = outcome.err.splitlines()
    assert outcome.code == 1 and line.startswith(f"pipelines: {tmp_path / 'a.warc.gz'}: ")
    assert "fastwarc, resiliparse" in line and "-e '.[web]'" in line
