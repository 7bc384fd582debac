"""Too few texts for a verdict are told before any work, and too few held-out ones before a model is made."""

import csv
import json
from pathlib import Path

import pytest

from clearspan.adapt import __main__ as adapt
from clearspan.adapt.options import Adapt
from clearspan.adapt.preflight import count_texts


def articles(path: Path, number: int) -> Path:
    with path.open("w", newline="") as file:
        rows = ([f"Owls of county {n}", f"They hunt at night in county {n}, and roost by day."] for n in range(number))
        csv.writer(file).writerows([["title", "text"], *rows])
    return path


@pytest.mark.parametrize(
    ("number", "more", "advice"),
    [
        (
            30,
            (),
            "30 texts: a verdict needs 20 held-out texts, but 0.1 of the texts are about 3: give 400 texts or more",
        ),
        (199, (), "give 400 texts or more, or hold out more with --holdout-fraction 0.21"),
        (199, ("--text-field", "text"), "give 400 texts or more, or hold out more with --holdout-fraction 0.21"),
        (30, ("--holdout-fraction", "0.5"), "0.5 of the texts are about 15: give 80 texts or more"),
    ],
)
def test_too_few_texts_are_told_before_any_work(
    number: int, more: tuple[str, ...], advice: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "adapted"
    line = ["--input", str(articles(tmp_path / "a.csv", number)), "--output", str(output), *more]
    assert adapt.main(line) == 2
    assert not output.exists(), "nothing was begun"
    message = capsys.readouterr().err
    assert message.startswith("adapt: --input: ") and message.endswith(f"{advice}\n") and message.count("\n") == 1


def test_records_of_all_files_and_formats_count_and_no_more_than_are_needed_are_read(tmp_path: Path) -> None:
    articles(tmp_path / "a.csv", 120)
    lines = [json.dumps({"title": "an owl", "text": "it hunts at night"}) for _ in range(90)]
    (tmp_path / "b.jsonl").write_text("\n".join([*lines, "{", ""]))
    options = Adapt(inputs=(str(tmp_path / "*"),), output=tmp_path / "adapted")
    assert count_texts(options, 300) == 210, "a broken line is no text"
    assert count_texts(options, 200) == 200
    (tmp_path / "plain.txt").write_text("an owl\na fox\n")
    by_line = Adapt(inputs=(str(tmp_path / "plain.txt"),), output=tmp_path / "adapted", text_per="line")
    assert count_texts(by_line, 300) == 2


@pytest.mark.parametrize(
    ("fields", "complaint"),
    [
        ("title,yaer", 'no field "yaer": the first 400 records have only '),
        ("title,title:string", "names title twice"),
    ],
)
def test_a_field_to_keep_that_no_record_has_is_told_before_any_work(
    fields: str, complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    line = ["--input", str(articles(tmp_path / "a.csv", 400)), "--output", str(tmp_path / "adapted")]
    assert adapt.main([*line, "--keep-fields", fields]) == 2
    message = capsys.readouterr().err
    assert complaint in message and message.count("\n") == 1 and not (tmp_path / "adapted").exists()


@pytest.mark.slow
def test_a_file_of_questions_that_cannot_be_used_is_told_before_any_work(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "questions.csv").write_text("query,text\nWho hunts at night?,\n")
    line = ["--input", str(articles(tmp_path / "a.csv", 400)), "--output", str(tmp_path / "adapted")]
    assert adapt.main([*line, "--queries", str(tmp_path / "questions.csv")]) == 2
    assert "1 row without a relevant document or its id" in capfd.readouterr().err
    assert [path.name for path in (tmp_path / "adapted").iterdir() if path.suffix != ".lock"] == ["adapt.json"]
