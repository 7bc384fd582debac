"""A finished folder and inputs that have changed: what is new is said, and one option brings the folder up to date."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import clearspan
from clearspan.adapt import __main__ as adapt
from clearspan.adapt import runner
from clearspan.adapt.options import Adapt
from clearspan.adapt.runner import UPDATED, AdaptRecord
from clearspan.adapt.stages import QUESTIONS_FILE, Stage
from clearspan.adapt.updating import check_update
from clearspan.common.checksummed import dump_checksummed
from clearspan.common.errors import PipelineError
from clearspan.common.spawned import CommandError
from clearspan.common.terminal import UsageError
from clearspan.pipelines.units import update
from clearspan.shards import Dataset
from tests.adapt.conftest import NUM_TEXTS, Ran, owls, planned
from tests.pipelines.test_ownership import files_of


def texts(line: list[str]) -> list[str]:
    return [row["text"] for batch in Dataset(Path(line[1], "vectors")) for row in batch.to_pylist()]


def grown(folder: Path) -> Path:
    """Remove five of the owls, and add three."""
    return owls(folder / "owls.jsonl", range(5, NUM_TEXTS + 3))


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize("more", [(), ("--dry-run",)])
@pytest.mark.parametrize("adds_a_file", [False, True])
def test_changed_inputs_are_refused_with_what_is_new_and_nothing_runs(
    adds_a_file: bool,
    more: tuple[str, ...],
    line: list[str],
    ran: Ran,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [str(tmp_path / "owls.jsonl")]
    if adds_a_file:
        given.append(str(owls(tmp_path / "more.jsonl", range(2000, 2007))))
    else:
        grown(tmp_path)
    before = {path: path.read_bytes() for path in tmp_path.glob("adapted/*.json")}
    assert adapt.main([*line, *given, *more]) == 2 and not ran
    told = "7 new, 0 gone, 1,000 kept" if adds_a_file else "3 new, 5 gone, 995 kept"
    assert f"was made (texts: {told}): add --update to embed the new ones" in capsys.readouterr().err
    assert before == {path: path.read_bytes() for path in tmp_path.glob("adapted/*.json")}


@pytest.mark.guarantee("update-as-new")
def test_an_update_embeds_the_new_texts_and_leaves_the_model_and_the_verdict(
    line: list[str], ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*line, str(grown(tmp_path)), str(owls(tmp_path / "more.jsonl", range(2000, 2007)))]
    before = json.loads(Path(line[1], runner.STATE).read_text())
    assert adapt.main([*given, "--update"]) == 0
    printed = capsys.readouterr().out
    assert "texts: 10 new, 5 gone, 995 kept: new ones are embedded" in printed
    said = "model and verdict are of the 5,237 texts before that."
    assert said in printed and said in Path(line[1], "report.html").read_text()
    assert [words[:2] for words in ran][-1] == ("pipelines", "embed") and ran[-1][-1] == "--update"
    assert not {"vocabulary", "pairs"} & {words[1] for words in ran}, "their texts are no longer in the inputs"
    assert len(texts(line)) == 1005 and any("county 2006" in text for text in texts(line))
    after = json.loads(Path(line[1], runner.STATE).read_text())
    assert {name: after[name] for name in ("mrr", "winner", "sentence")} == {
        name: before[name] for name in ("mrr", "winner", "sentence")
    }
    ran.clear()
    assert adapt.main(given) == 0, "finished again"
    assert "--update" not in ran[-1] and after == json.loads(Path(line[1], runner.STATE).read_text())
    ran.clear()
    assert adapt.main([*given, "--update"]) == 0 and "--update" not in ran[-1], "nothing has changed since"
    assert adapt.main(given[:-1]) == 2, "and back again"
    assert "(texts: 0 new, 7 gone, 998 kept)" in capsys.readouterr().err


@pytest.mark.guarantee("update-as-new")
def test_an_update_looks_up_no_question_again_and_judges_by_the_same_ones(
    line: list[str], ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The text that answers a question may be gone, or be another one now."""
    output, asked = Path(line[1]), tmp_path / "asked.csv"
    for path in (asked, tmp_path / "others.csv"):
        path.write_text("query,id\nWhere do owls roost?,3\n")
    options = Adapt(inputs=(str(tmp_path / "owls.jsonl"),), output=output, queries=asked)
    found = json.loads((output / runner.STATE).read_text())
    found["steps"] |= {stage.name: stage.recorded for stage in planned(options) if stage.is_known}
    (output / runner.STATE).write_bytes(
        dump_checksummed({key: value for key, value in found.items() if key != "sha256"})
    )
    (output / QUESTIONS_FILE).write_text("query,answer\nWhere do owls roost?,In barns.\n")
    given = [*line, str(grown(tmp_path))]
    for more in ([], ["--queries", str(tmp_path / "others.csv")]):
        assert adapt.main([*given, *more, "--update"]) == 2 and not ran
        assert f"--update keeps the model and the verdict of {output}: give all other" in capsys.readouterr().err
    assert adapt.main([*given, "--queries", str(asked), "--update"]) == 0
    assert "questions" not in {words[0].rpartition(".")[2] for words in ran} and ran[-1][-1] == "--update"
    ran.clear()
    assert adapt.main([*given, "--queries", str(asked)]) == 0
    assert "questions" not in {words[0].rpartition(".")[2] for words in ran}
    (output / QUESTIONS_FILE).unlink()
    assert adapt.main([*given, "--queries", str(asked)]) == 0
    assert "questions" in {words[0].rpartition(".")[2] for words in ran}


