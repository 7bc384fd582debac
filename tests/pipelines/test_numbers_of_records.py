"""Numbers of records and values of fields, of which hits are made: functions alone, on all cuts of small files."""

import io
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearspan.common.errors import PipelineError
from clearspan.common.progress import ProgressBar
from clearspan.pipelines.builders.kept_fields import FieldError, _type_of, _value
from clearspan.pipelines.readers import lines as of_lines
from clearspan.pipelines.readers.lines import lines
from clearspan.pipelines.readers.streams import BOM, HOLE, DamagedFileError
from clearspan.pipelines.records import Input, Split
from clearspan.pipelines.units import numbering
from clearspan.pipelines.units.numbering import _counts, numbered
from clearspan.pipelines.units.plan import Unit

MOST = 12
TEXT = BOM + b"an owl\n\n \t \r\n" + BOM + b"moss\n" + b"a" * MOST + b"\n" + b"b" * 30 + b"\n" + BOM + b"\n" + b"rain\n"
"""Lines: with a mark before them, empty, blank, of the most bytes, longer."""


def by_split(data: bytes, start: int, end: int | None) -> list[tuple[int, int, bytes, str]]:
    """What `lines` gives, from all of the file."""
    found, offset = [], 0
    for number, line in enumerate(data.splitlines(keepends=True), 1):
        if offset >= start and (end is None or offset < end):
            if len(line.rstrip(b"\n")) > MOST:
                found.append((number, offset, line[:5], f"longer than {MOST} bytes: {len(line)}"))
            elif line.removeprefix(BOM).strip():
                found.append((number, offset, line.removeprefix(BOM), ""))
        offset += len(line)
    return found


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize("end_of_text", [b"snow\n", b"snow", b"c" * MOST, b"c" * (MOST + 1), b"\n\n"])
def test_a_line_has_its_number_and_its_offset_wherever_a_file_is_cut(
    end_of_text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(of_lines, "HEAD_BYTES", 5)
    data = TEXT + end_of_text
    for start in range(len(data)):
        before = data[:start].count(b"\n")
        for end in (None, *range(start + 1, len(data) + 1, 1 + start % 3)):
            found = list(lines(io.BytesIO(data), MOST, start, end, before))
            assert found == by_split(data, start, end), (start, end)
    assert list(lines(io.BytesIO(data), MOST)) == by_split(data, 0, None)


@pytest.mark.guarantee("traced-hits")
def test_lines_that_end_with_cr_alone_are_lines_of_a_file_that_is_not_cut() -> None:
    data = b"an owl\rmoss\rrain\r"
    assert [line[:3] for line in lines(io.BytesIO(data), 99)] == [
        (1, 0, b"an owl\n"),
        (2, 7, b"moss\n"),
        (3, 12, b"rain\n"),
    ]
    assert [line[2] for line in lines(io.BytesIO(data), 99, 0, len(data))] == [data]


@pytest.mark.guarantee("traced-hits")
def test_a_file_that_ends_too_early_or_has_a_hole_is_damaged() -> None:
    for start in (0, 3, 8):
        with pytest.raises(DamagedFileError, match=r"^it ends at byte 12, before byte 20"):
            list(lines(io.BytesIO(b"an owl\nmoss\n"), 99, start, 20))
    for most, before in ((9999, 14), (3, 14)):
        with pytest.raises(DamagedFileError, match=f"zero bytes in a row at byte {before}"):
            list(lines(io.BytesIO(b"an owl\nin snow" + HOLE + b"\n"), most))
    with pytest.raises(DamagedFileError, match="zero bytes in a row at byte 14"):
        list(lines(io.BytesIO(b"an owl\nin snow" + HOLE + b"\n"), 99, 10))
    with pytest.raises(DamagedFileError, match="zero bytes in a row at byte 3"):
        list(lines(io.BytesIO(b"owl" + HOLE + b"\n"), 300))


@pytest.mark.guarantee("traced-hits")
def test_a_line_is_as_long_as_allowed_also_where_it_is_blank_and_nothing_but_a_mark_is_no_line() -> None:
    for length in (MOST - 1, MOST, MOST + 1, MOST + 2, 3000):
        for letter in (b"x", b" "):
            problem = f"longer than {MOST} bytes: {length + 1:,}" if length > MOST else ""
            found = [each[3] for each in lines(io.BytesIO(letter * length + b"\n"), MOST)]
            assert found == ([problem] if problem or letter == b"x" else [])
    assert list(lines(io.BytesIO(BOM), MOST)) == []
    assert [line for _, _, line, _ in lines(io.BytesIO(BOM + b"owl\n" + BOM), MOST)] == [b"owl\n"]


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize("buffer", [1, 3, 4096])
def test_line_ends_are_counted_up_to_each_place(buffer: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numbering, "BUFFER_BYTES", buffer)
    (tmp_path / "a.jsonl").write_bytes(TEXT)
    places = [len(TEXT), 9, 30, 1, 10, 31]
    with ProgressBar(len(TEXT), "counting lines", True) as bar:
        assert _counts(str(tmp_path / "a.jsonl"), places, bar) == {place: TEXT[:place].count(b"\n") for place in places}


@pytest.mark.guarantee("traced-hits")
def test_each_piece_that_begins_within_a_file_of_lines_gets_the_number_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "more").mkdir()
    contents = {"a.jsonl": TEXT, "more/b.txt": b"rain\n" * 9, "c.parquet": b"\n" * 40, "d.jsonl": b"moss\n" * 4}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    formats = {".txt": "lines", ".parquet": "parquet", ".jsonl": "jsonl"}

    def piece(name: str, start: int, end: int | None) -> Split:
        return Split(Input(name, len(contents[name]), formats[Path(name).suffix], None, ""), start, end)

    cut = [
        [piece("a.jsonl", 0, 9)],
        [piece("a.jsonl", 9, 40), piece("a.jsonl", 40, None), piece("more/b.txt", 0, 10)],
        [piece("more/b.txt", 10, 44), piece("c.parquet", 0, 20)],
        [piece("c.parquet", 20, None), piece("more/b.txt", 44, None), piece("d.jsonl", 0, None)],
    ]
    units = [Unit(number, tuple(pieces)) for number, pieces in enumerate(cut)]
    opened: list[str] = []
    usual = numbering._counts
    monkeypatch.setattr(numbering, "_counts", lambda path, *more: opened.append(Path(path).name) or usual(path, *more))
    found = numbered(str(tmp_path), iter(units), quiet=True)
    assert [[each.lines for each in unit.splits] for unit in found] == [
        [0],
        [TEXT[:9].count(b"\n"), TEXT[:40].count(b"\n"), 0],
        [2, 0],
        [0, 8, 0],
    ]
    assert [unit.number for unit in found] == [0, 1, 2, 3] and opened == ["a.jsonl", "b.txt"]
    assert [each.input.name for unit in found for each in unit.splits] == [
        each.input.name for one in cut for each in one
    ]
    assert capsys.readouterr().err == ""


