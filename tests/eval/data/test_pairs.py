"""The user's csv and tsv files of pairs, as people and programs write them; each malformed file has its message."""

from pathlib import Path

import pytest

from clearspan.common.records import DataError
from clearspan.eval.data.sts_data import ScoredPairs, read_pairs


def written(folder: Path, content: str | bytes, name: str = "pairs.csv") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(pairs: ScoredPairs) -> list[tuple[str, str, float]]:
    return list(zip(pairs.left, pairs.right, pairs.gold.tolist(), strict=True))


def test_a_quoted_sentence_may_hold_commas_quotes_and_line_ends(tmp_path: Path) -> None:
    path = written(tmp_path, b'"Er sagte: ""Ja, gern.""",Ja,3.5\r\n"erst\ndann",Nein,1\r\n')
    assert rows(read_pairs(path)) == [('Er sagte: "Ja, gern."', "Ja", 3.5), ("erst dann", "Nein", 1.0)]


@pytest.mark.parametrize("header", ["Score", "similarity", "GOLD", "label", "similarity_score", "gold label"])
def test_a_header_is_known_by_its_third_cell(tmp_path: Path, header: str) -> None:
    assert rows(read_pairs(written(tmp_path, f"Frage,Antwort,{header}\nWer?,Ich.,4\n"))) == [("Wer?", "Ich.", 4.0)]


@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_byte_order_mark_empty_lines_and_no_last_line_end_are_no_matter(
    tmp_path: Path, mark: bytes, end: bytes
) -> None:
    path = written(tmp_path, mark + end.join([b'"ein Haus",ein Heim,4', b"", b"ein Hund,eine Katze,1", b"", b""]))
    assert rows(read_pairs(path)) == [("ein Haus", "ein Heim", 4.0), ("ein Hund", "eine Katze", 1.0)]
    assert rows(read_pairs(written(tmp_path, mark + b"a,b,score" + end + b"c,d,1"))) == [("c", "d", 1.0)]


@pytest.mark.guarantee("quotes-in-tables")
def test_a_tsv_holds_commas_and_quotes_as_they_are_or_those_of_a_writer(tmp_path: Path) -> None:
    path = written(tmp_path, 'a, b\t"No," she said\t3\n"Quite so."\t5" wide\t2\n', "pairs.TSV")
    assert rows(read_pairs(path)) == [("a, b", '"No," she said', 3.0), ('"Quite so."', '5" wide', 2.0)]
    path = written(tmp_path, 'a, b\t"""No,"" she said"\t3\n"it ""is"""\t"two\nlines"\t2\n', "writer.tsv")
    assert rows(read_pairs(path)) == [("a, b", '"No," she said', 3.0), ('it "is"', "two lines", 2.0)]


@pytest.mark.guarantee("quotes-in-tables")
@pytest.mark.parametrize("delimiter", [";", "|", "\t"])
def test_a_csv_may_have_other_delimiters_than_commas(tmp_path: Path, delimiter: str) -> None:
    lines = [("first", "second", "score"), ("Owls hunt, at night", "Owls hunt", "4.5"), ("Dogs", "Cats", "1")]
    path = written(tmp_path, "".join(f"{delimiter.join(line)}\n" for line in lines), "pairs.csv")
    assert rows(read_pairs(path)) == [("Owls hunt, at night", "Owls hunt", 4.5), ("Dogs", "Cats", 1.0)]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("a,b,1\nno,score\n", r"csv:2: .*commas.* 2 fields"),
        ('"a\nb",c,1\nd,e,f,2\n', r"csv:3: .* 4 fields"),
        ("a,b,score,who\nc,d,1\n", r"csv:2: .*header.* 3 fields"),
        ("a,b,1\nsentence1,sentence2,score\n", r"csv:2: expected a number.*'score'"),
        ("a,b,1\nc,d,1_0\n", r"csv:2: expected a number.*'1_0'"),
        ("a,b,inf\n", r"csv:1: expected a number"),
        ("a,b,\n", r"csv:1: expected a number.*''"),
        ('a,b,1\n"c,d,2\ne,f,3\n', r"csv:2: not a csv row"),
        (b"\xff\xfea\x00", r"csv:1: not UTF-8"),
        ("", r"csv: holds no scored pair"),
    ],
)
def test_what_is_no_row_is_named_with_file_and_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError, match=message) as error:
        read_pairs(written(tmp_path, content))
    assert "\n" not in str(error.value)
