"""What `adapt` delivers: the model of the winner, whatever an earlier, killed call left, and a folder to search."""

import dataclasses
import json
from pathlib import Path

import pytest

from clearspan.adapt import delivery
from clearspan.adapt.judging import Verdicts
from clearspan.adapt.options import Adapt
from clearspan.adapt.outcome import decide
from clearspan.common.sealed import unseal
from tests.adapt.test_outcome import verdict


@pytest.fixture
def options(tmp_path: Path) -> Adapt:
    for name, folder in (("owl", tmp_path / "owl"), ("trained", tmp_path / "out/run/model")):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(name)
    return Adapt(inputs=(), output=tmp_path / "out", model=str(tmp_path / "owl"))


@pytest.mark.guarantee("adapted-folder-searches")
@pytest.mark.parametrize(
    ("winner", "copied", "weight"), [("trained", "trained", None), ("BM25", "owl", 0.0), ("owl + BM25", "owl", 0.8)]
)
def test_the_winners_model_and_weight_are_delivered(
    winner: str, copied: str, weight: float | None, options: Adapt, capsys: pytest.CaptureFixture[str]
) -> None:
    outcome, state = decide(Verdicts(verdict(winner))), {"steps": {}}
    delivery.announce(outcome)
    delivery.deliver(outcome, state, options)
    result = delivery.finish(outcome, state, options)
    print(result)
    assert result.outcome == outcome
    out = options.output
    assert (out / "model/config.json").read_text() == copied
    settings = unseal((out / "search.json").read_bytes())
    assert (settings["vectors"], settings["model"], settings["weight"]) == ("vectors", "model", weight)
    found = json.loads((out / "adapt.json").read_text())
    assert (found["winner"], found["weight"]) == (winner, weight)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].endswith(f"take {winner}")
    assert printed[-1].startswith(f'clearspan search {out} "..." searches the texts, ')
    assert winner in (out / "report.html").read_text()


@pytest.mark.guarantee("verdict-among-all")
def test_another_winner_replaces_the_model_and_its_vectors(options: Adapt, capsys: pytest.CaptureFixture[str]) -> None:
    state: dict[str, dict[str, str]] = {"steps": {}}
    delivery.deliver(decide(Verdicts(verdict("trained"))), state, options)
    state["steps"]["embed"] = "embed"
    (options.output / "vectors").mkdir()
    delivery.deliver(decide(Verdicts(verdict("trained"), verdict("owl", "questions", 60))), state, options)
    assert (options.output / "model/config.json").read_text() == "owl"
    assert not (options.output / "vectors").exists() and "embed" not in state["steps"]
    assert "the verdict has changed: the model is now owl, not trained" in capsys.readouterr().out


@pytest.mark.guarantee("output-kept")
def test_what_a_user_put_beside_the_model_and_the_vectors_stays_when_another_wins(
    options: Adapt, capsys: pytest.CaptureFixture[str]
) -> None:
    state: dict[str, dict[str, str]] = {"steps": {}}
    delivery.deliver(decide(Verdicts(verdict("trained"))), state, options)
    mine = [options.output / name for name in ("model/notes/owls.txt", "vectors/vectors-00000-000.tar")]
    for path in mine:
        path.parent.mkdir(parents=True)
        path.write_text("mine")
    delivery.deliver(decide(Verdicts(verdict("trained"), verdict("owl", "questions", 60))), state, options)
    assert (options.output / "model/config.json").read_text() == "owl"
    left = {path.relative_to(options.output).as_posix() for path in options.output.rglob("*.earlier/**/*.*")}
    assert left == {"model.earlier/notes/owls.txt", "vectors.earlier/vectors-00000-000.tar"}
    assert capsys.readouterr().out.count("holds files that are not of this command: moved to ") == 2


def test_a_copy_that_differs_is_moved_out_of_the_way(options: Adapt, capsys: pytest.CaptureFixture[str]) -> None:
    outcome, state = decide(Verdicts(verdict("owl"))), {"steps": {}}
    delivery.deliver(outcome, state, options)
    (options.output / "model/config.json").write_text("mine")
    delivery.deliver(outcome, state, options)
    assert (options.output / "model.damaged/config.json").read_text() == "mine"
    assert (options.output / "model/config.json").read_text() == "owl"
    assert "of which it was a copy: moved to " in capsys.readouterr().out


@pytest.mark.guarantee("adapted-folder-searches")
def test_the_prompt_of_queries_that_was_chosen_travels_with_the_folder(options: Adapt) -> None:
    outcome, state = decide(Verdicts(verdict("owl"))), {"steps": {}}
    named = dataclasses.replace(options, prompt_name=("none",))
    delivery.deliver(outcome, state, named)
    delivery.finish(outcome, state, named)
    assert unseal((options.output / "search.json").read_bytes())["prompt_name"] == "none"
