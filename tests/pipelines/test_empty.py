"""Empty and null texts are `empty`, whatever the kind and the format."""

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from clearspan.pipelines.builders.embedded_texts import EmbeddedTexts
from clearspan.pipelines.builders.pairs import Pairs, PairWorker
from clearspan.pipelines.builders.text import BuiltTexts
from clearspan.pipelines.builders.text_inputs import checked_text, texts_of
from clearspan.pipelines.builders.triplets import TripletWorker
from clearspan.pipelines.counter import Counts, RecordCounter, RecordError
from clearspan.pipelines.records import Record
from clearspan.pipelines.text.filters import FilteredText, NamedFilter
from tests.pipelines.conftest import Command, summary
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


@pytest.mark.guarantee("empty-is-empty")
def test_an_array_of_texts_may_hold_nulls(direct: Command, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([TEXT, None, "", TEXT[::-1]]))
    ended = direct("--input", tmp_path / "a.json", "--min-tokens", "1", "--json")
    found = json.loads(ended.out)
    assert (found["kept"], found["filtered"]["empty"], found["bad"]) == (2, 2, 0)


@pytest.mark.guarantee("empty-is-empty")
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
    rows = [{"text": TEXT, "positive": texts, "negative": ["Rain"]} for texts in (["Owls"], [], [""], None, [" ", ""])]
    rows += [{"text": text, "positive": ["Owls"], "negative": ["Rain"]} for text in ("", None, " ")]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("triplets", "--input", tmp_path / "c.jsonl", "--max-positives", "2", "--output", tmp_path / "several")
    found = json.loads(direct(*words, "--json").out)
    assert (found["kept"], found["filtered"]["empty"], found["bad"]) == (1, 7, 0)
    labelled = [(TEXT, "Owls hunt.", "entailment"), (TEXT, "Owls sleep.", "contradiction"), (TEXT, None, "entailment")]
    labelled += [(TEXT, "\u3000 ", "contradiction"), ("\t", "It rains.", "entailment"), ("", "", "contradiction")]
    named = [dict(zip(("premise", "hypothesis", "label"), row, strict=True)) for row in [*labelled, (TEXT, "x", None)]]
    (tmp_path / "b.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    ended = direct("triplets", "--nli", "--input", tmp_path / "b.jsonl", "--output", tmp_path / "nli", "--json")
    found = json.loads(ended.out)
    assert (found["kept"], found["filtered"]["empty"], found["filtered"]["unlabelled"], found["bad"]) == (1, 4, 1, 0)


@pytest.mark.guarantee("empty-is-empty")
def test_a_text_of_which_a_filter_leaves_nothing_gives_no_sentences_and_is_empty(
    direct: Command, tmp_path: Path, own_module: Callable[[str], str]
) -> None:
    source = "def blanking(document):\n    document.text = document.text.replace('Rain falls.', '')\n    return True\n"
    texts = ["Rain falls.", f"{TEXT} Rain falls.", "Rain falls.\n", " Rain falls."]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    words = ("--min-tokens", "1", "--quality", f"{own_module(source)}:blanking")
    found = summary(direct("sentences", "--input", tmp_path / "a.jsonl", *words, "--json"))
    assert (found["read"], found["kept"], found["filtered"]["empty"]) == (4, 1, 3)


@pytest.mark.guarantee("empty-is-empty")
@pytest.mark.parametrize("title", [None, "", "Owls"])
def test_a_record_without_a_text_is_empty_for_vectors_whatever_its_title(title: str | None) -> None:
    texts = EmbeddedTexts(title_field="title", kept=(("title", "string"),))
    counts = Counts(filtered={"empty": 0})
    for number, text in enumerate((None, "", " \u3000")):
        record = Record("a.jsonl", number, {"text": text, "title": title}, b"")
        assert texts.build(record, counts) is None and counts.filtered == {"empty": number + 1}
    full = texts.build(Record("a.jsonl", 3, {"text": TEXT, "title": title}, b""), counts)
    assert full is not None and full.model_input == (f"{title} {TEXT}" if title else TEXT)


BLANKS = [None, "", " ", "\t\r\n", "\u00a0\u2003", "\x1f", "\u3000\n"]


def texts_in(values: list[object], field: str | None = None) -> tuple[list[str], Counts]:
    """Return the texts of records with these values, and the counts."""
    counter = RecordCounter(("empty",), 1.0)
    records = [Record("a.jsonl", number, value, b"") for number, value in enumerate(values)]
    return [text for _, text, data in texts_of(records, field, counter) if data == text.encode()], counter.counts


@pytest.mark.guarantee("empty-is-empty")
@pytest.mark.parametrize("field", [None, "Text", "body"])
def test_blank_texts_are_counted_as_empty_and_others_are_not(field: str | None) -> None:
    full = ["Owls", " Owls ", "0", ".", "\u200b", "None", "null", "NaN", "-"]
    beside = {"text": "Rivers."} if field == "body" else {"body": "Rivers."}
    rows = [{(field or "text").upper(): text, "id": 7, **beside, "title": "Rain"} for text in (*BLANKS, *full)]
    for values in ([*BLANKS, *full], rows):
        found, counts = texts_in(values, field)
        assert found == full
        assert counts == Counts(read=16, filtered={"empty": 7})


@pytest.mark.guarantee("empty-is-empty")
@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ({"title": "Owls"}, 'no field "text" among title'),
        ({}, 'no field "text" among none'),
        ({"text": []}, '"text" is not a string but an array'),
        ({"text": 0}, '"text" is not a string but a number'),
        ({"text": False}, '"text" is not a string but true or false'),
        ({"text": {}}, '"text" is not a string but an object'),
        ({"Text": "", "TEXT": ""}, 'no field "text" among Text, TEXT'),
        ({"text": "\ud83d"}, "half of a surrogate pair at character 0 of the text"),
        ("Owls \ud83d", "half of a surrogate pair at character 5 of the text"),
        (0, "its value is not a text but a number"),
        ([], "its value is not a text but an array"),
        (b"", "its value is not a text but a bytes"),
    ],
)
def test_a_value_that_is_no_text_is_bad_and_not_empty(value: object, problem: str) -> None:
    found, counts = texts_in([value])
    assert not found and counts.filtered == {"empty": 0}
    assert (counts.read, counts.bad) == (1, 1) and counts.bad_examples[0][1].startswith(problem)


