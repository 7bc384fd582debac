"""Files whose lines end with CR alone, and CRs that are no line ends."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from clearspan.common.line_ends import end_with_cr, parts_end_with_cr
from clearspan.common.queries import read_queries
from clearspan.common.records import DataError
from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.units.plan import cut, describe
from tests.pipelines.packings import jsonl, read_all, tar

TEXTS = ["An owl hunts at night.", "Moss grows on the north side.", "A political party won in 1980."]
LINES = "\r".join(TEXTS).encode()
TABLE = b'id,text\r7,"An owl, which\nhunts."\r8,Moss grows.\r'
BY_LINE = ReadOptions(10**6, text_per="line")
BY_LINE_LONG = ReadOptions(10**7, text_per="line")


def values(records: list[Record]) -> list:
    return [record.value["text"] if isinstance(record.value, dict) else record.value for record in records]


@pytest.mark.parametrize("end", [b"", b"\r", b"\n", b"\r\r"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("unit_bytes", [10, 10**9])
def test_a_carriage_return_alone_ends_lines_of_a_file_that_has_no_line_feed(
    end: bytes, pack, unit_bytes: int, tmp_path: Path
) -> None:
    records = read_all({"a": pack(LINES + end)}, tmp_path, unit_bytes, "line", BY_LINE)
    assert values(records) == TEXTS
    assert [(record.number, record.offset) for record in records] == [(1, 0), (2, 23), (3, 53)]


@pytest.mark.parametrize("unit_bytes", [10, 10**9])
@pytest.mark.parametrize("name", ["a.jsonl", "without an extension"])
def test_json_lines_may_end_with_carriage_returns(name: str, unit_bytes: int, tmp_path: Path) -> None:
    data = jsonl(TEXTS).replace(b"\n", b"\r")
    assert values(read_all({name: data}, tmp_path / "a", unit_bytes)) == TEXTS
    assert values(read_all({"a.tar": tar({name: data})}, tmp_path / "b", 10**9)) == TEXTS


def test_the_encoding_does_not_matter(tmp_path: Path) -> None:
    reading = ReadOptions(10**6, text_per="line", encoding="utf-16")
    (tmp_path / "a.txt").write_bytes("\r".join(TEXTS).encode("utf-16"))
    inputs = describe(str(tmp_path), {"a.txt": (tmp_path / "a.txt").stat().st_size}, reading)
    pieces = [piece for unit in cut(str(tmp_path), inputs, 10, reading.uncut) for piece in unit.splits]
    assert values(list(read_splits(str(tmp_path), pieces, reading))) == TEXTS


@pytest.mark.parametrize("unit_bytes", [4, 10**9])
def test_a_carriage_return_within_lines_is_a_character(unit_bytes: int, tmp_path: Path) -> None:
    records = read_all({"a.txt": b"10 %\r20 %\nAn owl\rhunts.\n"}, tmp_path, unit_bytes, "line", BY_LINE)
    assert values(records) == ["10 %\r20 %", "An owl\rhunts."]


@pytest.mark.parametrize("unit_bytes", [500_000, 10**9])
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_feed_behind_a_first_line_of_megabytes_counts(pack: Any, unit_bytes: int, tmp_path: Path) -> None:
    book = "\r".join(["An owl hunts at night."] * 60_000)
    texts = [book, "Moss grows.\rIt rains.", "A party won."]
    for end in ("", "\n"):
        records = read_all({"a": pack(("\n".join(texts) + end).encode())}, tmp_path, unit_bytes, "line", BY_LINE_LONG)
        assert values(records) == texts
        records = read_all({"a": pack((book + end).encode())}, tmp_path, unit_bytes, "line", BY_LINE_LONG)
        assert values(records) == book.split("\r")


def test_rows_that_end_with_two_carriage_returns_and_a_line_feed_are_no_rows_of_their_own(tmp_path: Path) -> None:
    """As programs write them that turn LF into CR LF twice."""
    rows = ["id,text", *(f"{number},{text}" for number, text in enumerate(TEXTS))]
    data = "\r\r\n".join([*rows, ""]).encode()
    assert values(read_all({"a.csv": data}, tmp_path / "a", 10**9)) == TEXTS
    (tmp_path / "q.csv").write_bytes(data.replace(b"id,text", b"id,query"))
    assert [query.text for query in read_queries(tmp_path / "q.csv")] == TEXTS


def test_rows_of_tables_may_end_with_carriage_returns_and_hold_line_feeds(tmp_path: Path) -> None:
    tsv = TABLE.replace(b"id,", b"id\t").replace(b"7,", b"7\t").replace(b"8,", b"8\t")
    for name, data in (("a.csv", TABLE), ("b.tsv", tsv)):
        assert values(read_all({name: data}, tmp_path, 10**9)) == ["An owl, which\nhunts.", "Moss grows."]


def test_a_carriage_return_in_a_cell_is_told_in_the_projects_words(tmp_path: Path) -> None:
    rows = read_all({"a.csv": b'id,text\n7,"An owl,\nmoss",\n7,An owl\rhunts.\n8,Moss grows.\n'}, tmp_path, 10**9)
    assert [row.problem for row in rows] == [
        "3 cells in a row, of 2 columns",
        "broken csv: a carriage return in a cell without quotes",
        "",
    ]
    (tmp_path / "q.csv").write_bytes(b"query,id\nwhat\rhunts,7\n")
    with pytest.raises(DataError, match=r"q\.csv:2: not a csv row \(a carriage return in a cell without quotes\)"):
        read_queries(tmp_path / "q.csv")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("q.txt", "\r".join(TEXTS).encode()),
        ("q.jsonl", "\r".join(json.dumps({"query": text}) for text in TEXTS).encode()),
        ("q.csv", "\r".join(["query", *TEXTS, ""]).encode()),
        ("q.tsv", "\r".join(["id\tquery", *(f"{number}\t{text}" for number, text in enumerate(TEXTS))]).encode()),
    ],
)
def test_queries_may_end_with_carriage_returns(name: str, data: bytes, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    found = read_queries(tmp_path / name)
    first = 2 if name.endswith("sv") else 1
    assert [query.text for query in found] == TEXTS
    assert [query.place.rpartition(":")[2] for query in found] == [str(first + number) for number in range(3)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"an owl\rmoss", True),
        (b"an owl\rmoss\n", True),
        (b"an owl\rmoss\r\n", False),
        (b"an owl\rmoss\nrain", False),
        (b"an\rowl\r\n\r\n", False),
        (b"an owl", False),
        (b"", False),
        (b"\r", True),
    ],
)
def test_an_end_is_found_however_a_text_is_cut(text: bytes, expected: bool) -> None:
    assert end_with_cr(text) is expected
    for size in range(1, len(text)):
        parts = [text[start : start + size] for start in range(0, len(text), size)]
        assert parts_end_with_cr(parts) is (expected and b"\r" in parts[0]), size
