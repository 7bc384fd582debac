"""What `adapt` delivers: the model of the winner, whatever an earlier, killed call left, and a folder to search."""

import dataclasses
import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from clearspan.adapt import export
from clearspan.adapt.decision import decide
from clearspan.adapt.judging import Verdicts
from clearspan.adapt.options import Adapt
from clearspan.adapt.runner import AdaptRecord
from clearspan.common.checksummed import load_checksummed
from clearspan.common.checksummed_folder import write_manifest
from clearspan.common.encoder.prompts import Prompts
from clearspan.common.files import temporary_name
from clearspan.train.run_folder import MODEL
from tests.adapt.test_decision import verdict
from tests.pipelines.test_ownership import files_of


@pytest.fixture
def options(tmp_path: Path) -> Adapt:
    for name, folder in (("owl", tmp_path / "owl"), ("trained", tmp_path / "out/interpolated/model")):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(name)
    return Adapt(inputs=("texts.csv",), output=tmp_path / "out", model=str(tmp_path / "owl"))


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.parametrize(
    ("winner", "copied", "weight"), [("trained", "trained", None), ("BM25", "owl", 0.0), ("owl + BM25", "owl", 0.8)]
)
def test_the_winners_model_and_weight_are_delivered(
    winner: str, copied: str, weight: float | None, options: Adapt, capsys: pytest.CaptureFixture[str]
) -> None:
    decision, record = decide(Verdicts(verdict(winner))), AdaptRecord(options.output, {"steps": {}})
    export.announce(decision)
    export.export(decision, record, options)
    result = export.finish(decision, record, options)
    print(result)
    assert result.decision == decision
    out = options.output
    assert (out / "model/config.json").read_text() == copied
    settings = load_checksummed((out / "search.json").read_bytes())
    assert (settings["vectors"], settings["model"], settings["weight"]) == ("vectors", "model", weight)
    found = json.loads((out / "adapt.json").read_text())
    assert (found["winner"], found["weight"]) == (winner, weight)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith(f"take {winner}")
    assert printed[-1].startswith(f'clearspan search {out} "..." searches the texts, ')
    assert winner in (out / "report.html").read_text()


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize("winner", ["owl", "owl + BM25", "BM25"])
def test_another_winner_replaces_the_model_and_its_vectors(
    winner: str, options: Adapt, capsys: pytest.CaptureFixture[str]
) -> None:
    record = AdaptRecord(options.output, {"steps": {}})
    export.export(decide(Verdicts(verdict("trained"))), record, options)
    record.commands["embed"] = "embed"
    (options.output / "vectors").mkdir()
    export.export(decide(Verdicts(verdict("trained"), verdict(winner, "questions", 60))), record, options)
    assert (options.output / "model/config.json").read_text() == "owl"
    assert not (options.output / "vectors").exists() and "embed" not in record.commands
    assert "the verdict has changed: the model is now owl, not trained" in capsys.readouterr().out


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.guarantee("verdict-among-all")
@pytest.mark.parametrize(("share", "folder"), [(0.25, "interpolated/shares/0.25"), (1.0, "run/model"), (0.5, "")])
def test_the_share_that_questions_chose_is_delivered(
    share: float, folder: str, options: Adapt, capsys: pytest.CaptureFixture[str]
) -> None:
    """It replaces what titles chose, half of the training, and its vectors; if both chose the same, nothing changes."""
    out, record = options.output, AdaptRecord(options.output, {"steps": {}})
    write_manifest(out / "interpolated/model", MODEL, {"share": 0.5})
    if folder:
        (out / folder).mkdir(parents=True)
        (out / folder / "config.json").write_text(folder)
    export.export(decide(Verdicts(verdict("trained"))), record, options)
    record.commands["embed"] = "embed"
    (out / "vectors").mkdir()
    titles, questions = verdict("trained"), verdict("trained", "questions", 60)
    systems = tuple(dataclasses.replace(each, share=share if each.is_trained else None) for each in questions.systems)
    decision = decide(Verdicts(titles, dataclasses.replace(questions, systems=systems)))
    assert export.source(decision, options) == out / (folder or "interpolated/model")
    export.export(decision, record, options)
    assert (out / "model/config.json").read_text() == (folder or "trained")
    assert (out / "vectors").exists() == ("embed" in record.commands) == (not folder)
    export.finish(decision, record, options)
    assert json.loads((out / "adapt.json").read_text())["share"] == share
    assert (f"the model is now trained {share:g}, not trained" in capsys.readouterr().out) == bool(folder)


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.guarantee("output-kept")
def test_what_a_user_put_beside_the_model_and_the_vectors_stays_when_another_wins(
    options: Adapt, capsys: pytest.CaptureFixture[str]
) -> None:
    record = AdaptRecord(options.output, {"steps": {}})
    export.export(decide(Verdicts(verdict("trained"))), record, options)
    mine = [options.output / name for name in ("model/notes/owls.txt", "vectors/vectors-00000-000.tar")]
    for path in mine:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    export.export(decide(Verdicts(verdict("trained"), verdict("owl", "questions", 60))), record, options)
    assert (options.output / "model/config.json").read_text() == "owl"
    left = {path.relative_to(options.output).as_posix() for path in options.output.rglob("*.earlier/**/*.*")}
    assert left == {"model.earlier/notes/owls.txt", "vectors.earlier/vectors-00000-000.tar"}
    assert capsys.readouterr().out.count("holds files that are not of this command: moved to ") == 2


