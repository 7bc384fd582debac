"""csv and tsv: one record per row, whatever its quotes hold; a bad row or quote is reported."""

import csv
import gzip
import io
import lzma
import re
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common.delimited import are_quotes
from clearspan.common.errors import PipelineError
from clearspan.common.queries import read_queries
from clearspan.common.records import csv_rows
from clearspan.pipelines.readers import tables
from clearspan.pipelines.records import ReadOptions, Record
from clearspan.pipelines.text.exclude import read_texts
from tests.pipelines.packings import read_all, tar

cells = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\r\0"), max_size=12)


def written(rows: list[list[str]], **options) -> bytes:
    data = io.StringIO()
    csv.writer(data, **options).writerows(rows)
    return data.getvalue().encode()


def read(data: bytes, reading: ReadOptions | None = None, name: str = "a.csv") -> list[Record]:
    return list(tables.records(io.BytesIO(data), name, reading or ReadOptions(10**6)))


@pytest.mark.guarantee("quotes-in-tables")
@given(st.lists(st.tuples(cells, cells), max_size=9), st.sampled_from([",", ";", "|"]), st.sampled_from(["\n", "\r\n"]))
def test_what_pythons_writer_writes_is_read(rows: list[tuple[str, str]], delimiter: str, end: str) -> None:
    data = written([["first", "text"], *map(list, rows)], delimiter=delimiter, lineterminator=end)
    found = read(data, ReadOptions(10**6, columns=(("first", "text"),)))
    assert [(record.value["first"], record.value["text"]) for record in found] == rows
    assert [record.source for record in found] == [f"a.csv:{number}" for number in range(len(rows))]


@pytest.mark.guarantee("quotes-in-tables")
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


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize("name", ["a.csv", "a.tsv"])
@pytest.mark.parametrize(
    "line", ["sep=;\r\n", "SEP=;\n", '"sep=;"\n', "\ufeffsep=;\n", "sep=~\n", "sep=\t\n", "sep=;\r"]
)
def test_a_first_line_that_declares_the_delimiter_is_no_row(name: str, line: str, tmp_path: Path) -> None:
    delimiter, end = line.strip().strip('"')[-1], "\r" if line.endswith("\r") else "\n"
    delimiter = "\t" if "\t" in line else delimiter
    rows = [["id", "text"], ["7", "Call me, Ishmael; now"], ["8", "Loomings"]]
    data = line.encode() + written(rows, delimiter=delimiter, lineterminator=end)
    found = read(data, name=name)
    assert [(record.value, record.offset) for record in found] == [("Call me, Ishmael; now", 0), ("Loomings", 1)]
    numbered = read(data, ReadOptions(10**6, header=False, field="2"), name)
    assert [record.value for record in numbered] == ["text", "Call me, Ishmael; now", "Loomings"]
    (tmp_path / name).write_bytes(data.replace(b"text", b"query"))
    queries = read_queries(tmp_path / name)
    assert [(query.text, query.answer_id) for query in queries] == [("Call me, Ishmael; now", "7"), ("Loomings", "8")]


def test_a_table_of_a_declaration_alone_is_empty() -> None:
    assert read(b"sep=;\r\n") == []


@pytest.mark.guarantee("quotes-in-tables")
def test_a_quote_between_tabs_is_a_character_unless_only_quoting_explains_the_head() -> None:
    plain = b'id\ttext\n1\t"What is it?" he said.\n2\t"Quite.\n'
    assert [record.value for record in read(plain, name="a.tsv")] == ['"What is it?" he said.', '"Quite.']
    rows = [["id", "text"], ["1", "two\nlines"], ["2", 'a "word"\tand']]
    found = read(written(rows, delimiter="\t"), name="a.tsv")
    assert [record.value for record in found] == ["two\nlines", 'a "word"\tand']


ROWS = [("id", "text"), ("1", "plain"), ("2", 'a "word"'), ("3", "a\ttab"), ("4", "def f():\n\treturn 1")]


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize("compress", [bytes, gzip.compress])
@pytest.mark.parametrize("rule", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
@pytest.mark.parametrize("num_plain", [0, 2000])
def test_a_tsv_of_a_csv_writer_is_read_as_written_wherever_its_first_quote_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_plain: int, rule: int, compress: Callable[[bytes], bytes]
) -> None:
    monkeypatch.setattr(tables, "HEAD", 1 << 12)
    table = [ROWS[0], *[("0", "plain text")] * num_plain, *ROWS[1:]]
    data = compress(written(table, delimiter="\t", quoting=rule))
    found = read_all({"a.tsv.gz" if compress is gzip.compress else "a.tsv": data}, tmp_path, 10**9)
    assert [record.value for record in found[num_plain:]] == [text for _, text in ROWS[1:]]
    assert not any(record.problem for record in found) and len(found) == len(table) - 1
    with tarfile.open(tmp_path / "b.tar", "w") as archive:
        archive.add(tmp_path / ("a.tsv.gz" if compress is gzip.compress else "a.tsv"))
    packed = (tmp_path / "b.tar").read_bytes()
    assert [record.value for record in read_all({"b.tar": packed}, tmp_path, 10**9)] == [r.value for r in found]


