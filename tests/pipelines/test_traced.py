"""Hits that can be traced: a vector names its file and record, and takes fields of the record with it."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import clearspan
from clearspan.pipelines.builders import embedded_texts as kind
from clearspan.shards import Dataset
from clearspan.shards.vectors import field_names
from tests.pipelines.conftest import Command, logged, rows

Row = dict[str, Any]


@pytest.fixture(scope="module")
def titled(wiki: Path) -> list[Row]:
    """Two hundred lines of Wikipedia, with a title, a year and a nested place."""
    lines = [line.strip() for line in wiki.read_text(encoding="utf-8").split("\n") if line.strip()][:200]
    return [
        {
            "id": f"wiki-{number}",
            "title": " ".join(line.split()[:3]),
            "year": 1900 + number,
            "meta": {"url": f"https://example.org/{number}", "score": number / 4},
            "text": line,
        }
        for number, line in enumerate(lines)
    ]


@pytest.fixture
def embed(direct: Command, still: Path) -> Command:
    """Embed with a static model, without Beam, in many units."""
    return lambda *words: direct("embed", "--model", still, "--unit-bytes", "3000", "--keep-text", *words)


def write_jsonl(path: Path, found: list[Row]) -> None:
    """Write rows as JSON lines, with a blank line in front of every tenth."""
    path.write_text("".join("\n" * (n % 10 == 0) + json.dumps(row) + "\n" for n, row in enumerate(found)), "utf-8")


def write_csv(path: Path, found: list[Row]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file)
        table.writerow(["title", "text"])
        table.writerows([row["title"], f"{row['text']}\nand a second line"] for row in found)


def write_lines(path: Path, found: list[Row]) -> None:
    path.write_text("\n\n".join(row["text"] for row in found), encoding="utf-8")


def write_array(path: Path, found: list[Row]) -> None:
    path.write_text(json.dumps(found, indent=1), encoding="utf-8")


def write_parquet(path: Path, found: list[Row]) -> None:
    pq.write_table(pa.Table.from_pylist(found), path, row_group_size=16)


def write_parts(path: Path, found: list[Row]) -> None:
    path.write_text("\n---\n".join(row["text"] for row in found), encoding="utf-8")


FORMS: list[tuple[str, Callable[[Path, list[Row]], None], list[str], Callable[[Path], list[str]]]] = [
    ("a.jsonl", write_jsonl, [], lambda path: path.read_text("utf-8").split("\n")),
    ("a.txt", write_lines, ["--text-per", "line"], lambda path: path.read_text("utf-8").split("\n")),
    ("a.csv", write_csv, ["--text-field", "text"], lambda path: [row["text"] for row in csv.DictReader(path.open())]),
    ("a.json", write_array, [], lambda path: [json.dumps(row) for row in json.loads(path.read_text())]),
    ("a.parquet", write_parquet, ["--text-field", "text"], lambda path: pq.read_table(path)["text"].to_pylist()),
    ("a.txt", write_parts, ["--document-separator", "\n---\n"], lambda path: path.read_text().split("\n---\n")),
]


@pytest.mark.guarantee("any-workers")
@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize(
    ("name", "write", "words", "records"), FORMS, ids=["jsonl", "line", "csv", "json", "rows", "parts"]
)
def test_the_record_that_a_vector_names_holds_its_text_wherever_the_file_is_cut(
    embed: Command, titled: list[Row], name: str, write: Any, words: list[str], records: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    write(folder / name, titled)
    (folder / "other.txt").write_text(titled[0]["text"], encoding="utf-8")
    ended = embed("--input", folder, *words)
    assert ended.code == 0, ended.err
    found = rows(tmp_path / "out")
    assert len(found) == len(titled) + 1
    by_number = records(folder / name)
    for row in found:
        if row["source"] == name:
            assert json.dumps(row["text"])[1:-1] in by_number[row["record"] - 1] or (
                row["text"] == by_number[row["record"] - 1]
            )
        else:
            assert (row["source"], row["record"]) == ("other.txt", 1)


@pytest.mark.guarantee("traced-hits")
@pytest.mark.guarantee("any-workers")
def test_the_size_of_units_changes_no_number(embed: Command, titled: list[Row], tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", titled)
    kept = []
    for size in ("700", "1000000"):
        out = tmp_path / size
        assert embed("--input", tmp_path / "a.jsonl", "--unit-bytes", size, "--output", out).code == 0
        kept.append([(row["id"], row["record"]) for row in rows(out)])
    assert kept[0] == kept[1] and len(Dataset(tmp_path / "700").shards) > 20


@pytest.mark.guarantee("traced-hits")
def test_a_rejected_place_is_a_byte_offset_as_before(embed: Command, titled: list[Row], tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", titled)
    data = (tmp_path / "a.jsonl").read_bytes().replace(b'"wiki-150"', b"wiki-150")
    (tmp_path / "a.jsonl").write_bytes(data)
    assert embed("--input", tmp_path / "a.jsonl", "--max-bad-fraction", "0.1").code == 0
    (line,) = logged(tmp_path / "out" / "_rejected")
    assert line["source"] == "a.jsonl" and data[line["offset"] :].startswith(b'{"id": wiki-150')
    assert [row["record"] for row in rows(tmp_path / "out")] == [n + n // 10 + 2 for n in range(200) if n != 150]


@pytest.mark.guarantee("traced-hits")
@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet", "a.json"])
def test_fields_keep_their_types_and_are_null_where_a_record_lacks_them(
    embed: Command, titled: list[Row], name: str, tmp_path: Path
) -> None:
    lacking = [{**row} for row in titled]
    for row in lacking[::3]:
        row["year"] = None
    {"a.jsonl": write_jsonl, "a.parquet": write_parquet, "a.json": write_array}[name](tmp_path / name, lacking)
    words = ["--keep-fields", "id,meta.url,Year,meta.score", "--text-field", "text"]
    ended = embed("--input", tmp_path / name, *words)
    assert ended.code == 0, ended.err
    dataset = Dataset(tmp_path / "out")
    assert field_names(next(iter(dataset)).schema) == ["id", "meta.url", "Year", "meta.score"]
    expected = {"id": "string", "meta.url": "string", "Year": "int64", "meta.score": "double"}
    assert dataset.manifest.fingerprint["options"]["keep_fields"] == expected
    for row, found in zip(lacking, rows(tmp_path / "out"), strict=True):
        values = [row["id"], row["meta"]["url"], row["year"], row["meta"]["score"]]
        assert [found[f"field_{field}"] for field in expected] == values


@pytest.mark.guarantee("traced-hits")
def test_cells_of_csv_stay_texts_and_files_without_the_column_have_null(
    embed: Command, titled: list[Row], tmp_path: Path
) -> None:
    (tmp_path / "a.csv").write_text("year,text\n1984,An owl hunts at night.\n,Owls see well.\n")
    (tmp_path / "b.csv").write_text("name,text\nx,A heron stands in the water.\n")
    ended = embed("--input", tmp_path / "a.csv", tmp_path / "b.csv", "--keep-fields", "year", "--text-field", "text")
    assert ended.code == 0, ended.err
    assert [row["field_year"] for row in rows(tmp_path / "out")] == ["1984", "", None]


def test_a_field_that_no_record_has_is_an_error_before_the_work(
    embed: Command, titled: list[Row], tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "a.jsonl", titled)
    ended = embed("--input", tmp_path / "a.jsonl", "--keep-fields", "id,meta.uri")
    assert ended.code == 1 and ended.err.count("\n") == 1
    assert 'no field "meta.uri"' in ended.err and "did you mean 'meta.url'?" in ended.err
    assert not (tmp_path / "out").exists()
    (tmp_path / "b.txt").write_text("An owl.")
    assert "they are plain text" in embed("--input", tmp_path / "b.txt", "--keep-fields", "id").err


@pytest.mark.guarantee("traced-hits")
def test_a_field_of_objects_is_refused_and_one_of_another_type_is_bad(
    embed: Command, titled: list[Row], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_jsonl(tmp_path / "a.jsonl", titled)
    assert '"meta" holds an object' in embed("--input", tmp_path / "a.jsonl", "--keep-fields", "meta").err
    write_jsonl(tmp_path / "b.jsonl", [*titled, {"text": "No year.", "year": "unknown"}])
    monkeypatch.setattr(kind, "FIRST_RECORDS", 100)
    words = ["--input", tmp_path / "b.jsonl", "--max-bad-fraction", "0.1"]
    ended = embed(*words, "--keep-fields", "year", "--json")
    assert json.loads(ended.out)["bad"] == 1
    assert logged(tmp_path / "out" / "_rejected")[0]["reason"].startswith('its "year" is a string, not int64')
    assert embed(*words, "--keep-fields", "year:string", "--output", tmp_path / "text").code == 0
    assert [row["field_year"] for row in rows(tmp_path / "text")][-2:] == ["2099", "unknown"]


@pytest.mark.guarantee("traced-hits")
def test_a_cell_of_csv_is_a_number_where_its_type_is_named(embed: Command, tmp_path: Path) -> None:
    table = 'text,year,score\n"Owls hunt.", 2021 ,1.5\n"Bats hunt.",,\n"It rains.",007,1e2\n"Snow.",1999.5,2\n'
    (tmp_path / "a.csv").write_text(table)
    words = ["--input", tmp_path / "a.csv", "--keep-fields", "year:int64,score:double", "--max-bad-fraction", "0.5"]
    assert json.loads(embed(*words, "--json").out)["bad"] == 1
    found = [(row["field_year"], row["field_score"]) for row in rows(tmp_path / "out")]
    assert found == [(2021, 1.5), (None, None), (7, 100.0)]
    assert logged(tmp_path / "out" / "_rejected")[0]["reason"].startswith('its "year" is a string, not int64')


@pytest.mark.guarantee("traced-hits")
def test_a_number_that_is_not_finite_is_absent_or_bad(embed: Command, titled: list[Row], tmp_path: Path) -> None:
    """JSON has no way to write it, and the page's answers are JSON."""
    table = pa.table({"text": [row["text"] for row in titled[:50]], "score": [1.5, float("nan"), *[2.5] * 47, -1e999]})
    pq.write_table(table, tmp_path / "a.parquet")
    words = ["--input", str(tmp_path / "a.parquet"), "--output", str(tmp_path / "out"), "--keep-fields", "score"]
    embed(*words, "--max-bad-fraction", "0.1")
    found = rows(tmp_path / "out")
    assert [row["field_score"] for row in found] == [1.5, None, *[2.5] * 47]


