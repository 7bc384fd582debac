"""Numbers in fields that are stored with texts: exact in every format, or stored as texts, or refused."""

import functools
import io
import json
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clearspan.common.errors import PipelineError
from clearspan.common.parsing import exact_number
from clearspan.pipelines.builders.groups import group_of
from clearspan.pipelines.builders.kept_fields import KeptFields, types_of
from clearspan.pipelines.counter import RecordError
from clearspan.pipelines.readers.jsonl import JsonlFiles
from clearspan.pipelines.records import Input, ReadOptions, Record, Split
from tests.pipelines.packings import arrow, parquet, read_all

LONG = ["12345678901234567890", "12345678901234567891", "123456789012345678901234567890"]
"""Ids that neither int64 nor double holds; a double holds the same number for the first two."""
TEXTS = ["An owl hunts at night.", "Moss grows on the north side.", "A political party won in 1980."]


def json_rows(numbers: list[str]) -> list[str]:
    return [f'{{"text": {json.dumps(text)}, "id": {number}}}' for text, number in zip(TEXTS, numbers, strict=True)]


def parsed(line: str, field: str) -> dict:
    """Return a line of JSON as it is read where a field is kept."""
    piece = Split(Input("a.jsonl", len(line), "jsonl", None, ""), 0, None)
    (record,) = JsonlFiles().read(io.BytesIO(line.encode()), piece, ReadOptions(10**6, keep=(field,)))
    assert not record.problem
    return record.value


def table(ids: pa.Array) -> pa.Table:
    return pa.table({"text": TEXTS, "id": ids})


def decimals(numbers: list[str], kind: pa.DataType) -> pa.Array:
    return pa.array([Decimal(number) for number in numbers], kind)


FILES = {
    "lines.jsonl": "\n".join(json_rows(LONG)).encode(),
    "compact.jsonl": "\n".join(json_rows(LONG)).replace(": ", ":").encode(),
    "with NaN.jsonl": "\n".join(json_rows(LONG)).replace("}", ', "score": NaN}').encode(),
    "array.json": f"[{', '.join(json_rows(LONG))}]".encode(),
    "table.csv": "\n".join(["text,id", *map(",".join, zip(TEXTS, LONG, strict=True))]).encode(),
    "decimal.parquet": parquet(table(decimals(LONG, pa.decimal128(38, 0)))),
    "decimal.arrow": arrow(table(decimals(LONG, pa.decimal256(60, 0)))),
}


def stored(files: dict[str, bytes], folder: Path, *words: str) -> tuple[dict[str, str], list]:
    """Return the types of fields, and the values of the first field that are stored."""
    records = read_all(
        files, folder, 10**9, reading=ReadOptions(10**6, keep=tuple(word.split(":")[0] for word in words))
    )
    types = types_of(words, records)
    return types, [KeptFields(types).of(record)[0] for record in records]


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize("name", FILES)
def test_a_number_that_no_column_of_numbers_holds_is_stored_as_text(name: str, tmp_path: Path) -> None:
    assert stored({name: FILES[name]}, tmp_path, "id") == ({"id": "string"}, LONG)


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize("pack", [parquet, arrow])
def test_unsigned_integers_of_64_bits_are_stored_as_texts(pack, tmp_path: Path) -> None:
    ids = [1, 2**63, 2**64 - 1]
    name = {parquet: "a.parquet", arrow: "a.arrow"}[pack]
    assert stored({name: pack(table(pa.array(ids, pa.uint64())))}, tmp_path, "id")[1] == list(map(str, ids))


@pytest.mark.parametrize("pack", [parquet, arrow])
def test_uuids_and_json_are_stored_as_texts(pack, tmp_path: Path) -> None:
    ids = [uuid.UUID(int=number) for number in (7, 2**127, 12345678901234567890)]
    columns = {
        "text": TEXTS,
        "id": pa.array([each.bytes for each in ids], pa.uuid()),
        "meta": pa.ExtensionArray.from_storage(pa.json_(), pa.array(['{"year": 1980}', None, "[]"])),
    }
    name = {parquet: "a.parquet", arrow: "a.arrow"}[pack]
    data = pack(pa.table(columns))
    assert stored({name: data}, tmp_path, "id") == ({"id": "string"}, list(map(str, ids)))
    assert stored({name: data}, tmp_path, "meta") == ({"meta": "string"}, ['{"year": 1980}', None, "[]"])


