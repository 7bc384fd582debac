"""JSON arrays, Arrow tables, texts of many documents, and folders with files of no known format."""

import gzip
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearspan.common.errors import PipelineError
from clearspan.pipelines.readers import arrays, plain_text
from clearspan.pipelines.readers.streams import BOM, DamagedFileError
from clearspan.pipelines.records import ReadOptions, Record
from tests.pipelines.packings import COMPRESS, arrow, format_of, jsonl, parquet, read_all, tar

READING = ReadOptions(10**6)


class Few(io.BytesIO):
    """Stream that returns a few bytes at a time."""

    def read(self, size: int | None = -1) -> bytes:
        return super().read(min(size or 0, 7))


def elements(data: bytes, reading: ReadOptions = READING) -> list[Record]:
    return list(arrays.records(Few(data), "a.json", reading))


values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=9,
)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.slow
@given(
    st.lists(st.dictionaries(st.text(max_size=3), values, max_size=3) | st.text(max_size=9), max_size=6),
    st.sampled_from([None, 2]),
    st.booleans(),
)
@settings(max_examples=200)
def test_an_arrays_elements_are_its_records(array: list, indent: int | None, escaped: bool) -> None:
    data = BOM + json.dumps(array, indent=indent, ensure_ascii=escaped).encode() + b"\n"
    found = elements(data)
    assert [(record.value, record.problem) for record in found] == [(value, "") for value in array]
    assert all(data[record.offset :].startswith(record.raw) for record in found)


def test_an_element_that_is_no_record_is_bad_and_the_next_are_read() -> None:
    found = elements(b'[3, {"text": "caf\xe9"}, [1], null, true, {"text": "b"}]')
    assert [record.problem for record in found] == [
        "neither a JSON object nor a string but a number",
        "invalid UTF-8 at byte 13 of the element",
        "neither a JSON object nor a string but an array",
        "",
        "neither a JSON object nor a string but true or false",
        "",
    ]


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("array", [b'[{"text": "a",}]', b'["a", , "b"]', b'["a" "b"]', b'["a",]', b'{"text": "a"}'])
def test_an_array_that_is_not_json_is_damage(array: bytes) -> None:
    with pytest.raises(DamagedFileError, match="not JSON at byte"):
        elements(array)


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("end", [b"", b", ", b', {"text": "b', b', "b\\', b"] [", b"]\n[]"])
def test_an_array_that_is_cut_or_goes_on_is_damage(end: bytes) -> None:
    with pytest.raises(DamagedFileError, match=r"the array is not closed at its end|data follows the end of the array"):
        elements(b'[{"text": "a"}' + end)


def saved_to_disk(texts: list[str]) -> dict[str, bytes]:
    """Write tables like Hugging Face's DatasetDict.save_to_disk."""
    table = pa.table({"id": list(range(len(texts))), "text": texts})
    half = len(texts) // 2
    state = json.dumps({"_data_files": [{"filename": "data-00000-of-00001.arrow"}]}, indent=2).encode()
    parts = {"test": table.slice(half), "train": table.slice(0, half)}
    files = {"corpus/dataset_dict.json": b'{"splits": ["train", "test"]}'}
    for name, part in parts.items():
        files[f"corpus/{name}/data-00000-of-00001.arrow"] = arrow(part)
        files |= {f"corpus/{name}/{beside}.json": state for beside in ("state", "dataset_info")}
    return files


@pytest.mark.parametrize(
    ("tables", "indices", "said"),
    [
        (("data-00000-of-00001.arrow", "b.arrow"), (), r"state\.json: 1 of its 2 tables are missing, e\.g\. b\.arrow"),
        (("data-00000-of-00001.arrow",), ("i.arrow",), r"an index selects its rows: .* flatten_indices\(\)"),
    ],
)
def test_a_folder_of_save_to_disk_that_is_not_whole_is_refused(
    texts: list[str], tmp_path: Path, tables: tuple[str, ...], indices: tuple[str, ...], said: str
) -> None:
    state = {"_data_files": [{"filename": name} for name in tables], "_indices_data_files": indices}
    with pytest.raises(PipelineError, match=said):
        read_all(saved_to_disk(texts[:40]) | {"corpus/train/state.json": json.dumps(state).encode()}, tmp_path, 10**9)


@pytest.mark.parametrize("as_file", [False, True])
@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())])
def test_both_forms_of_arrow_are_known_by_their_content(
    texts: list[str], tmp_path: Path, as_file: bool, kind: pa.DataType
) -> None:
    data = arrow(pa.table({"n": list(range(20)), "content": pa.array(texts[:20]).cast(kind)}), as_file)
    (tmp_path / "download").write_bytes(data)
    assert format_of(tmp_path / "download") == ("arrow", None)
    assert [record.value for record in read_all({"a.gz": COMPRESS["gz"](data)}, tmp_path, 10**9)] == texts[:20]


@pytest.mark.guarantee("truncated-input")
@pytest.mark.parametrize("as_file", [False, True])
def test_an_arrow_table_that_is_cut_anywhere_is_damage(texts: list[str], tmp_path: Path, as_file: bool) -> None:
    data = arrow(pa.table({"text": texts[:20]}), as_file)
    for length in [*range(9, len(data), 997), len(data) - 1, len(data) - 8]:
        with pytest.raises(PipelineError, match=r"a\.arrow: damaged or (cut short|misnamed)"):
            read_all({"a.arrow": data[:length]}, tmp_path, 10**9)