@pytest.mark.guarantee("traced-hits")
def test_files_of_one_name_and_one_size_are_counted_each_for_itself_and_anew_after_an_edit(tmp_path: Path) -> None:
    """They are cut at the same places, as files of equal parts of a crawl are."""
    names = ["2024/part-0.jsonl", "2024/Part-0.jsonl", "2025/part-0.jsonl", "part-0.jsonl"]
    every = {name: step for step, name in enumerate(names, 2)}
    for turn in range(2):
        for name, step in every.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_bytes((b"x" * (step + turn) + b"\n") * 60)
        places = [0, 41, 100]
        units = [
            Unit(number, tuple(Split(Input(name, 999, "jsonl", None, ""), start, None) for name in names))
            for number, start in enumerate(places)
        ]
        found = numbered(str(tmp_path), units, quiet=True)
        assert [[piece.lines for piece in unit.splits] for unit in found] == [
            [start // (step + turn + 1) for step in every.values()] for start in places
        ]


BIG = 2**63


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], "string"),
        ([True, False], "bool"),
        ([True, 3], "string"),
        (["007", "3"], "string"),
        ([3, "4"], "string"),
        ([3, True], "string"),
        (["an owl", 3], "string"),
        ([3, "an owl"], "string"),
        ([3, -4, np.int32(5)], "int64"),
        ([BIG - 1, -BIG], "int64"),
        ([3, BIG], "double"),
        ([-BIG - 1], "string"),
        ([3, BIG + 1], "string"),
        ([3, 0.5], "double"),
        ([0.5, 3], "double"),
        ([3, math.nan], "double"),
        ([math.inf], "double"),
        ([3, 2**53 + 1, 0.5], "string"),
        ([0.5, 2**53 + 1], "string"),
        ([Decimal("0.1"), 3], "string"),
        ([3, 10**400], "string"),
        ([10**400, 0.5], "string"),
        ([*range(2000), "an owl"], "string"),
        ([*range(2000), 0.5], "double"),
        ([*range(2000), BIG + 1], "string"),
        ([*[True] * 2000, 3], "string"),
    ],
)
def test_the_type_of_a_field_is_that_of_all_its_values(values: list[Any], kind: str) -> None:
    assert _type_of("year", values, "keep_fields") == kind


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize("values", [[["owl"]], [3, "an owl", ["owl"]], [True, ["owl"], {}], [["owl"], 3]])
def test_a_field_that_holds_a_list_is_named(values: list[Any]) -> None:
    with pytest.raises(PipelineError, match='`keep_fields`: "tags" holds an array'):
        _type_of("tags", values, "keep_fields")