@pytest.mark.guarantee("quotes-in-tables")
def test_quotes_of_a_tsv_that_a_writer_would_not_have_written_are_characters(shared_data: Path) -> None:
    path = shared_data / "glue" / "RTE" / "dev.tsv"
    lines = path.read_text(encoding="utf-8-sig").splitlines()
    header = lines[0].split("\t")
    found = read(path.read_bytes(), ReadOptions(10**6, columns=(tuple(header[:2]),)), "a.tsv")
    expected = [line.split("\t")[:2] for line in lines[1:]]
    assert [list(record.value.values()) for record in found if not record.problem] == expected
    dialogue = b'id\ttext\n1\t"Quite.\n2\tQuite so."\n3\t"Yes," he said.\n4\t"All."\n'
    values = [record.value for record in read(dialogue, name="a.tsv")]
    assert values == ['"Quite.', 'Quite so."', '"Yes," he said.', '"All."']


@pytest.mark.guarantee("quotes-in-tables")
@given(st.lists(st.tuples(cells, cells), max_size=6), st.integers(1, 9))
def test_the_rule_for_quotes_does_not_depend_on_how_a_file_is_read(rows: list[tuple[str, str]], size: int) -> None:
    data = written([["first", "text"], *map(list, rows)], delimiter="\t", lineterminator="\n")
    parts = (data[at : at + size] for at in range(0, len(data), size))
    assert are_quotes(parts) == are_quotes([data])


def test_several_columns_of_texts_are_named_in_the_error() -> None:
    complaint = r'no column "text" \(columns of text: title, body; all: title, body, n\): name .* `text_field`'
    with pytest.raises(PipelineError, match=complaint):
        read(b"title,body,n\nLoomings,Call me Ishmael.,1\n")
    with pytest.raises(PipelineError, match=r'no column "text" \(columns of text: Text, TEXT;'):
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
    found = read(path.read_bytes(), ReadOptions(10**6, "2", header=False))
    assert [record.value for record in found] == expected and len(found) == 1500


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize("delimiter", [",", ";"])
@pytest.mark.parametrize("line", ["Call me Ishmael.\n", "Call me Ishmael. "])
@pytest.mark.parametrize("header", [True, False])
def test_a_first_row_that_is_longer_than_the_head_is_read_whole(delimiter: str, line: str, header: bool) -> None:
    rows = [[line * 6000, "1"], ["Never mind\nhow long", "2"]]
    data = written([*([["text", "label"]] if header else []), *rows], delimiter=delimiter, quoting=csv.QUOTE_ALL)
    found = read(data, ReadOptions(10**6, "text" if header else "1", header=header))
    assert [record.value for record in found] == [row[0] for row in rows]


def test_a_table_whose_rows_are_all_longer_than_allowed_is_rejected() -> None:
    with pytest.raises(
        PipelineError, match=r"a.csv: its first rows are not readable, so that its columns are not known"
    ):
        read(b"a" * 2_000_000 + b"\nCall me Ishmael\n", ReadOptions(70_000, "1", header=False))


def test_a_first_line_that_is_a_text_is_not_lost_as_a_header() -> None:
    with pytest.raises(PipelineError, match="looks like a text, not like a column name: add `no_header`"):
        read(b"Call me Ishmael some years ago\nNever mind how long\n")
    whole = read(b"Call me Ishmael some years ago\nNever mind how long\n", ReadOptions(10**6, "1", header=False))
    assert len(whole) == 2


@pytest.mark.guarantee("records-counted")
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
    assert [record.offset for record in found if record.is_not_utf8] == [3]


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize(
    "rest", [b"", b'3,next\n4,"quoted"\n', b"3,next\n" * 1000], ids=["at the end", "before another quote", "far away"]
)
def test_an_unclosed_quote_is_an_error_that_names_its_line(rest: bytes) -> None:
    data = b'id,text\n1,"two\nlines"\n2,"Call me Ishmael.\n' + rest
    complaint = re.escape("a.csv: line 4: the row that begins there has a quote that is not closed")
    with pytest.raises(PipelineError, match=complaint):
        read(data, ReadOptions(1000))


