"""Parquet: the choice of the column, and the refusal of damaged or enormous tables."""

import io
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers import read_splits
from clearspan.pipelines.records import ReadOptions
from clearspan.pipelines.units.plan import cut, describe
from tests.pipelines.packings import numbers, parquet, read_all


def test_tables_without_a_clear_column_say_what_there_is(texts: list[str], tmp_path: Path) -> None:
    two = parquet({"title": pa.array(texts[:3]), "body": pa.array(texts[:3]), "n": numbers(texts[:3])})
    complaint = r'no column "text" \(columns of text: title, body; all: title, body, n\): name .* `text_field`'
    with pytest.raises(PipelineError, match=complaint):
        read_all({"a.parquet": two}, tmp_path, 10**9)
    entries = cut(str(tmp_path), describe(str(tmp_path), {"a.parquet": len(two)}, ReadOptions()), 10**9)
    named = list(read_splits(str(tmp_path), entries[0].splits, ReadOptions(10**6, "body")))
    assert [record.value for record in named] == texts[:3]
    with pytest.raises(PipelineError, match='column "n" holds int64, not text'):
        list(read_splits(str(tmp_path), entries[0].splits, ReadOptions(10**6, "n")))


def test_two_columns_of_one_name_are_an_error(texts: list[str], tmp_path: Path) -> None:
    data = io.BytesIO()
    pq.write_table(pa.table([pa.array(texts[:3])] * 2, names=["text", "text"]), data)
    with pytest.raises(PipelineError, match=r'a\.parquet: 2 columns are named "text": keep one'):
        read_all({"a.parquet": data.getvalue()}, tmp_path, 10**9)


@pytest.mark.guarantee("nested-fields")
@pytest.mark.parametrize("kind", [pa.string_view(), pa.large_string(), pa.dictionary(pa.int32(), pa.large_string())])
def test_text_of_every_kind_of_arrow_is_text(texts: list[str], tmp_path: Path, kind: pa.DataType) -> None:
    data = parquet({"n": numbers(texts[:9]), "content": pa.array(texts[:9]).cast(kind)})
    assert [record.value for record in read_all({"a.parquet": data}, tmp_path, 10**9)] == texts[:9]


@pytest.mark.guarantee("nested-fields")
@pytest.mark.parametrize("kind", [pa.binary_view(), pa.large_binary(), pa.dictionary(pa.int32(), pa.binary())])
def test_a_named_column_of_bytes_is_text(texts: list[str], tmp_path: Path, kind: pa.DataType) -> None:
    data = parquet({"text": pa.array([text.encode() for text in texts[:9]]).cast(kind)})
    assert [record.value for record in read_all({"a.parquet": data}, tmp_path, 10**9)] == texts[:9]


def test_a_hole_in_a_table_is_damage(texts: list[str], tmp_path: Path) -> None:
    data = parquet({"text": pa.array(texts[:9])}, compression="none", use_dictionary=False)
    damaged = data.replace(texts[2][100:700].encode(), bytes(len(texts[2][100:700].encode())))
    with pytest.raises(PipelineError, match=r"a\.parquet: damaged .*zero bytes .* byte 100 of row 2"):
        read_all({"a.parquet": damaged}, tmp_path, 10**9)


@pytest.mark.guarantee("nested-fields")
def test_bad_bytes_in_a_table_are_bad_rows_and_nulls_are_none(tmp_path: Path) -> None:
    data = parquet({"text": pa.array([b"good", None, "naïve".encode("latin-1"), b"\0nul"], pa.binary())})
    found = read_all({"a.parquet": data}, tmp_path, 10**9)
    assert [record.problem for record in found] == ["", "", "invalid UTF-8 at byte 2 of the text", ""]
    assert found[1].value is None
    assert [record.source for record in found] == [f"a.parquet:{row}" for row in range(4)]
    assert found[3].value == "\0nul"


def test_that_a_cell_is_not_utf8_is_known_of_its_row(tmp_path: Path) -> None:
    texts = pa.array([b"good", "naïve".encode("latin-1")], pa.binary())
    data = parquet({"question": texts, "answer": pa.array(["yes", "no"])})
    (tmp_path / "a.parquet").write_bytes(data)
    entries = describe(str(tmp_path), {"a.parquet": len(data)}, ReadOptions())
    reading = ReadOptions(10**6, columns=(("question", "answer"),))
    found = list(read_splits(str(tmp_path), cut(str(tmp_path), entries, 10**9)[0].splits, reading))
    reason = '"question": invalid UTF-8 at byte 2 of the text'
    assert [(record.problem, record.is_not_utf8) for record in found] == [("", False), (reason, True)]
