"""`--queries` of `adapt`: each question gets the text that should be found, given as such or by its id."""

import csv
import json
import uuid
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clearspan.adapt import questions
from clearspan.adapt.options import Adapt

OWLS, FOXES = "Owls hunt by ear, and fly without a sound.", "Foxes hunt by day, too, where nobody disturbs them."


@pytest.fixture
def articles(tmp_path: Path) -> Path:
    path = tmp_path / "articles.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "title", "text"], [7, "Owls", OWLS], [8, "Foxes", FOXES]])
    return path


def asked(tmp_path: Path, articles: Path, lines: str, *more: str, code: int = 0) -> list[tuple[str, str]]:
    file, out = tmp_path / "questions.csv", tmp_path / "out.jsonl"
    file.write_text(lines)
    line = ["--queries", str(file), "--input", str(articles), "--output", str(out), *more]
    assert questions.main(line) == code
    return [tuple(json.loads(row).values()) for row in out.read_text().splitlines()] if out.is_file() else []


@pytest.mark.guarantee("verdict-among-all")
def test_an_id_is_that_of_a_record_and_a_text_is_itself(tmp_path: Path, articles: Path) -> None:
    by_id = "query,id\nWho flies silently?,7\nWho hunts by day?,8\n"
    wanted = [("Who flies silently?", OWLS), ("Who hunts by day?", FOXES)]
    assert asked(tmp_path, articles, by_id, "--id-field", "id") == wanted
    by_text = f'query,text\nWho flies silently?,"{OWLS}"\nWho hunts by day?,"{FOXES}"\n'
    assert asked(tmp_path, articles, by_text) == wanted
    lines = [{"id": 7, "text": OWLS}, {"id": 8, "text": FOXES}]  # numbers in JSON are ids, too
    articles.with_suffix(".jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert asked(tmp_path, articles.with_suffix(".jsonl"), by_id, "--id-field", "id") == wanted


@pytest.mark.guarantee("verdict-among-all")
def test_a_question_has_a_line_for_every_text_of_its_id(tmp_path: Path, articles: Path) -> None:
    with articles.open("a", newline="") as file:
        csv.writer(file).writerows([[9, "Voles", "Voles dig."], [7, "Barn owls", "Barn owls hunt voles."]])
    by_id = "query,id\nWho flies silently?,7\nWho digs?,9\nWho hunts voles?,7\n"
    texts = [OWLS, "Barn owls hunt voles."]
    wanted = [("Who flies silently?", text) for text in texts] + [("Who digs?", "Voles dig.")]
    wanted += [("Who hunts voles?", text) for text in texts]
    assert asked(tmp_path, articles, by_id, "--id-field", "id") == wanted


BIRD, BEAST = "6b1d3c5e-0f7a-4c2e-9a53-1f0f7d9a1b01", "6b1d3c5e-0f7a-4c2e-9a53-1f0f7d9a1b02"


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(
    ("ids", "name"),
    [
        (pa.array([uuid.UUID(each).bytes for each in (BIRD, BEAST)], pa.uuid()), BEAST),
        (pa.array([Decimal(7), Decimal(8)], pa.decimal128(38, 0)), "8"),
        (pa.array([7.0, 8.0]), "8.0"),
    ],
)
def test_an_id_of_a_table_is_named_as_hits_show_it(ids: pa.Array, name: str, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": ids, "text": [OWLS, FOXES]}), tmp_path / "articles.parquet")
    lines = f"query,id\nWho hunts by day?,{name}\n"
    found = asked(tmp_path, tmp_path / "articles.parquet", lines, "--id-field", "id")
    assert found == [("Who hunts by day?", FOXES)]


def test_an_id_of_many_digits_names_one_text_of_json(tmp_path: Path) -> None:
    ids = ["123456789012345678901234567890", "123456789012345678901234567891"]  # equal as doubles
    rows = [f'{{"id": {name}, "text": {json.dumps(text)}}}\n' for name, text in zip(ids, (OWLS, FOXES), strict=True)]
    (tmp_path / "articles.jsonl").write_text("".join(rows))
    lines = f"query,id\nWho hunts by day?,{ids[1]}\n"
    found = asked(tmp_path, tmp_path / "articles.jsonl", lines, "--id-field", "id")
    assert found == [("Who hunts by day?", FOXES)]


@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(
    ("lines", "more", "complaint"),
    [
        ("query,id\nWho?,7\nWhere?,9\n", ["--id-field", "id"], "1 id of 2 do not occur in the field id: '9' ("),
        ("query,id\nWho?,7\n", [], "names texts by id, but the inputs have no field with a usual name for ids"),
        ("query\nWho?\n", [], "1 row without a relevant document or its id, e.g. "),
    ],
)
def test_a_question_without_a_text_is_one_line(
    lines: str, more: list[str], complaint: str, tmp_path: Path, articles: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert asked(tmp_path, articles, lines, *more, code=2) == []
    message = capsys.readouterr().err
    assert complaint in message and message.count("\n") <= 2


def test_an_unchanged_file_is_not_written_again(tmp_path: Path, articles: Path) -> None:
    lines = "query,id\nWho flies silently?,7\n"
    asked(tmp_path, articles, lines, "--id-field", "id")
    before = (tmp_path / "out.jsonl").stat().st_mtime_ns
    asked(tmp_path, articles, lines, "--id-field", "id")
    assert (tmp_path / "out.jsonl").stat().st_mtime_ns == before


def test_the_id_is_the_first_kept_field_but_the_title_without_its_type(tmp_path: Path) -> None:
    given = {"inputs": ("a.csv",), "output": tmp_path / "out", "fields": ("title", "text")}
    assert Adapt(keep_fields=("title", "number:int64", "url"), **given).id_field == "number"
    assert Adapt(keep_fields=("title",), **given).id_field is None


@pytest.mark.guarantee("verdict-among-all")
def test_ids_that_differ_in_case_or_by_a_space_are_two(tmp_path: Path) -> None:
    path = tmp_path / "articles.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([["id", "text"], ["dQw", OWLS], ["DQW", FOXES], ["dQw ", "Voles dig."]])
    by_id = "query,id\nWho flies silently?,dQw\n"
    assert asked(tmp_path, path, by_id, "--id-field", "id") == [("Who flies silently?", OWLS)]