@pytest.mark.guarantee("empty-is-empty")
def test_a_record_that_cannot_be_read_is_bad_and_not_empty() -> None:
    counter = RecordCounter((), 1.0)
    for value in (None, "", {"text": ""}):
        assert not list(texts_of([Record("a.jsonl", 0, value, b"", "broken JSON")], None, counter))
    assert counter.counts.filtered == {} and counter.counts.bad == 3
    assert counter.counts.bad_examples[2] == ["a.jsonl:0", "broken JSON"]


@pytest.mark.guarantee("empty-is-empty")
def test_a_null_cell_is_an_empty_text_and_other_values_are_bad() -> None:
    assert [checked_text(cell) for cell in (None, "", " ", "Owls ")] == ["", "", " ", "Owls "]
    for cell, problem in (
        (0, "a number"),
        (float("nan"), "a number"),
        (False, "true or false"),
        ([], "an array"),
        ({}, "an object"),
    ):
        with pytest.raises(RecordError, match=f"a text of the row is not a string but {problem}"):
            checked_text(cell)
    with pytest.raises(RecordError, match="half of a surrogate pair"):
        checked_text("\udc00")


@pytest.mark.guarantee("empty-is-empty")
@pytest.mark.parametrize(
    ("texts", "has_several", "is_kept"),
    [
        (("An owl hunts.", "Owls fly.", "Rain"), False, True),
        (("Owls", "They hunt."), False, True),
        (("Owls", "They hunt.", " \t"), False, False),
        (("\u00a0", "They hunt.", "Rain falls."), False, False),
        (("", "They hunt."), False, False),
        (("Owls", ""), False, False),
        (("Owls", "They hunt.", ""), False, False),
        (("Owls", "They hunt.", ""), True, True),
        (("Owls", "", "Rain falls."), True, False),
        (("", "They hunt.", "Rain falls."), True, False),
        (("Owls", "They hunt.", "", ""), False, True),
        (("Owls", "\n", "Rain falls.", "It snows."), False, False),
        (("", "", ""), False, False),
    ],
)
def test_a_row_is_empty_if_a_text_that_it_needs_is_blank(
    texts: tuple[str, ...], has_several: bool, is_kept: bool
) -> None:
    seen: list[tuple[str, str | None]] = []

    def seeing(document: FilteredText) -> bool:
        seen.append((document.text, document.shortest))
        return True

    builder: Any = SimpleNamespace(has_several=has_several, filters=[NamedFilter("seeing", seeing, 1)])
    worker = TripletWorker(builder, None, None)
    counts = Counts(filtered={"empty": 0})
    row = BuiltTexts(texts, tuple(f" {text}" if text else "" for text in texts), "a.csv:0")
    assert worker.is_kept(row, counts) == is_kept
    assert counts == Counts(filtered={"empty": 1 - is_kept})
    if is_kept:
        shortest = min((text for text in row.raw if text), key=lambda text: len(text.split()))
        assert seen == [("\n".join(row.raw), shortest)]
    else:
        assert not seen
    builder.filters = [NamedFilter("none", lambda document: False, 1)]
    assert not worker.is_kept(row, counts)