@pytest.mark.guarantee("adapted-folder-searches")
def test_a_copy_that_differs_is_moved_out_of_the_way(options: Adapt, capsys: pytest.CaptureFixture[str]) -> None:
    decision, record = decide(Verdicts(verdict("owl"))), AdaptRecord(options.output, {"steps": {}})
    export.export(decision, record, options)
    (options.output / "model/config.json").write_text("mine")
    export.export(decision, record, options)
    assert (options.output / "model.damaged/config.json").read_text() == "mine"
    assert (options.output / "model/config.json").read_text() == "owl"
    assert "of which it was a copy: moved to " in capsys.readouterr().out


@pytest.mark.guarantee("adapted-folder-searches")
def test_the_prompt_of_queries_that_was_chosen_travels_with_the_folder(options: Adapt) -> None:
    decision, record = decide(Verdicts(verdict("owl"))), AdaptRecord(options.output, {"steps": {}})
    named = dataclasses.replace(options, prompt_name=("none",))
    export.export(decision, record, named)
    export.finish(decision, record, named)
    assert load_checksummed((options.output / "search.json").read_bytes())["prompt_name"] == "none"


@pytest.mark.guarantee("adapted-folder-searches")
def test_a_model_is_copied_once_and_what_is_recorded_of_it_is_saved(
    options: Adapt, capsys: pytest.CaptureFixture[str]
) -> None:
    decision, out = decide(Verdicts(verdict("owl"))), options.output
    record = AdaptRecord(options.output, {"steps": {"embed": "embed"}})
    left = out / temporary_name("model")
    left.mkdir()
    owl = options.output.parent / "owl"
    for name in ("1_Pooling/config.json", "README.md", "model.bin", "vocab.txt", "Card.png", ".gitattributes"):
        (owl / name).parent.mkdir(exist_ok=True)
        (owl / name).write_text(name)
    whole = files_of(owl)
    export.export(decision, record, options)
    assert files_of(out / "model") == files_of(owl) == whole and not left.exists()
    assert all(path.stat().st_nlink == 1 and not path.is_symlink() for path in (out / "model").rglob("*.*"))
    assert record.content == {"steps": {"embed": "embed"}, "delivered": "owl"}
    saved = json.loads((out / "adapt.json").read_text())
    assert (saved["steps"], saved["delivered"]) == (record.commands, "owl")
    before = (out / "model/config.json").stat()
    export.export(decision, record, options)
    after = (out / "model/config.json").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    assert capsys.readouterr().out == "" and {path.name for path in out.iterdir()} == {
        "adapt.json",
        "model",
        "interpolated",
    }


