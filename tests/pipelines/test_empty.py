"""Empty and null texts are `empty`, whatever the kind and the format."""

import csv
import io
import json
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pipelines.conftest import Command
from tests.pipelines.packings import parquet

TEXT = "They hunt by ear, and fly without a sound over the fields at night."
ROWS = [("Owls", TEXT), ("", f"{TEXT} And so on."), ("Rain", ""), ("Snow", " \t"), (None, f"{TEXT} It was late.")]
NULLS = [*ROWS, ("Fog", None), (None, None)]


def in_format(name: str, rows: list[tuple[str | None, str | None]]) -> bytes:
    records = [{"title": title, "text": text} for title, text in rows]
    if name == "jsonl":
        return "".join(json.dumps(record) + "\n" for record in records).encode()
    if name == "json":
        return json.dumps(records).encode()
    if name == "csv":
        out = io.StringIO()
        csv.writer(out).writerows([("title", "text"), *((title or "", text or "") for title, text in rows)])
        return out.getvalue().encode()
    return parquet({column: pa.array([record[column] for record in records]) for column in ("title", "text")})


@pytest.mark.guarantee("empty-is-empty")
@pytest.mark.parametrize("name", ["jsonl", "json", "csv", "parquet"])
@pytest.mark.parametrize(("command", "kept", "empty"), [("documents", 3, 4), ("sentences", 3, 4), ("pairs", 1, 6)])
def test_an_empty_or_null_text_is_counted_as_empty(
    direct: Command, tmp_path: Path, name: str, command: str, kept: int, empty: int
) -> None:
    (tmp_path / f"a.{name}").write_bytes(in_format(name, NULLS))
    options = ["--no-split"] if command == "sentences" else []
    ended = direct(command, *options, "--min-tokens", "1", "--input", tmp_path / f"a.{name}", "--json")
    found = json.loads(ended.out)
    assert (found["kept"], found["filtered"]["empty"], found["bad"]) == (kept, empty, 0)
    assert sum(found["filtered"].values()) == empty
    ended = direct(
        "pairs", "--structure", "headings", "--input", tmp_path / f"a.{name}", "--output", tmp_path / "parts"
    )
    assert "none of 7 triplets is kept: 4 empty, 3 no_pair" in ended.err


def test_an_array_of_texts_may_hold_nulls(direct: Command, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([TEXT, None, "", TEXT[::-1]]))
    ended = direct("--input", tmp_path / "a.json", "--min-tokens", "1", "--json")
    found = json.loads(ended.out)
    assert (found["kept"], found["filtered"]["empty"], found["bad"]) == (2, 2, 0)


def test_a_null_title_gives_way_to_another_of_a_usual_name(direct: Command, tmp_path: Path, decoded) -> None:
    record = {"title": None, "headline": "Owls", "text": TEXT}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n" + json.dumps({"text": TEXT}) + "\n")
    ended = direct("pairs", "--input", tmp_path / "a.jsonl")
    assert decoded(tmp_path / "out") == [("Owls", TEXT)]
    assert "1 missing_field" in ended.out
    assert "records left out, by file: a.jsonl 1: no fields title,text or title,body" in ended.out


@pytest.mark.guarantee("empty-is-empty")
def test_rows_of_triplets_and_of_labels_with_a_null_are_empty(direct: Command, tmp_path: Path) -> None:
    rows = [{"sent0": TEXT, "sent1": "Owls", "hard_neg": None}, {"sent0": TEXT, "sent1": "Owls", "hard_neg": "Rain"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = json.loads(direct("triplets", "--input", tmp_path / "a.jsonl", "--json").out)
    assert (found["kept"], found["filtered"]["empty"], found["bad"]) == (1, 1, 0)
    labelled = [(TEXT, "Owls hunt.", "entailment"), (TEXT, "Owls sleep.", "contradiction"), (TEXT, None, "entailment")]
    named = [dict(zip(("premise", "hypothesis", "label"), row, strict=True)) for row in [*labelled, (TEXT, "x", None)]]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    ended = direct("triplets", "--nli", "--input", tmp_path / "b.jsonl", "--output", tmp_path / "nli", "--json")
    found = json.loads(ended.out)
    assert (found["kept"], found["filtered"]["empty"], found["filtered"]["unlabelled"], found["bad"]) == (1, 1, 1, 0)
