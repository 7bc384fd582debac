"""csv and tsv: one record per row, whatever its quotes hold; a bad row or quote is reported."""

import csv
import gzip
import io
import json
import lzma
import re
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.pipelines.errors import PipelineError
from clearspan.pipelines.readers import read_pieces, tables
from clearspan.pipelines.records import Reading, Record
from clearspan.pipelines.units.plan import cut, describe
from tests.pipelines.packings import COMPRESS, read_all, tar

cells = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\0"), max_size=12)


def written(rows: list[list[str]], **options) -> bytes:
    data = io.StringIO()
    csv.writer(data, **options).writerows(rows)
    return data.getvalue().encode()


def of_texts(texts: list[str], **options) -> bytes:
    return written([["id", "text"], *([str(number), text] for number, text in enumerate(texts))], **options)


def read(data: bytes, reading: Reading | None = None, name: str = "a.csv") -> list[Record]:
    return list(tables.records(io.BytesIO(data), name, reading or Reading(10**6)))


@given(st.lists(st.tuples(cells, cells), max_size=9), st.sampled_from([",", ";", "|"]), st.sampled_from(["\n", "\r\n"]))
def test_what_pythons_writer_writes_is_read(rows: list[tuple[str, str]], delimiter: str, end: str) -> None:
    data = written([["first", "text"], *map(list, rows)], delimiter=delimiter, lineterminator=end)
    found = read(data, Reading(10**6, columns=(("first", "text"),)))
    assert [(record.value["first"], record.value["text"]) for record in found] == rows
    assert [record.source for record in found] == [f"a.csv:{number}" for number in range(len(rows))]


@pytest.mark.parametrize("pack", [None, *COMPRESS, "tar", "tar of xz"])
@pytest.mark.parametrize("unit_bytes", [700, 10**9])
def test_documents_with_line_ends_come_through_every_packing(
    texts: list[str], tmp_path: Path, pack: str | None, unit_bytes: int
) -> None:
    data = b"\xef\xbb\xbf" + of_texts(texts[:40], lineterminator="\r\n")
    if pack in COMPRESS:
        files = {f"a.csv.{pack}": COMPRESS[pack](data)}
    elif pack == "tar of xz":
        files = {"a.tar": tar({"b.csv.xz": lzma.compress(data)})}
    else:
        files = {"a.tar": tar({"b.csv": data})} if pack else {"a.csv": data}
    found = read_all(files, tmp_path, unit_bytes)
    assert [record.value for record in found] == texts[:40]
    assert [record.offset for record in found] == list(range(40))


@pytest.mark.slow
def test_a_tables_rows_are_documents(direct, texts: list[str], tmp_path: Path) -> None:
    (tmp_path / "speeches.csv").write_bytes(of_texts(texts[:40]))
    outcome = direct("--input", tmp_path / "speeches.csv", "--min-tokens", "800", "--json")
    assert json.loads(outcome.out)["read"] == 40


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"text\nCall me Ishmael.\n", "Call me Ishmael."),
        (b"n;content\n1;Call me, Ishmael.\n2;Now\n", "Call me, Ishmael."),
        (b"content,score,page\nCall me Ishmael.,1.5,\nNow,-2,7\n", "Call me Ishmael."),
        (b"title\ttext\nLoomings\tCall me Ishmael.\n", "Call me Ishmael."),
    ],
)
def test_what_parts_the_cells_and_the_column_of_texts_are_found(data: bytes, text: str) -> None:
    assert read(data)[0].value == text


def test_a_quote_between_tabs_is_a_character_unless_only_quoting_explains_the_head() -> None:
    plain = b'id\ttext\n1\t"What is it?" he said.\n2\t"Quite.\n'
    assert [record.value for record in read(plain, name="a.tsv")] == ['"What is it?" he said.', '"Quite.']
    rows = [["id", "text"], ["1", "two\nlines"], ["2", 'a "word"\tand']]
    found = read(written(rows, delimiter="\t"), name="a.tsv")
    assert [record.value for record in found] == ["two\nlines", 'a "word"\tand']


def test_several_columns_of_texts_are_named_in_the_error() -> None:
    complaint = r'no column "text" \(columns of text: title, body; all: title, body, n\): name .* --text-field'
    with pytest.raises(PipelineError, match=complaint):
        read(b"title,body,n\nLoomings,Call me Ishmael.,1\n")
    with pytest.raises(PipelineError, match='columns "Text" and "TEXT" differ in letter case alone: name one with'):
        read(b"Text,TEXT\na b,c d\n")
    assert read(b"body,Text\nCall me Ishmael.,1\n")[0].value == "Call me Ishmael."
    with pytest.raises(PipelineError, match='2 columns are named "Text"'):
        read(b"Text,Text\na,b\n")
    with pytest.raises(PipelineError, match='2 columns are named "text"'):
        read(b"text,text\na,b\n")