def test_uuids_that_parquet_reads_as_bytes_are_stored_as_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in versions of pyarrow before 21."""
    monkeypatch.setattr(pq, "ParquetFile", functools.partial(pq.ParquetFile, arrow_extensions_enabled=False))
    ids = [uuid.UUID(int=7), None, uuid.UUID(int=2**127)]
    stream = io.BytesIO()
    column = pa.array([each and each.bytes for each in ids], pa.uuid())
    pq.write_table(table(column), stream, store_schema=False)
    found = stored({"a.parquet": stream.getvalue()}, tmp_path, "id")
    assert found == ({"id": "string"}, [each and str(each) for each in ids])


def test_an_interval_is_refused(tmp_path: Path) -> None:
    data = arrow(table(pa.array([(1, 2, 3)] * 3, pa.month_day_nano_interval())))
    with pytest.raises(PipelineError, match=r'its column "id" holds month_day_nano_interval: '):
        stored({"a.arrow": data}, tmp_path, "id")


def test_a_nested_or_differently_written_name_is_exact_too(tmp_path: Path) -> None:
    rows = [f'{{"text": "An owl.", "ID": {LONG[0]}, "meta": {{"key": {LONG[1]}}}}}']
    files = {"a.jsonl": rows[0].encode(), "b.json": f"[{rows[0]}]".encode()}
    assert stored(files, tmp_path, "id")[1] == LONG[:1] * 2
    assert stored(files, tmp_path, "meta.key")[1] == LONG[1:2] * 2


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize(
    ("last", "kind", "stored"),
    [("an owl", "string", "an owl"), (0.5, "double", 0.5), (2**63, "double", 2.0**63), (None, "int64", None)],
)
def test_the_type_of_a_field_is_that_of_the_last_of_many_records_too(last: object, kind: str, stored: object) -> None:
    """Whatever the field is called there, and in whichever file; other fields have types of their own."""
    values = [{"text": "An owl.", "year": year, "id": str(year)} for year in range(1500)]
    values += [{"text": "Moss.", "id": 7}, {"text": "It rains.", "Year": last, "id": "007"}]
    records = [Record(f"{number // 900}.jsonl", number, value, b"") for number, value in enumerate(values)]
    types = types_of(["year", "id"], records)
    assert types == {"year": kind, "id": "string"}
    found = [KeptFields(types).of(record) for record in records]
    assert found[-2:] == [(None, "7"), (stored, "007")]
    assert found[:-2] == [({"string": str}.get(kind, int)(year), str(year)) for year in range(1500)]


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize(
    ("numbers", "kind", "values"),
    [
        (["1", "9223372036854775807", "-9223372036854775808"], "int64", [1, 2**63 - 1, -(2**63)]),
        (["1", "0.5", "100000000000000000000"], "double", [1.0, 0.5, 1e20]),
        (["1", "0.5", "9007199254740993"], "string", ["1", "0.5", "9007199254740993"]),
        (["0.1", "0.10000000000000001", "0.7142857142857143"], "double", [0.1, 0.1, 0.7142857142857143]),
        (["0.1234567890123456789", "0.5", "1e400"], "string", ["0.1234567890123456789", "0.5", "1E+400"]),
        (["9007199254740993.0", "1", "2"], "string", ["9007199254740993.0", "1", "2"]),
        (["1e-400", "0.5", "2.5e-308"], "string", ["1E-400", "0.5", "2.5e-308"]),
        (["NaN", "Infinity", '"a"'], "string", [None, "Infinity", "a"]),
    ],
)
def test_the_type_of_a_field_holds_its_values(numbers: list[str], kind: str, values: list, tmp_path: Path) -> None:
    lines, array = "\n".join(json_rows(numbers)).encode(), f"[{', '.join(json_rows(numbers))}]".encode()
    for name, data in (("a.jsonl", lines), ("b.json", array)):
        assert stored({name: data}, tmp_path / name, "id") == ({"id": kind}, values)


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize("number", [*LONG, "9007199254740993", "9007199254740993.0"])
def test_a_whole_number_that_the_type_does_not_hold_is_refused(number: str) -> None:
    for written in (number, f'"{number}"'):
        value = parsed(f'{{"id": {written}}}', "id")
        with pytest.raises(RecordError, match=r"write id:string to keep all values as text"):
            KeptFields({"id": "double"}, ["id"]).of(Record("a.jsonl", 0, value, b""))


@pytest.mark.guarantee("traced-hits")
def test_a_fraction_is_rounded_only_where_the_user_chose_double() -> None:
    record = Record("a.jsonl", 0, parsed('{"score": 0.33333333333333333333}', "score"), b"")
    assert KeptFields({"score": "double"}, ["score"]).of(record) == (1 / 3,)
    with pytest.raises(RecordError, match=r'its "score" is 0\.33333333333333333333, not double'):
        KeptFields({"score": "double"}).of(record)


def test_digits_in_a_text_are_no_number() -> None:
    line = '{"score": 0.5, "text": "an owl: 10.0.0.1.10.0.0.1.10, a moss: 12345678901234567890"}'
    assert parsed(line, "score") == json.loads(line)


def test_groups_of_long_numbers_are_apart_and_nan_is_no_group() -> None:
    values = [parsed(f'{{"package": {number}}}', "package") for number in [*LONG, "NaN"]]
    assert [group_of(Record("a.jsonl", 0, value, b""), "package") for value in values] == [*LONG, ""]


@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(1, 40))
def test_a_float_in_any_number_of_its_digits_is_a_float_or_exact(value: float, digits: int) -> None:
    text = f"{value:.{digits - 1}e}"
    number = exact_number(text)
    assert number == (float(text) if isinstance(number, float) else Decimal(text))
    assert f"{number:.{digits - 1}e}" == text
    assert exact_number(repr(value)) == value
