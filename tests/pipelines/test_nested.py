"""Nested fields: `meta.text` is the field `text` of the object `meta`, in JSON and in structs of parquet and Arrow."""

import dataclasses
import functools
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from clearspan.pipelines.readers.columns import cell, dotted, nested, with_columns, with_nested
from clearspan.pipelines.readers.lines import lines
from clearspan.pipelines.readers.streams import DamagedFileError
from clearspan.pipelines.records import ReadOptions, Record
from tests.pipelines.conftest import Command, summary
from tests.pipelines.packings import arrow, parquet, read_all

ROWS = [
    {"id": 1, "meta": {"Title": "Owls", "deep": {"text": "Owls hunt at night."}}},
    {"id": 2, "meta": {"Title": None, "deep": {"text": "Rivers run cold."}}},
    {"id": 3, "meta": None},
]
FILES = {
    "a.jsonl": b"".join(json.dumps(row).encode() + b"\n" for row in ROWS),
    "a.json": json.dumps(ROWS).encode(),
    "a.parquet": parquet(pa.Table.from_pylist(ROWS)),
    "a.arrow": arrow(pa.Table.from_pylist(ROWS)),
}


def read(name: str, data: bytes, folder: Path, **options) -> list[Record]:
    return read_all({name: data}, folder, 10**9, reading=ReadOptions(10**6, **options))


@pytest.mark.guarantee("nested-fields")
@pytest.mark.parametrize("name", FILES)
def test_a_nested_field_is_read_by_the_names_on_the_way_in_any_letter_case(tmp_path: Path, name: str) -> None:
    found = read(name, FILES[name], tmp_path, field="meta.deep.text")
    values = [record.value["meta.deep.text"] if isinstance(record.value, dict) else record.value for record in found]
    assert values == ["Owls hunt at night.", "Rivers run cold.", None]
    assert not any(record.problem for record in found)
    wanted = ("META.title", "meta.deep.text")
    pairs = read(name, FILES[name], tmp_path, columns=(wanted,))
    assert [tuple(record.value[column] for column in wanted) for record in pairs] == [
        ("Owls", "Owls hunt at night."),
        (None, "Rivers run cold."),
        (None, None),
    ]


@pytest.mark.guarantee("nested-fields")
def test_a_field_of_the_whole_name_goes_before_a_nested_one(tmp_path: Path) -> None:
    rows = [{"meta.text": "whole", "meta": {"text": "nested"}}, {"meta": {"text": "nested"}}]
    data = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    found = read("a.jsonl", data, tmp_path, field="meta.text")
    assert [record.value["meta.text"] for record in found] == ["whole", "nested"]
    table = pa.Table.from_pylist(rows[:1])
    for name, packed in (("a.parquet", parquet(table)), ("a.arrow", arrow(table))):
        assert [record.value for record in read(name, packed, tmp_path, field="meta.text")] == ["whole"]


@pytest.mark.guarantee("nested-fields")
@pytest.mark.parametrize("name", FILES)
def test_the_commands_take_nested_fields_and_tell_which_exist(direct: Command, tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(FILES[name])
    words = ("--input", tmp_path / name)
    kept = summary(direct("documents", *words, "--text-field", "meta.deep.text", "--min-tokens", "1", "--json"))
    assert kept["kept"] == 2 and kept["filtered"]["empty"] == 1
    pairs = direct("pairs", *words, "--fields", "meta.title,meta.deep.text", "--output", tmp_path / "pairs", "--json")
    assert summary(pairs)["kept"] == 1
    for option in (("documents", "--text-field", "meta.body"), ("pairs", "--fields", "meta.title,meta.body")):
        told = direct(option[0], *words, *option[1:], "--output", tmp_path / "none")
        assert told.code == 1 and "id, meta.Title, meta.deep.text" in told.err, told.err
    named = direct("documents", *words, "--text-field", "meta.deep", "--output", tmp_path / "none")
    assert named.code == 1 and '"meta.deep"' in named.err


META = {
    "meta": {"Text": "owls", "deep": {"a.b": 1, "Zero": 0}, "none": None},
    "a.b": {"c": "rivers"},
    "id": 7,
    "n": None,
}


@pytest.mark.guarantee("nested-fields")
@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("meta.text", ["meta", "Text"]),
        ("META.TEXT", ["meta", "Text"]),
        (" Meta . text ", ["meta", "Text"]),
        ("meta.deep", ["meta", "deep"]),
        ("meta.deep.a.b", ["meta", "deep", "a.b"]),
        ("meta.deep.zero", ["meta", "deep", "Zero"]),
        ("a.b.c", ["a.b", "c"]),
        ("A.B.C", ["a.b", "c"]),
        ("meta.none", ["meta", "none"]),
        ("meta.none.any", ["meta", "none"]),
        ("n.any.depth", ["n"]),
        ("meta.missing", None),
        ("meta.text.more", None),
        ("id.more", None),
        ("missing.text", None),
        ("a.b.d", None),
        ("meta.deep.a", None),
        ("meta.", None),
        (".text", None),
        ("a.b", None),
        ("A.B", None),
        ("meta", None),
    ],
)
def test_a_name_with_dots_leads_to_a_field_by_the_names_as_they_are_written(name: str, path: list[str] | None) -> None:
    assert nested(META, name) == path