@pytest.mark.guarantee("adapted-folder-searches")
def test_a_model_that_is_links_into_a_cache_is_copied_whole(options: Adapt) -> None:
    given, cache = options.output.parent / "owl", options.output.parent / "cache"
    contents = {path.relative_to(given): path.read_bytes() for path in given.rglob("*") if path.is_file()}
    given.rename(cache)
    for name in contents:
        (given / name).parent.mkdir(parents=True, exist_ok=True)
        (given / name).symlink_to(cache / name)
    export.copy(given, options.output / "model")
    shutil.rmtree(cache)
    assert {name: (options.output / "model" / name).read_bytes() for name in contents} == contents != {}


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.parametrize("damage", ["a file", "modules", "a name"])
def test_what_is_not_the_model_is_moved_out_of_the_way(
    damage: str, options: Adapt, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = options.output / "model"
    if damage == "a file":
        folder.write_text("mine")
    else:
        folder.mkdir()
        name = "modules.json" if damage == "modules" else "other.json"
        (folder / name).write_text("{mine")
        (folder / "config.json").write_text("owl")
    export.copy(options.output.parent / "owl", folder)
    assert (folder / "config.json").read_text() == "owl" and (options.output / "model.damaged").exists()
    told = capsys.readouterr().out
    assert f"of which it was a copy: moved to {options.output / 'model.damaged'}, and copied again" in told


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.parametrize(("of_vectors", "of_call"), [(None, None), (64, 64), (None, 64), (64, None), (32, 64)])
def test_vectors_stay_if_they_are_of_chunks_of_the_same_length(
    of_vectors: int | None, of_call: int | None, options: Adapt, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = {"options": {"dtype": "int8"} if of_vectors is None else {"dtype": "int8", "chunk_tokens": of_vectors}}
    monkeypatch.setattr(export.planning, "began", lambda folder: began if Path(folder).is_dir() else {})
    record = AdaptRecord(options.output, {"steps": {"texts": "documents", "embed": "embed"}})
    given, decision = dataclasses.replace(options, chunk_tokens=of_call), decide(Verdicts(verdict("owl")))
    export.export(decision, record, given)
    assert "embed" in record.commands, "there are no vectors"
    (options.output / "vectors").mkdir()
    export.export(decision, record, given)
    is_same = of_vectors == of_call
    assert (options.output / "vectors").exists() is is_same and ("embed" in record.commands) is is_same
    assert record.commands["texts"] == "documents"
    saved = json.loads((options.output / "adapt.json").read_text())
    assert saved["steps"] == record.commands


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.parametrize(("winner", "origin"), [("trained + BM25", "the trained model"), ("owl", "{owl}, unchanged")])
def test_all_that_a_search_and_a_later_call_need_is_written(
    winner: str, origin: str, options: Adapt, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = decide(Verdicts(verdict(winner), verdict("owl", "questions", 60)))
    decision = dataclasses.replace(found, model=winner.partition(" ")[0], weight=0.8125)
    owl, out = options.output.parent / "owl", options.output
    written: list[Any] = []
    monkeypatch.setattr(
        export.report, "write", lambda *given, **named: written.append((given, named)) or out / "r.html"
    )
    asked: list[Any] = []
    monkeypatch.setattr(export, "find_originals", lambda *given: asked.append(given) or {"an owl": "An owl."})
    monkeypatch.setattr(export, "with_originals", lambda verdict, originals: ("shown", verdict, originals))
    record = AdaptRecord(
        options.output,
        {"steps": {"embed": "embed"}, "updated": True, "originals": {"rain": "Rain."}, "delivered": decision.model},
    )
    prompts = Prompts({"query": "find: ", "document": "passage: "})
    monkeypatch.setattr(export.Prompts, "read", lambda folder: {out / "model": prompts}[folder])
    export.export(decision, record, options)
    values = {
        "prompt_name": ("query", "document"),
        "bm25_stemmer": "german",
        "id_field": "isbn",
        "titles": ("title", "body"),
    }
    given: Any = SimpleNamespace(
        output=out,
        trained=options.trained,
        exported=options.exported,
        shares=options.shares,
        untrained=options.untrained,
        chunk_tokens=None,
        **values,
    )
    result = export.finish(decision, record, given)
    settings = load_checksummed((out / "search.json").read_bytes())
    expected = {"vectors": "vectors", "model": "model", "weight": 0.8125, "stemmer": "german", "prompt_name": "query"}
    assert settings == {**expected, "id_field": "isbn", "k1": decision.verdict.k1, "b": decision.verdict.b}
    saved = json.loads((out / "adapt.json").read_text())
    assert {key: saved[key] for key in ("steps", "updated", "delivered")} == {
        "steps": {"embed": "embed"},
        "updated": True,
        "delivered": decision.model,
    }
    assert saved["originals"] == {"an owl": "An owl."}
    assert saved["model"] == str(options.trained if decision.model == "trained" else owl)
    assert saved["prompts"] == {"query": "find: ", "document": "passage: ", "other": saved["prompts"]["other"]}
    verdicts = json.loads(json.dumps(decision.to_json()))
    assert all(saved[key] == value for key, value in verdicts.items() if key != "model")
    assert asked == [(decision.verdict, out / "vectors", "title", {"rain": "Rain."})]
    remark = "The texts to search were brought up to date: model and verdict are of the 5,237 texts before that."
    told = origin.format(owl=owl)
    shown = ("shown", decision.verdict, {"an owl": "An owl."})
    named = {"metrics": options.exported.parent / "metrics.jsonl", "steps": {"embed": "embed"}, "remark": remark}
    assert written == [((out, shown, decision.other), {**named, "origin": told})]
    sides = (result.prompts.query, result.prompts.document)
    assert (result.folder, result.origin, sides, result.report) == (out, told, ("find: ", "passage: "), out / "r.html")
    assert result.remark == remark and result.decision is decision


@pytest.mark.guarantee("adapted-folder-searches")
def test_without_prompts_and_titles_a_folder_names_none(options: Adapt, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(export, "find_originals", lambda *given: asked.append(given) or {})
    decision, record = decide(Verdicts(verdict("trained"))), AdaptRecord(options.output, {"steps": {}})
    export.export(decision, record, options)
    result = export.finish(decision, record, options)
    settings = load_checksummed((options.output / "search.json").read_bytes())
    assert (settings["prompt_name"], settings["stemmer"], settings["id_field"]) == (None, None, None)
    assert asked[0][2:] == (None, {}) and result.remark == ""