def test_a_csv_without_a_header_has_numbered_columns(shared_data: Path) -> None:
    path = shared_data / "stsb_multi_mt" / "stsb-de-dev.csv"
    with path.open(encoding="utf-8", newline="") as lines:
        expected = [row[1] for row in csv.reader(lines)]
    found = read(path.read_bytes(), Reading(10**6, "2", header=False))
    assert [record.value for record in found] == expected and len(found) == 1500


@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("line", ["Call me Ishmael.\n", "Call me Ishmael. "])
@pytest.mark.parametrize("header", [True, False])
def test_a_first_row_that_is_longer_than_the_head_is_read_whole(delimiter: str, line: str, header: bool) -> None:
    rows = [[line * 6000, "1"], ["Never mind\nhow long", "2"]]
    data = written([*([["text", "label"]] if header else []), *rows], delimiter=delimiter, quoting=csv.QUOTE_ALL)
    found = read(data, Reading(10**6, "text" if header else "1", header=header))
    assert [record.value for record in found] == [row[0] for row in rows]


def test_a_table_whose_rows_are_all_longer_than_allowed_is_rejected() -> None:
    (record,) = read(b"a" * 10**5, Reading(70_000, "1", header=False))
    assert record.problem == "longer than 70,000 bytes: 100,000"
    with pytest.raises(PipelineError, match=r"a.csv: its first rows are not readable, so its columns are unknown"):
        read(b"a" * 10**6 + b"\nCall me Ishmael\n", Reading(70_000, "1", header=False))


def test_a_first_line_that_is_a_text_is_not_lost_as_a_header() -> None:
    with pytest.raises(PipelineError, match="looks like a text, not like a column name: add --no-header"):
        read(b"Call me Ishmael some years ago\nNever mind how long\n")
    whole = read(b"Call me Ishmael some years ago\nNever mind how long\n", Reading(10**6, "1", header=False))
    assert len(whole) == 2


def test_a_bad_row_is_bad_by_itself(texts: list[str]) -> None:
    rows = [b"1,one", b"2,two,three", b"3", b"", b"4,caf\xe9", b'5,"a"b', b'6,"two\nlines"']
    found = read(b"id,text\n" + b"\n".join(rows))
    assert [record.value for record in found if not record.problem] == ["one", "two\nlines"]
    assert [(record.offset, record.problem) for record in found if record.problem] == [
        (1, "3 cells in a row, of 2 columns"),
        (2, "1 cells in a row, of 2 columns"),
        (3, "invalid UTF-8 at byte 5 of the row"),
        (4, "broken csv: ',' expected after '\"'"),
    ]
    assert found[3].raw == b"4,caf\xe9\n"


@pytest.mark.parametrize(
    "rest", [b"", b'3,next\n4,"quoted"\n', b"3,next\n" * 1000], ids=["at the end", "before another quote", "far away"]
)
def test_an_unclosed_quote_is_an_error_that_names_its_line(rest: bytes) -> None:
    data = b'id,text\n1,"two\nlines"\n2,"Call me Ishmael.\n' + rest
    complaint = re.escape("a.csv: line 4: the row that begins there has a quote that is not closed")
    with pytest.raises(PipelineError, match=complaint):
        read(data, Reading(1000))


@pytest.mark.slow
def test_what_an_unclosed_quote_swallows_does_not_fill_the_memory() -> None:
    data = b'id,text\n1,"open\n' + b"2,Call me Ishmael.\n" * 1_000_000
    tracemalloc.start()
    with pytest.raises(PipelineError, match=r"line 2: .* not closed within 100,000 bytes: mend it, or raise --max-doc"):
        read(data, Reading(100_000))
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_a_row_above_the_limit_is_bad_and_the_next_is_read() -> None:
    found = read(b"id,text\n1," + b"a" * 3_000_000 + b'\n2,"' + b"b" * 2000 + b'"\n3,c\n', Reading(1000))
    assert [record.problem for record in found] == [
        "longer than 1,000 bytes: 3,000,003",
        "longer than 1,000 bytes: 2,005",
        "",
    ]
    assert found[2].value == "c" and len(found[0].raw) == 1000


def test_a_hole_is_damage(tmp_path: Path, texts: list[str]) -> None:
    data = of_texts(texts[:9])
    with pytest.raises(PipelineError, match=r"a\.csv: damaged .*512 zero bytes in a row at byte 4,000\)"):
        read_all({"a.csv": data[:4000] + bytes(600) + data[4600:]}, tmp_path, 10**9)


def test_an_empty_table_has_no_rows(tmp_path: Path) -> None:
    assert read_all({"a.csv": b"", "b.csv": b"text\n", "c.tsv.gz": gzip.compress(b"\n\n")}, tmp_path, 10**9) == []


def test_a_table_is_one_piece(texts: list[str], tmp_path: Path) -> None:
    data = of_texts(texts[:40])
    (tmp_path / "a.csv").write_bytes(data)
    (unit,) = cut(describe(str(tmp_path), {"a.csv": len(data)}, Reading()), 1000)
    assert len(list(read_pieces(str(tmp_path), unit.pieces, Reading(10**6)))) == 40
