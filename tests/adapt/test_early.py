"""What a later step of `adapt` would refuse is refused before the first one, on the same records by the same code."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from clearspan.adapt import __main__ as adapt
from clearspan.adapt import runner, stages
from clearspan.adapt.options import Adapt
from clearspan.adapt.preflight import checked_fields
from clearspan.adapt.run import until_verdict
from clearspan.adapt.stages import QUESTIONS_FILE, Stage
from clearspan.common.checksummed import dump_checksummed
from clearspan.common.records import DataError
from clearspan.common.spawned import CommandError
from clearspan.common.terminal import UsageError
from clearspan.pipelines.api import make_dataset, make_tokenizer
from clearspan.pipelines.builders import embedded_texts
from tests.adapt.conftest import planned

NUM_RECORDS = 1500
"""More records than those by which `embed` infers the types of the fields, the first 1,000."""


def records(**odd: dict[str, Any]) -> list[dict[str, Any]]:
    """Return records of owls; some of their fields differ: number of the record, as `at_7`, -> its fields."""
    hunts = "They hunt at night in county {0}, and roost by day in the barns of county {0}, where many mice are."
    owls = [
        {"_id": number, "title": f"Owls of county {number}", "text": hunts.format(number)}
        for number in range(NUM_RECORDS)
    ]
    for at, fields in odd.items():
        owls[int(at.removeprefix("at_"))] |= fields
    return owls


def written(folder: Path, owls: list[dict[str, Any]]) -> list[str]:
    (folder / "owls.jsonl").write_text("".join(json.dumps(owl) + "\n" for owl in owls))
    return ["--input", str(folder / "owls.jsonl"), "--output", str(folder / "adapted")]


OBJECT = {"$oid": "507f1f77bcf86cd799439011"}


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("odd", "kept", "told"),
    [
        ({"at_3": {"_id": OBJECT}}, "title", ""),
        ({"at_3": {"_id": OBJECT, "key": "k3"}}, "title,key", ""),
        ({"at_1400": {"_id": "county-1400"}}, "title,_id:string", ""),
        ({"at_1400": {"_id": OBJECT}}, "title", 'search results will not show the field "_id": owls.jsonl:'),
    ],
)
def test_a_field_that_the_user_never_named_is_no_reason_to_fail(
    odd: dict[str, Any], kept: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert adapt.main([*written(tmp_path, records(**odd)), "--dry-run"]) == 0
    printed = capsys.readouterr().out
    assert f" --keep-fields={kept} " in printed and told in printed


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("fields", "more", "complaint"),
    [
        ({"text": None}, (), ""),
        ({"text": ["It rains."]}, (), '"text" is not a string but an array'),
        ({"title": {"en": "Owls"}}, (), 'its "title" is an object'),
        ({"_id": OBJECT}, ("--keep-fields", "_id"), 'its "_id" is an object, not int64 as in the first records'),
        ({"text": "It rains. " * 900_000}, (), "longer than 8,000,000 bytes"),
    ],
)
def test_a_record_that_the_last_step_would_refuse_is_refused_before_the_first(
    fields: dict[str, Any], more: tuple[str, ...], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two of 1,500 are more than the fraction of 0.001 that may be bad."""
    line = written(tmp_path, records(at_1300=fields, at_1400=fields))
    assert adapt.main([*line, *more, *([] if complaint else ["--dry-run"])]) == int(bool(complaint))
    message = capsys.readouterr().err
    assert complaint in message and message.count("\n") == int(bool(complaint)) and not (tmp_path / "adapted").exists()


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_as_many_bad_records_as_the_steps_allow_end_nothing(tmp_path: Path) -> None:
    """One of 1,000 is the fraction itself."""
    owls = records(at_900={"text": ["It rains."]})[:1000]
    assert adapt.main([*written(tmp_path, owls), "--dry-run"]) == 0
    assert adapt.main([*written(tmp_path, owls[:999]), "--dry-run"]) == 1


