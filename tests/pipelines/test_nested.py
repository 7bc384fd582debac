"""Nested fields: `meta.text` is the field `text` of the object `meta`, in JSON and in structs of parquet and Arrow."""

import json
from pathlib import Path

import pyarrow as pa
import pytest

from clearspan.pipelines.records import Reading, Record
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
    return read_all({name: data}, folder, 10**9, reading=Reading(10**6, **options))


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