@pytest.mark.guarantee("hostile-archives")
@pytest.mark.slow
def test_a_batch_that_fills_the_memory_is_refused(texts: list[str], tmp_path: Path) -> None:
    data = arrow(pa.table({"text": ["a" * 100_000_000, "a" * 100_000_000]}))
    with pytest.raises(PipelineError, match=r"a\.arrow: .* 200,\d+,\d+ bytes.* 134,217,728"):
        read_all({"a.arrow": data}, tmp_path, 10**9)


def test_an_extension_type_is_no_text(tmp_path: Path) -> None:
    field = pa.field("text", pa.string(), metadata={"ARROW:extension:name": "arrow.py_extension_type"})
    data = arrow(pa.table([pa.array(["a"])], schema=pa.schema([field])))
    with pytest.raises(PipelineError, match=r'a\.arrow: its column "text" holds'):
        read_all({"a.arrow": data}, tmp_path, 10**9)


def parts(data: bytes, separator: str, limit: int = 10**6) -> list[Record]:
    return list(plain_text.records(Few(data), "a.txt", ReadOptions(limit, separator=separator)))


@given(st.lists(st.text("ab \n<", max_size=5), max_size=8), st.sampled_from(["\n\n", "<a>", "<", "  "]))
def test_a_separator_parts_documents(pieces: list[str], separator: str) -> None:
    data = separator.join(pieces)
    found = parts(data.encode(), separator)
    assert [record.value for record in found] == [part for part in data.split(separator) if part.strip()]
    assert all(data[record.offset or 0 :].startswith(record.value) for record in found)


def test_a_separator_is_an_option_with_escapes(direct, texts: list[str], tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("\n\x1e\n".join(texts[:40]))
    words = ("--input", path, "--min-tokens", "800")
    outcome = direct(*words, "--document-separator", r"\n\x1e\n", "--json")
    assert json.loads(outcome.out)["read"] == 40
    assert "document_separator" in direct(*words).err
    assert direct(*words, "--document-separator", "a", "--text-per", "line").code == 2


@pytest.fixture
def mixed(texts: list[str], tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    (folder / "deep").mkdir(parents=True)
    (folder / "a.jsonl").write_bytes(jsonl(texts[:40]))
    for name in ("a.bin", "deep/b.png", "deep/c.png"):
        (folder / name).write_bytes(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR")
    return folder


@pytest.mark.guarantee("no-markup")
def test_files_of_no_known_kind_may_be_skipped_and_are_told(direct, mixed: Path, tmp_path: Path) -> None:
    outcome = direct("--input", mixed, "--min-tokens", "800", "--skip-unknown")
    assert outcome.code == 0 and "read 40 " in outcome.out and "3 inputs of unknown type skipped" in outcome.out
    assert json.loads((tmp_path / "out" / "manifest.json").read_text())["fingerprint"]["inputs"]["skipped"] == 3


@pytest.mark.guarantee("nested-fields")
def test_a_byte_order_mark_is_white_space_at_the_start_of_any_line(tmp_path: Path) -> None:
    parts = [jsonl(["Call me Ishmael."]), jsonl(["Some years ago"]), b"\n"]
    found = read_all({"a.jsonl": BOM.join([b"", *parts])}, tmp_path, 10**9)
    assert [(record.value, record.problem) for record in found] == [
        ({"text": "Call me Ishmael."}, ""),
        ({"text": "Some years ago"}, ""),
    ]
    lines = read_all({"b.txt": BOM + b"One.\n" + BOM + b"Two.\n" + BOM + b"\n"}, tmp_path, 10**9, "line")
    assert [record.value for record in lines] == ["One.", "Two."]
    array = read_all({"c.json": BOM + b'\n [{"text": "One."},\n{"text": "Two."}]'}, tmp_path, 10**9)
    assert [(record.value, record.problem) for record in array] == [({"text": "One."}, ""), ({"text": "Two."}, "")]
    rows = BOM + b"text\tn\nOne.\t1\n"
    tables = {
        "d.csv": rows.replace(b"\t", b","),
        "d.tsv": rows,
        "D.TSV.gz": gzip.compress(rows),
        "d.tar": tar({"d.tsv": rows}),
    }
    for name, data in (*tables.items(), ("e.txt", BOM + b"One.")):
        for field in (None, "text"):
            found = read_all({name: data}, tmp_path, 10**9, reading=ReadOptions(10**6, field=field))
            assert [record.value for record in found] == ["One."]


NULLS = {
    "a.jsonl": b'{"text": "one", "n": 1}\n{"text": null, "n": 2}\n{"text": "", "n": 3}\n',
    "a.json": b'[{"text": "one"}, {"text": null}, {"text": ""}]',
    "a.csv": b"n,text\n1,one\n2,\n3,\n",
    "a.tsv": b"n\ttext\n1\tone\n2\t\n3\t\n",
    "a.parquet": parquet({"text": pa.array(["one", None, ""])}),
    "a.arrow": arrow(pa.table({"text": ["one", None, ""]})),
}


@pytest.mark.guarantee("nested-fields")
@pytest.mark.parametrize("name", NULLS)
def test_a_null_or_empty_text_is_none_or_empty_in_every_format(tmp_path: Path, name: str) -> None:
    found = read_all({name: NULLS[name]}, tmp_path, 10**9)
    values = [record.value["text"] if isinstance(record.value, dict) else record.value for record in found]
    assert values[0] == "one" and [value or "" for value in values[1:]] == ["", ""]
    assert not any(record.problem for record in found)