def finished(tmp_path: Path) -> list[str]:
    """Write adapt.json as after a finished call with the field `_id`; return the command line without that field."""
    line = written(tmp_path, records())
    options = Adapt(inputs=(line[1],), output=tmp_path / "adapted", keep_fields=("_id",))
    done = {stage.name: str(stage) for stage in [*planned(options), stages.embed(options, options.base)]}
    options.output.mkdir()
    found = {"format": runner.FORMAT, "steps": done, "given": None, "delivered": "untrained static"}
    (options.output / runner.STATE).write_bytes(dump_checksummed(found))
    return line


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize("more", [(), ("--dry-run",), ("--keep-fields", "title")])
def test_a_finished_folder_refuses_other_options_before_any_step(
    more: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line, ran = finished(tmp_path), list[str]()
    monkeypatch.setattr(Stage, "run", lambda stage, _: ran.append(stage.name))
    before = (tmp_path / "adapted" / runner.STATE).read_bytes()
    assert adapt.main([*line, *more]) == 2 and not ran
    assert "its step embed was made by another command; name another folder: " in capsys.readouterr().err
    assert (tmp_path / "adapted" / runner.STATE).read_bytes() == before
    assert adapt.main([*line, "--keep-fields", "_id", "--dry-run"]) == 0, "the same options"


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("number", "questions", "more", "complaint"),
    [
        (30, "query,id\nWho hunts at night?,7\n", (), "30 texts: a verdict needs 20 held-out texts"),
        (400, "query,id\nWho hunts at night?,\n", (), "1 row without a relevant document or its id"),
        (400, "query,id\nWho hunts at night?,1600\n", (), "1 id of 1 do not occur in the field _id: '1600'"),
        (400, "query,id\nWho hunts at night?,7\n", ("--keep-fields", "yaer"), 'no field "yaer"'),
        (400, "query,id\nWho hunts at night?,7\n", ("--fields", "text,Text"), "must name two different fields"),
    ],
)
def test_a_dry_run_refuses_what_the_run_refuses(
    number: int,
    questions: str,
    more: tuple[str, ...],
    complaint: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    line = written(tmp_path, records()[:number])
    (tmp_path / "questions.csv").write_text(questions)
    for dry in (["--dry-run"], []):
        assert adapt.main([*line, "--queries", str(tmp_path / "questions.csv"), *more, *dry]) == 2
        assert complaint in capfd.readouterr().err


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.exhaustive
def test_questions_that_no_text_answers_are_refused_before_a_model_is_made(tmp_path: Path) -> None:
    line = written(tmp_path, records())
    (tmp_path / "questions.csv").write_text("query,text\nWho hunts at night?,Foxes do.\n")
    output = tmp_path / "adapted"
    tokenizer = make_tokenizer(line[1], output / "tokenizer", size=300, quiet=True)
    make_dataset("documents", line[1], output / "texts", tokenizer=tokenizer, min_tokens=4, holdout_fraction=0.1)
    (output / QUESTIONS_FILE).write_text('{"query": "Who hunts at night?", "text": "Foxes do."}\n')
    ran = list[str]()

    def run(stage: Stage) -> None:
        ran.append(stage.name)
        stage.check()

    with pytest.raises(DataError, match="no answer is a text of "):
        until_verdict(Adapt(inputs=(line[1],), output=output, queries=tmp_path / "questions.csv"), run)
    assert ran == ["questions", "tokenizer", "texts"]


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("files", "keep", "expected"),
    [
        ({"a.jsonl": [{"_id": 7}]}, (), ("title", "_id")),
        ({"a.jsonl": [{"_id": 7}], "b.jsonl": [{"_id": 8}, {"_id": "county-9"}]}, (), ("title", "_id:string")),
        ({"a.jsonl": [{"_id": 7}], "b.jsonl": [{"_id": 8}, {"_id": OBJECT}]}, (), ("title",)),
        ({"a.jsonl": [{"_id": 7}], "b.jsonl": [{"_id": 8}, {"_id": OBJECT}]}, ("_id:string",), CommandError),
        ({"a.jsonl": [{"_id": 7}], "b.jsonl": [{"_id": 8}, {"_id": "county-9"}]}, ("_id",), CommandError),
        ({"a.jsonl": [{"_id": 7}], "b.jsonl": [{"_id": 8}, {"text": ["It rains."]}]}, (), CommandError),
        ({"a.jsonl": [{"_id": 7}]}, ("_id", "title", "_id:string"), UsageError),
        ({"a.jsonl": [{"_id": 7}]}, ("_id", "year"), UsageError),
        ({"a.jsonl": []}, (), UsageError),
        ({}, (), CommandError),
    ],
)
def test_the_fields_to_show_are_those_that_all_records_can_store(
    files: dict[str, list[dict[str, Any]]],
    keep: tuple[str, ...],
    expected: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded_texts, "FIRST_RECORDS", 2)  # the first record of each file
    for name, owls in files.items():
        lines = [json.dumps({**record, **fields}) for record, fields in zip(records(), owls, strict=False)]
        (tmp_path / name).write_text("\n".join(lines))
    options = Adapt(
        inputs=(str(tmp_path / "*.jsonl"),),
        output=tmp_path / "adapted",
        keep_fields=keep,
        fields=("title", "text"),
        quiet=True,
    )
    if isinstance(expected, tuple):
        assert checked_fields(options) == expected
        return
    with pytest.raises(expected) as caught:
        checked_fields(options)
    assert type(caught.value) is expected and "\n" not in str(caught.value)


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_a_field_that_nobody_named_is_changed_also_where_most_records_differ(tmp_path: Path) -> None:
    ids = [*range(1000), *(f"u-{number}" for number in range(9000))]
    lines = [json.dumps({"id": each, "title": f"Owl {each}", "text": f"It hunts at night {each}."}) for each in ids]
    (tmp_path / "owls.jsonl").write_text("\n".join(lines))
    options = Adapt(
        inputs=(str(tmp_path / "owls.jsonl"),), output=tmp_path / "out", fields=("title", "text"), quiet=True
    )
    assert checked_fields(options) == ("title", "id:string")
    with pytest.raises(CommandError, match="records are bad"):
        checked_fields(dataclasses.replace(options, keep_fields=("id",)))


@pytest.mark.guarantee("adapt-reads-all-inputs")
def test_a_file_of_unknown_type_is_refused_before_the_first_step(tmp_path: Path) -> None:
    """`embed` would refuse it: it takes no file in silence for one that describes the others."""
    inputs = written(tmp_path, records()[:400])
    (tmp_path / "owls.bin").write_bytes(bytes(range(256)))
    with pytest.raises(CommandError, match=r"owls\.bin"):
        checked_fields(Adapt(inputs=(str(tmp_path / "owls.*"),), output=Path(inputs[3]), quiet=True))


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize("lines", ["", "\n\n"])
def test_inputs_without_records_are_refused_before_the_first_step(lines: str, tmp_path: Path) -> None:
    (tmp_path / "owls.jsonl").write_text(lines)
    options = Adapt(
        inputs=(str(tmp_path / "owls.jsonl"),),
        output=tmp_path / "adapted",
        text_field="text",
        keep_fields=("none",),
        quiet=True,
    )
    with pytest.raises(UsageError, match="the inputs hold no records"):
        checked_fields(options)