@pytest.mark.guarantee("empty-is-empty")
@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        (("Owls", "They hunt."), ""),
        (("Owls", "OWLS "), "equal_texts"),
        (("Owls", "Owls"), "equal_texts"),
        (("", ""), "empty"),
        ((" ", "\n"), "empty"),
        (("", "Owls"), "empty"),
        (("Owls", " "), "empty"),
    ],
)
def test_a_pair_of_blank_texts_is_empty_and_not_equal(texts: tuple[str, str], reason: str) -> None:
    counts = Counts(filtered={"empty": 0, "equal_texts": 0})
    builder: Any = SimpleNamespace(has_several=False, filters=())
    assert PairWorker(builder, None, None).is_kept(BuiltTexts(texts, texts, "a.csv:0"), counts) == (not reason)
    assert counts.filtered == {"empty": 0, "equal_texts": 0} | ({reason: 1} if reason else {})


@pytest.mark.guarantee("empty-is-empty")
@pytest.mark.parametrize(
    ("record", "cells"),
    [
        ({"title": "Owls", "text": "Hoot"}, ["Owls", "Hoot"]),
        ({"title": None, "text": "Hoot"}, [None, "Hoot"]),
        ({"title": None, "text": None}, [None, None]),
        ({"title": None, "headline": "Owls", "text": "Hoot"}, ["Owls", "Hoot"]),
        ({"title": "Owls", "text": None, "body": "Hoot"}, ["Owls", "Hoot"]),
        ({"title": "", "headline": "Owls", "text": "Hoot"}, ["", "Hoot"]),
        ({"title": None, "headline": "Owls", "text": None}, [None, None]),
    ],
)
def test_null_fields_make_a_pair_unless_others_of_usual_names_are_full(record: dict, cells: list) -> None:
    assert Pairs().cells(Record("a.jsonl", 0, record, b"")) == cells


@pytest.mark.guarantee("empty-is-empty")
@pytest.mark.parametrize(("value", "problem"), [("Owls", ""), (None, ""), ({"title": "", "text": ""}, "broken JSON")])
def test_a_text_without_fields_and_a_broken_record_are_bad_and_no_empty_pair(value: object, problem: str) -> None:
    with pytest.raises(RecordError, match=problem or "expected a row of columns"):
        Pairs().cells(Record("a.jsonl", 0, value, b"", problem))