@pytest.mark.guarantee("nested-fields")
def test_a_field_on_the_way_may_be_written_with_more_or_fewer_characters() -> None:
    fields = {" Meta ": {"Text ": "owls"}, "Straße": {"Nummer": 7}}
    assert nested(fields, "meta.text") == [" Meta ", "Text "]
    assert nested(fields, "STRASSE.NUMMER") == ["Straße", "Nummer"]


@pytest.mark.guarantee("nested-fields")
def test_of_several_ways_to_part_a_name_the_longest_field_is_taken() -> None:
    fields = {"a": {"b": {"c": "short"}, "b.c": "long"}, "a.b": {"c": "first"}}
    assert nested(fields, "a.b.c") == ["a.b", "c"]
    assert nested({"a": fields["a"]}, "a.b.c") == ["a", "b.c"]
    deep = {"a": {"b": {}}, "a.b.c.d": {"e.f.g.h": {"i.j": "last"}, "e": {}}}
    assert nested(deep, "a.b.c.d.e.f.g.h.i.j") == ["a.b.c.d", "e.f.g.h", "i.j"]
    steps = [f"n{number}" for number in range(20)]
    deepest: dict = functools.reduce(lambda inner, step: {step: inner}, reversed(steps), {"text": "owls"})
    assert nested(deepest, ".".join([*steps, "text"])) == [*steps, "text"]
    assert nested({"meta": {"text": 1}, "Meta": {"text": 2}}, "Meta.text") == ["Meta", "text"]
    assert nested({"meta": {"text": 1}, "Meta": {"text": 2}}, "META.text") is None
    assert nested({"met": {".text": 1, "text": 2}, "metaX": {"text": 3}}, "meta.text") is None


@pytest.mark.guarantee("nested-fields")
def test_nested_fields_are_added_to_objects_and_nothing_else_changes() -> None:
    whole = Record("a.jsonl", 0, {"meta": {"text": "owls", "title": ""}, "id": 1}, b"raw", number=3)
    values = [whole.value, {"id": 2}, {"meta": None}, {"meta.text": "own", "meta": {"text": "inner"}}, "a text", None]
    values += [{"meta": {"title": "a"}}, {"meta": {"text": "late"}}, {"meta": {}, "id": 3}]  # their fields come and go
    records = [dataclasses.replace(whole, value=value) for value in values]
    found = list(with_nested(iter(records), ["meta.text", "meta.title", "x.y"]))
    assert [record.value for record in found] == [
        {**values[0], "meta.text": "owls", "meta.title": ""},
        {"id": 2},
        {"meta": None, "meta.text": None, "meta.title": None},
        {"meta.text": "own", "meta": {"text": "inner"}},
        "a text",
        None,
        {"meta": {"title": "a"}, "meta.title": "a"},
        {"meta": {"text": "late"}, "meta.text": "late"},
        {"meta": {}, "id": 3},
    ]
    assert [dataclasses.replace(record, value=None) for record in found] == [dataclasses.replace(whole, value=None)] * 9
    assert whole.value == {"meta": {"text": "owls", "title": ""}, "id": 1}


@pytest.mark.guarantee("nested-fields")
@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, []),
        ({"field": "text"}, []),
        ({"field": "meta.text"}, ["meta.text"]),
        ({"columns": (("a.b", "c"), ("d.e", "a.b"))}, ["a.b", "d.e"]),
        ({"keep": ("year", "meta.year", "meta.author")}, ["meta.year", "meta.author"]),
        ({"field": "m.t", "columns": (("a.b",),), "keep": ("a.b", "k.l", "m.t")}, ["m.t", "a.b", "k.l"]),
    ],
)
def test_names_with_dots_are_looked_for_wherever_the_user_gives_them(options: dict, names: list[str]) -> None:
    assert dotted(ReadOptions(**options)) == names


@pytest.mark.guarantee("nested-fields")
def test_columns_of_a_table_are_taken_by_their_paths_with_the_nulls_on_the_way() -> None:
    rows = [{"id": 1, "m": {"d": {"t": "owls"}}}, {"id": None, "m": {"d": None}}, {"id": 3, "m": None}]
    batch = pa.RecordBatch.from_pylist(rows)
    found = with_columns(batch, {"m.d.t": ["m", "d", "t"], "number": ["id"], "m.d": ["m", "d"]})
    assert found.schema.names == ["m.d.t", "number", "m.d"]
    assert found.to_pydict() == {
        "m.d.t": ["owls", None, None],
        "number": [1, None, 3],
        "m.d": [{"t": "owls"}, None, None],
    }