def test_a_row_above_the_limit_is_bad_and_the_next_is_read() -> None:
    found = read(b"id,text\n1," + b"a" * 3_000_000 + b'\n2,"' + b"b" * 2000 + b'"\n3,c\n', ReadOptions(1000))
    assert [record.problem for record in found] == [
        "longer than 1,000 bytes: 3,000,003",
        "longer than 1,000 bytes: 2,005",
        "",
    ]
    assert found[2].value == "c" and len(found[0].raw) == 1000


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize("name", ["a.csv", "A.CSV.gz", "a.tsv", "a.tsv.gz", "A.TSV", "a.tar"])
def test_cells_with_any_line_breaks_and_spaces_are_read_as_a_writer_wrote_them(tmp_path: Path, name: str) -> None:
    texts = [
        "two\r\nlines",
        " a space",
        "a space ",
        "\ta tab\t",
        '"',
        '""',
        "\r\n",
        "a\n\nb",
        ' "odd" ',
        "plain",
        "\ufeffmark",
        "a,b",
    ]
    data = io.StringIO()
    csv.writer(data, delimiter="," if "csv" in name.lower() else "\t").writerows([["n", "text"], *enumerate(texts)])
    packed = data.getvalue().encode()
    packed = {"gz": gzip.compress, "tar": lambda table: tar({"b.tsv": table})}.get(name.rpartition(".")[2], bytes)(
        packed
    )
    for encoding in (None, "auto"):
        found = read_all({name: packed}, tmp_path, 10**9, reading=ReadOptions(10**6, encoding=encoding))
        assert [record.value for record in found] == texts


@pytest.mark.guarantee("quotes-in-tables")
def test_quotes_behind_thousands_of_rows_decide_for_every_reader_of_a_table(tmp_path: Path) -> None:
    texts = [
        *(f"Owl {number} hunts at night over the quiet fields" for number in range(3000)),
        'An owl said "hoot" to us all',
    ]
    path, data = tmp_path / "a.tsv", io.StringIO()
    csv.writer(data, delimiter="\t").writerows([["query", "n"], *((text, number) for number, text in enumerate(texts))])
    path.write_text(data.getvalue())
    assert [cells[0] for _, cells in csv_rows(path)][1:] == texts
    assert [record.value for record in read_all({"a.tsv": data.getvalue().encode()}, tmp_path, 10**9)] == texts
    assert set(texts) <= set(read_texts([str(path)]))
    plain = data.getvalue().replace('""hoot""', '"hoot"')
    path.write_text(plain)
    last = '"An owl said "hoot" to us all"'
    assert [*csv_rows(path)][-1][1][0] == last and last in set(read_texts([str(path)]))
    assert read_all({"a.tsv": plain.encode()}, tmp_path, 10**9)[-1].value == last


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz", "A.TSV.xz", "a.tar"])
def test_tabs_part_the_cells_of_a_tsv_however_many_commas_its_texts_have(tmp_path: Path, name: str) -> None:
    rows = b"".join(b'%d\tOwls, "quick", hunt.\n' % number for number in range(9))
    packed = {"gz": gzip.compress, "xz": lzma.compress, "tar": lambda table: tar({"b.tsv": table})}
    data = packed.get(name.rpartition(".")[2], bytes)(rows)
    found = read_all({name: data}, tmp_path, 10**9, reading=ReadOptions(10**6, header=False))
    assert [record.value for record in found] == ['Owls, "quick", hunt.'] * 9


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize("is_file", [True, False])
@pytest.mark.parametrize("num_rows", [0, 3, 7, 8, 40, 5000])
def test_all_of_a_table_is_looked_at_for_quotes_and_then_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_rows: int, is_file: bool
) -> None:
    monkeypatch.setattr(tables, "HEAD", 64)  # the header and 7 rows
    data = b"id\ttext\n" + b"".join(b"%d\towls%d\n" % (row % 10, row % 10) for row in range(num_rows))
    (tmp_path / "a.tsv").write_bytes(data)
    for is_head in (False, True):
        with (tmp_path / "a.tsv").open("rb") as file:
            lines = tables._Lines(file if is_file else io.BytesIO(data))
            looked = list(lines.parts(is_head))
            assert b"".join(looked) == (data[:64] if is_head else data)
            assert max(map(len, looked)) <= 64  # in bounded memory
            found = list(iter(lambda: lines.readline(1000), b""))  # noqa: B023
        assert found == data.splitlines(keepends=True)