@pytest.mark.guarantee("update-as-new")
@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("done", "update", "is_finished", "is_refused"),
    [
        ("judge --data=texts", True, True, True),
        ("judge --data=texts", False, True, False),
        ("judge --data=texts", True, False, False),
        ("judge --data=texts --stemmer=german", True, True, False),
        (None, True, True, False),
    ],
)
def test_an_update_of_a_finished_folder_judges_by_the_same_options_alone(
    done: str | None, update: bool, is_finished: bool, is_refused: bool
) -> None:
    step: Any = SimpleNamespace(name="judge", recorded="judge --data=texts --stemmer=german")
    found = {"steps": {"judge": done, **({"embed": "embed"} if is_finished else {})}}
    options: Any = SimpleNamespace(update=update, output="adapted")
    if is_refused:
        with pytest.raises(
            UsageError, match=r"keeps the model and the verdict of adapted: .* step judge was made: jud"
        ):
            AdaptRecord(Path("adapted"), found).check(step, options)
    else:
        AdaptRecord(Path("adapted"), found).check(step, options)


@pytest.mark.guarantee("update-as-new")
def test_an_edit_that_no_size_shows_is_a_change(
    line: list[str], ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan has a sample of the bytes of a large file."""
    path = tmp_path / "owls.jsonl"
    path.write_text(
        path.read_text().replace("They hunt at night in county 512", "They hunt at dusk! in county 512"[:32])
    )
    assert adapt.main([*line, str(path)]) == 2 and not ran
    assert "(texts: 1 new, 1 gone, 999 kept)" in capsys.readouterr().err
    assert adapt.main([*line, str(path), "--update"]) == 0 and ran[-1][-1] == "--update"


@pytest.mark.guarantee("update-as-new")
def test_a_killed_update_is_continued_by_the_same_option(
    line: list[str], ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given, run = [*line, str(grown(tmp_path))], Stage.run

    def killed(stage: Stage, quiet: bool) -> None:
        if stage.name == "embed":
            raise KeyboardInterrupt
        run(stage, quiet)

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "run", killed)
        assert adapt.main([*given, "--update"]) == 130
    assert len(texts(line)) == NUM_TEXTS, "the folder stays usable"
    assert adapt.main(given) == 2
    assert "(texts: 3 new, 5 gone, 995 kept)" in capsys.readouterr().err
    assert adapt.main([*given, "--update"]) == 0 and len(texts(line)) == 998


@pytest.mark.guarantee("update-as-new")
def test_a_killed_update_whose_inputs_were_taken_back_was_none(
    line: list[str], ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(Path(line[1], "vectors"), Path(line[1], "texts"))  # a plan of the same inputs
    Path(line[1], "texts", "manifest.json").unlink()
    given = [*line, str(grown(tmp_path))]

    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Stage, "run", killed)
        assert adapt.main([*given, "--update"]) == 130
    assert UPDATED in json.loads(Path(line[1], runner.STATE).read_text())
    owls(tmp_path / "owls.jsonl", range(NUM_TEXTS))
    capsys.readouterr()
    assert adapt.main(given) == 0 and "brought up to date" not in capsys.readouterr().out
    assert UPDATED not in json.loads(Path(line[1], runner.STATE).read_text())


@pytest.mark.slow
@pytest.mark.guarantee("update-as-new")
def test_an_update_killed_at_its_last_step_is_completed_by_the_next_call_that_is_no_dry_run(
    line: list[str], ran: Ran, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, vectors = [*line, str(grown(tmp_path))], Path(line[1], "vectors")

    class Killed(BaseException):
        pass

    def killed(folder: str) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(update, "replace", killed)
        with pytest.raises(Killed):
            adapt.main([*given, "--update"])
    before = files_of(vectors)
    assert adapt.main([*given, "--dry-run"]) == 2 and files_of(vectors) == before and len(texts(line)) == NUM_TEXTS
    assert adapt.main(given) == 0 and len(texts(line)) == 998 and not (vectors / update.FOLDER).exists()


@pytest.mark.slow
@pytest.mark.guarantee("update-as-new")
def test_the_same_files_named_otherwise_are_an_update_without_new_texts(
    line: list[str], ran: Ran, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command of the step `embed` holds the names."""
    given = [*line, str(tmp_path / "owl*.jsonl")]
    assert adapt.main(given) == 2 and not ran
    assert "(texts: 0 new, 0 gone, 1,000 kept): add --update" in capsys.readouterr().err
    assert adapt.main([*given, "--update"]) == 0 and len(texts(line)) == NUM_TEXTS
    assert adapt.main(given) == 0


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("more.jsonl", "{an owl\n" * 50, "records are bad"),
        ("barn/owls.xyz", "\0An owl\0", "owls.xyz"),
    ],
)
def test_inputs_that_cannot_be_read_are_a_line_before_any_step(
    name: str, content: str, complaint: str, line: list[str], ran: Ran, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(content)
    given = [*line, str(tmp_path / "owls.jsonl"), str(tmp_path / Path(name).parts[0])]
    assert adapt.main([*given, "--update"]) != 0
    told = capsys.readouterr().err
    assert complaint in told and told.count("\n") == 1 and not ran and len(texts(line)) == NUM_TEXTS


@pytest.mark.guarantee("update-as-new")
@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("more", "fields", "complaint"),
    [
        (("--keep-fields", "title"), {}, "its step embed was made by another command"),
        (("--text-field", "text"), {}, "its step tokenizer was made by another command"),
        ((), {"id": "county-7"}, "write id:string to keep all values as text, in a new --output"),
        ((), {"text": None, "body": "It rains."}, ""),
    ],
)
def test_an_update_refuses_before_any_step_what_its_last_step_would(
    more: tuple[str, ...],
    fields: dict[str, Any],
    complaint: str,
    line: list[str],
    ran: Ran,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = [*line, str(tmp_path / "owls.jsonl"), str(owls(tmp_path / "more.jsonl", range(2000, 2007), **fields))]
    for dry in (("--dry-run",), ()):
        assert (adapt.main([*given, "--update", *more, *dry]) != 0) == bool(complaint)
        assert complaint in capsys.readouterr().err
    assert bool(ran) != bool(complaint)


@pytest.mark.guarantee("update-as-new")
def test_the_option_has_no_effect_on_a_new_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["--input", str(owls(tmp_path / "owls.jsonl", range(400))), "--output", str(tmp_path / "new"), "--dry-run"]
    assert adapt.main([*line, "--update"]) == 0
    printed = capsys.readouterr().out
    assert adapt.main(line) == 0 and printed == capsys.readouterr().out and "--update" not in printed


@pytest.mark.guarantee("update-as-new")
@pytest.mark.exhaustive
def test_python_updates_as_the_command_line_does(tmp_path: Path) -> None:
    """The whole way, with all steps in processes of their own."""
    adapted, path = tmp_path / "adapted", owls(tmp_path / "owls.jsonl", range(NUM_TEXTS))
    call: Callable[..., Any] = clearspan.adapt
    keys = ["training.max_steps=2", "data.text.batch_size=64"]
    first = call(path, adapted, overrides=keys, quiet=True)
    grown(tmp_path)
    with pytest.raises(UsageError, match=r"\(texts: 3 new, 5 gone, 995 kept\): add `update` to embed"):
        call(path, adapted, overrides=keys, quiet=True)
    assert call(path, adapted, overrides=keys, quiet=True, update=True) == first
    assert json.loads((adapted / runner.STATE).read_text())[UPDATED] is True
    assert len(clearspan.open_collection(adapted).search("Owls of county 1002", top=3)) > 0
    assert Dataset(adapted / "vectors").num_examples == 998
    assert call(path, adapted, overrides=keys, quiet=True) == first


class Called:
    """A call of `check_update` with stand-ins for what it calls; their arguments are in `calls`."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        has_changed: bool = True,
        fields: Any = None,
        are_same_texts: bool = False,
    ) -> None:
        self.calls: list[tuple[Any, ...]] = []
        began = {"options": {} if fields is None else {"keep_fields": fields}}
        new, old = [3, 4, 5, 5, 2**32 + 3], [1, 2, 3, 3]
        look = SimpleNamespace(counts="counts", ids=np.array(old[::-1] if are_same_texts else new))
        returned = {
            "update.complete_killed_update": None,
            "reading_of": "reading",
            "planning.find_inputs": "inputs",
            "have_changed": has_changed,
            "planning.began": began,
            "look_at": look,
            "check_bad": None,
            "update.ids_of": np.array(old),
            "terminal.notice": None,
        }
        for name, value in returned.items():
            monkeypatch.setattr(f"clearspan.adapt.updating.{name}", self._recorded(name.split(".")[-1], value))

    def _recorded(self, name: str, value: Any) -> Callable[..., Any]:
        return lambda *given, **named: self.calls.append((name, *given, *named.items())) or value

    def __call__(self, *inputs: str, state: Any = None, update: bool = True, dry_run: bool = False) -> bool:
        named = {"inputs": inputs, "update": update, "dry_run": dry_run, "quiet": True, "shown_fields": ("id", "title")}
        self.options: Any = SimpleNamespace(output=Path("adapted"), **named)
        embed = "embed --input=a.jsonl '--input=more owls/*.jsonl' --output=adapted/vectors"
        content = state or {"steps": {"texts": "documents", "embed": embed}}
        return check_update(self.options, AdaptRecord(Path("adapted"), content))


GIVEN = ("a.jsonl", "more owls/*.jsonl")


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize("fields", [None, {"id": "int64"}])
def test_what_is_new_is_found_on_the_inputs_as_they_are_now(monkeypatch: pytest.MonkeyPatch, fields: Any) -> None:
    called = Called(monkeypatch, fields=fields)
    assert called(*GIVEN) is True
    folder, told = str(Path("adapted", "vectors")), "4 new, 3 gone, 1 kept: new ones are embedded; the model and the"
    *calls, notice = called.calls
    assert calls == [
        ("complete_killed_update", folder),
        ("reading_of", called.options, ("skip_unknown", False)),
        ("find_inputs", GIVEN, "reading"),
        ("have_changed", folder, "inputs", "reading", True),
        ("began", folder),
        ("look_at", called.options, "inputs", ("id", "title"), fields or {}),
        ("check_bad", "counts"),
        ("ids_of", folder),
    ]
    assert notice[0] == "notice" and f"adapted: texts: {told}" in notice[1]


@pytest.mark.guarantee("update-as-new")
def test_a_dry_run_leaves_a_killed_update_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    called = Called(monkeypatch)
    assert called(*GIVEN, dry_run=True) is True
    assert called.calls[0][0] == "reading_of"


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize("update", [False, True])
def test_inputs_that_have_not_changed_need_no_update(monkeypatch: pytest.MonkeyPatch, update: bool) -> None:
    called = Called(monkeypatch, has_changed=False)
    assert called(*GIVEN, update=update) is False and called.calls[-1][0] == "have_changed"
    assert called(*GIVEN, state={"steps": {"texts": "documents"}}, update=update) is False
    assert called.calls[-1][0] == "have_changed", "the folder is not finished: nothing was looked at"


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize(
    ("texts", "have_begun", "has_changed", "is_left"),
    [
        ("documents --input=a.jsonl '--input=more owls/*.jsonl'", True, False, False),
        ("documents --input=a.jsonl '--input=more owls/*.jsonl'", False, False, True),
        ("documents --input=a.jsonl '--input=more owls/*.jsonl'", True, True, True),
        ("documents --input=a.jsonl", True, False, True),
        (None, True, False, True),
    ],
)
def test_the_mark_of_an_update_goes_only_if_the_verdict_is_of_these_texts_again(
    monkeypatch: pytest.MonkeyPatch, texts: str | None, have_begun: bool, has_changed: bool, is_left: bool
) -> None:
    called = Called(monkeypatch, has_changed=False)
    dataset = str(Path("adapted", "texts"))
    began = {"options": {}} if have_begun else {}
    monkeypatch.setattr("clearspan.adapt.updating.planning.began", lambda folder: began if folder == dataset else None)
    monkeypatch.setattr("clearspan.adapt.updating.have_changed", lambda of, *_: has_changed and of == dataset)
    embed = "embed --input=a.jsonl '--input=more owls/*.jsonl' --output=adapted/vectors"
    state = {"steps": {"embed": embed} | ({"texts": texts} if texts else {}), UPDATED: True}
    assert called(*GIVEN, state=state) is False
    assert (UPDATED in state) is is_left


@pytest.mark.guarantee("update-as-new")
@pytest.mark.parametrize(
    "inputs", [GIVEN[:1], GIVEN[::-1], (*GIVEN, "b.jsonl"), ("b.jsonl", GIVEN[1]), ("a.jsonl", "b")]
)
def test_another_list_of_inputs_is_a_change(monkeypatch: pytest.MonkeyPatch, inputs: tuple[str, ...]) -> None:
    called = Called(monkeypatch, has_changed=False)
    assert called(*inputs) is True
    told = r"^`input`: the inputs have changed since adapted was made \(texts: 4 new, 3 gone, 1 kept\): add "
    with pytest.raises(UsageError, match=told):
        called(*inputs, update=False)


@pytest.mark.guarantee("update-as-new")
def test_changed_inputs_of_the_same_texts_are_a_change_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their fields, their order or the files that hold them are other ones, which hits show."""
    called = Called(monkeypatch, are_same_texts=True)
    assert called(*GIVEN) is True and "texts: 0 new, 0 gone, 4 kept: new ones are" in called.calls[-1][1]
    with pytest.raises(UsageError, match=r"\(texts: 0 new, 0 gone, 4 kept\): add "):
        called(*GIVEN, update=False)


@pytest.mark.guarantee("update-as-new")
def test_what_stops_the_last_step_is_an_error_of_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise PipelineError("a.jsonl: damaged\n at byte 3")

    for name in ("update.complete_killed_update", "planning.find_inputs", "look_at", "update.ids_of"):
        called = Called(monkeypatch)
        monkeypatch.setattr(f"clearspan.adapt.updating.{name}", fails)
        with pytest.raises(CommandError, match=r"^a\.jsonl: damaged at byte 3$"):
            called(*GIVEN)