ABSENT: Any = object()


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize(
    ("value", "kind", "stored"),
    [
        *((ABSENT, kind, None) for kind in ("string", "int64", "double", "bool")),
        *((None, kind, None) for kind in ("string", "int64", "double", "bool")),
        *((math.nan, kind, None) for kind in ("string", "int64", "double", "bool")),
        ("an owl", "string", "an owl"),
        (" 3 ", "string", " 3 "),
        ("nan", "string", "nan"),
        ("", "string", ""),
        *((text, "string", text) for text in ("007", "+1", "1e2", "0x1F", "True", "NULL", "TRUE", "Owl", "OWL")),
        *((text, "string", text) for text in ("cafe\u0301", "caf\u00e9", "\u212b", "\ufb01", "STRASSE stra\u00dfe")),
        *((text, "string", text) for text in ("two\r\nlines", "two\nlines\n", "\u3000owl\u00a0", "\ufeffowl", "o\0wl")),
        *((text, "string", text) for text in ("a  b\tc", "\U0001f989\u200b", "<b>owl</b> &amp;", "owl " * 50_000)),
        (3, "string", "3"),
        (0.5, "string", "0.5"),
        (True, "string", "true"),
        (math.inf, "string", "Infinity"),
        (Decimal("0.10"), "string", "0.10"),
        (BIG, "string", str(BIG)),
        (True, "bool", True),
        (False, "bool", False),
        (3, "int64", 3),
        ("3", "int64", 3),
        (" -4 ", "int64", -4),
        (3.0, "int64", 3),
        (Decimal(7), "int64", 7),
        (BIG - 1, "int64", BIG - 1),
        (-BIG, "int64", -BIG),
        ("", "int64", None),
        ("  ", "double", None),
        (0.5, "double", 0.5),
        ("0.5", "double", 0.5),
        (3, "double", 3.0),
        (BIG, "double", float(BIG)),
    ],
)
def test_a_value_is_stored_as_the_type_of_its_field(value: Any, kind: str, stored: Any) -> None:
    record = {"text": "An owl.", "Year": 1980} if value is ABSENT else {"text": "An owl.", "born": value}
    found = _value(record, "born", kind, False, "")
    assert found == stored and type(found) is type(stored)