@pytest.mark.guarantee("nested-fields")
def test_a_cell_is_its_text_or_null_and_too_long_or_broken_ones_are_bad() -> None:
    assert cell("a.arrow", 4, None, 10) == Record("a.arrow", 4, None, b"", number=5)
    for text in ("", "Größe", "x" * 10):
        data = text.encode()
        assert cell("a.arrow", 4, pa.py_buffer(data), 10) == Record("a.arrow", 4, text, data, number=5)
    long = cell("a.arrow", 0, pa.py_buffer(b"x" * 11), 10)
    assert (long.problem, long.value, long.number) == ("longer than 10 bytes", None, 1)
    assert len(cell("a.arrow", 0, pa.py_buffer(b"x" * 100), 10).raw) == 11  # of a cell of gigabytes, no more is copied
    latin = cell("a.arrow", 2, pa.py_buffer("Größe".encode("cp1252")), 10)
    assert latin.problem == "invalid UTF-8 at byte 2 of the text" and latin.is_not_utf8
    with pytest.raises(DamagedFileError, match="more than 512 zero bytes in a row at byte 3 of row 1,234"):
        cell("a.arrow", 1234, pa.py_buffer(b"abc" + bytes(600)), 1000)


def lines_of(data: bytes, start: int = 0, end: int | None = None, before: int = 0) -> list[tuple]:
    return list(lines(io.BytesIO(data), 20, start, end, before))


@pytest.mark.guarantee("nested-fields")
def test_byte_order_marks_of_joined_files_are_no_part_of_lines() -> None:
    mark = "\ufeff".encode()
    data = mark + b"one\n" + mark + b"two\r\n" + mark + b"\n" + b"th" + mark + b"ree\n" + mark + b" \n" + b"four"
    wide = "ｆｉｖｅ".encode()  # begins with a byte of the mark
    assert lines_of(data + b"\n" + mark + wide + b"\n" + wide) == [
        (1, 0, b"one\n", ""),
        (2, 7, b"two\r\n", ""),
        (4, 19, b"th" + mark + b"ree\n", ""),
        (6, 33, b"four\n", ""),
        (7, 38, wide + b"\n", ""),
        (8, 54, wide, ""),
    ]
    assert lines_of(mark) == lines_of(b"\n" + mark) == []


@pytest.mark.guarantee("nested-fields")
def test_a_line_belongs_to_the_piece_in_which_it_starts() -> None:
    data = b"one\n\ntwo\nthree\n"
    assert lines_of(data) == [(1, 0, b"one\n", ""), (3, 5, b"two\n", ""), (4, 9, b"three\n", "")]
    for cut in range(1, len(data)):
        before = data[:cut].count(b"\n")
        assert lines_of(data, 0, cut) + lines_of(data, cut, None, before) == lines_of(data), cut
        assert lines_of(data, 0, cut) + lines_of(data, cut, len(data), before) == lines_of(data), cut
    assert lines_of(b"one\rtwo\r") == [(1, 0, b"one\n", ""), (2, 4, b"two\n", "")]
    with pytest.raises(DamagedFileError, match="it ends at byte 15, before byte 16"):
        lines_of(data, 0, 16)


@pytest.mark.guarantee("nested-fields")
def test_of_a_line_above_the_limit_the_beginning_is_kept_and_the_next_is_read() -> None:
    found = lines_of(b"x" * 20 + b"\n" + b"y" * 5000 + b"\nnext\n")
    assert found == [
        (1, 0, b"x" * 20 + b"\n", ""),
        (2, 21, b"y" * 21, "longer than 20 bytes: 5,001"),
        (3, 5022, b"next\n", ""),
    ]
    assert lines_of(b"x" * 20) == [(1, 0, b"x" * 20, "")]
    (long,) = lines(io.BytesIO(b" " * 5000), 2000)
    assert long == (1, 0, b" " * 1000, "longer than 2,000 bytes: 5,000")
    for data, at in ((b"a\n" + bytes(600), 2), (b"a" * 30 + bytes(600), 30)):
        with pytest.raises(DamagedFileError, match=f"zero bytes in a row at byte {at:,}"):
            list(lines(io.BytesIO(data), 1000 if at == 2 else 20))
    with pytest.raises(DamagedFileError, match=r"zero bytes in a row at byte 2$"):
        list(lines(io.BytesIO(b"ab" + bytes(600) + b"\nnext"), 1000, start=1))