@pytest.mark.parametrize("words", [["--title-field", "title"], ["--title-field"]])
def test_a_title_is_embedded_before_its_text_and_kept_beside_it(
    embed: Command, titled: list[Row], words: list[str], tmp_path: Path
) -> None:
    some = [*titled[:50], {"text": "A text without a title."}]
    write_jsonl(tmp_path / "a.jsonl", some)
    assert embed("--input", tmp_path / "a.jsonl", *words).code == 0
    joined = [f"{row['title']} {row['text']}" if "title" in row else row["text"] for row in some]
    write_jsonl(tmp_path / "b.jsonl", [{"text": text} for text in joined])
    assert embed("--input", tmp_path / "b.jsonl", "--output", tmp_path / "joined").code == 0
    for row, expected, given in zip(rows(tmp_path / "out"), rows(tmp_path / "joined"), some, strict=True):
        assert (row["id"], row["vector"]) == (expected["id"], expected["vector"])
        assert (row["text"], row["field_title"]) == (given["text"], given.get("title"))


def test_the_options_of_fields_shape_the_dataset(embed: Command, titled: list[Row], tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", titled)
    assert embed("--input", tmp_path / "a.jsonl", "--keep-fields", "id").code == 0
    ended = embed("--input", tmp_path / "a.jsonl", "--keep-fields", "id,year")
    assert ended.code == 1 and "keep_fields.year: null there" in ended.err
    assert "nothing to do" in embed("--input", tmp_path / "a.jsonl", "--keep-fields", "id").out


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--keep-fields", "id,id:string"], "--keep-fields names id twice"),
        (["--title-field", "TEXT"], "is the field of the text"),
        (["--chunk-overlap", "4"], "has no effect without --chunk-tokens"),
        (["--chunk-tokens", "16", "--chunk-overlap", "9"], "at most half of --chunk-tokens"),
    ],
)
def test_options_that_cannot_work_are_one_line(embed: Command, wiki: Path, words: list[str], complaint: str) -> None:
    ended = embed("--input", wiki, *words)
    assert ended.code == 2 and complaint in ended.err


@pytest.mark.exhaustive
def test_python_takes_the_same_options(titled: list[Row], still: Path, tmp_path: Path) -> None:
    write_jsonl(tmp_path / "a.jsonl", titled)
    options: dict[str, Any] = {
        "keep_fields": ["id", "year"],
        "title_field": True,
        "chunk_tokens": 16,
        "keep_text": True,
    }
    made: list[Dataset] = []
    for found in (titled, titled[5:]):
        write_jsonl(tmp_path / "a.jsonl", found)
        words = [tmp_path / "a.jsonl", tmp_path / "out"]
        made.append(clearspan.make_dataset("embed", *words, model=still, quiet=True, update=True, **options))
        assert [row["field_id"] for row in rows(tmp_path / "out") if not row["chunk"]] == [row["id"] for row in found]
    assert field_names(next(iter(made[1])).schema) == ["id", "year", "title"]