@pytest.mark.guarantee("traced-hits")
def test_a_field_is_found_by_its_whole_name_among_fields_of_similar_names() -> None:
    """Readers give nested fields by their whole names."""
    record = {
        "url": "https://owls.example",
        "meta.url": "https://herons.example",
        "meta.deep.url": 7,
        "meta.Year": 1980,
        "year": 2001,
        "meta_url": "moss",
        "urls": "rain",
    }
    expected = {"meta.url": "https://herons.example", "url": "https://owls.example", "meta.deep.url": "7"}
    expected |= {"meta_url": "moss", "year": "2001", "meta.Year": "1980", "urls": "rain"}
    assert {name: _value(record, name, "string", False, "") for name in expected} == expected
    for absent in ("deep.url", "other.url", "meta.id", "id", "ur"):
        assert _value(record, absent, "string", False, "") is None


@pytest.mark.guarantee("traced-hits")
def test_line_ends_are_counted_up_to_the_end_of_a_large_file(tmp_path: Path) -> None:
    ends = [5, 70_000, 1 << 20, 20_000_000, 40_000_000, 70_000_000]
    with (tmp_path / "a.jsonl").open("wb") as stream:
        for end in ends:
            stream.seek(end)
            stream.write(b"\n")
    places = [place for end in ends for place in (end, end + 1)]
    with ProgressBar(ends[-1], "counting lines", True) as bar:
        found = _counts(str(tmp_path / "a.jsonl"), places, bar)
    assert found == {place: sum(end < place for end in ends) for place in places}


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize(
    ("value", "kind", "shown"),
    [
        (["owl"], "string", "an array"),
        ({}, "string", "an object"),
        (["owl"], "int64", "an array"),
        ("an owl", "int64", "a string"),
        ("an owl", "double", "a string"),
        ("true", "bool", "a string"),
        ("", "bool", "a string"),
        (1, "bool", "1"),
        (0, "bool", "0"),
        (True, "int64", "true or false"),
        (True, "double", "true or false"),
        (0.5, "int64", "0.5"),
        (BIG, "int64", str(BIG)),
        (-BIG - 1, "int64", str(-BIG - 1)),
        (2**53 + 1, "double", str(2**53 + 1)),
        (str(2**53 + 1), "double", "a string"),
        (Decimal("0.1000000000000000000001"), "double", "0.1000000000000000000001"),
        (Decimal(2**53 + 1), "double", str(2**53 + 1)),
        (math.inf, "double", "inf"),
        (math.inf, "int64", "inf"),
        (-math.inf, "int64", "-inf"),
    ],
)
def test_a_value_of_another_type_is_refused(value: Any, kind: str, shown: str) -> None:
    with pytest.raises(FieldError) as error:
        _value({"born": value}, "born", kind, False, ", in a new --output")
    end = "write born:string to keep all values as text, in a new --output"
    assert str(error.value) == f'its "born" is {shown}, not {kind} as in the first records: {end}'
    assert error.value.field == "born"


@pytest.mark.guarantee("traced-hits")
def test_only_a_fraction_is_rounded_and_only_if_the_user_chose_double() -> None:
    fraction = Decimal("0.1000000000000000000001")
    assert _value({"born": fraction}, "born", "double", True, "") == 0.1
    for whole in (2**53 + 1, Decimal(2**53 + 1)):
        with pytest.raises(FieldError, match="not double"):
            _value({"born": whole}, "born", "double", True, "")


@pytest.mark.guarantee("traced-hits")
def test_half_a_surrogate_pair_is_refused_in_a_field() -> None:
    with pytest.raises(FieldError, match=r'surrogate .* 3 .*"born"'):
        _value({"born": "owl\ud83e"}, "born", "string", False, "")
