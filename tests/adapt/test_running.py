"""What an earlier call made by other commands is refused, whichever step it is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from clearspan.adapt import running
from clearspan.adapt.options import UNTRAINED, Adapt
from clearspan.adapt.steps import Step
from clearspan.adapt.updating import UPDATED
from clearspan.common.model_folder import EncoderError
from clearspan.common.terminal import UsageError
from clearspan.eval.verdict import TRAINED
from clearspan.shards.manifest import ManifestError

OPTIONS = Adapt(inputs=("owls.jsonl",), output=Path("adapted"))


def step(name: str, words: str, is_known: bool = True) -> Step:
    return Step(name, "", "clearspan.pipelines", tuple(words.split()), is_known, of_call=("--update",))


def made(**steps: str) -> dict[str, str]:
    """Return the commands of finished steps, as adapt.json holds them."""
    return {name: f"python -m clearspan.pipelines {words}" for name, words in steps.items()}


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("name", "done", "words", "refused"),
    [
        ("texts", None, "pairs", ()),
        ("texts", "pairs --dedup", "pairs --dedup", ()),
        ("texts", "pairs --dedup", "pairs", ("first", "finished", "updated")),
        ("texts", "pairs", "documents", ("first", "finished", "updated")),
        ("train", "lora", "full", ("first", "finished", "updated")),
        ("embed", "embed --precision=fp32", "embed", ("first", "finished", "updated")),
        ("judge", "judge --stemmer=turkish", "judge", ()),
        ("questions", "questions", "questions --id-field=id", ()),
        ("texts", "pairs --input=owls.csv", "pairs --input=owls.jsonl", ("first",)),
        ("texts", "pairs --input=owls.csv", "pairs --input=owls.csv --input=more.csv", ("first",)),
        ("embed", "embed --chunk-tokens=64", "embed --chunk-tokens=96", ("first",)),
        ("embed", "embed", "embed --chunk-tokens=96", ("first",)),
        ("embed", "embed --chunk-tokens=64", "embed", ("first",)),
        ("embed", "embed --input=a --chunk-tokens=64 --output=b", "embed --input=b --output=b", ("first",)),
        ("embed", "embed --input=a --chunk-tokens=64 --output=b", "embed --input=b --output=c", ("first", "finished")),
    ],
)
def test_a_step_that_another_command_finished_is_refused(
    name: str, done: str | None, words: str, refused: tuple[str, ...]
) -> None:
    finished = made(**({name: done} if done else {}))
    states: dict[str, dict[str, Any]] = {"first": {"steps": finished}, "updated": {"steps": finished, UPDATED: True}}
    if name == "embed":  # the last step, by which a folder is finished
        states = {"finished": states["first"]}
    else:
        states["finished"] = {"steps": {**made(embed="embed"), **finished}}
    for kind, state in states.items():
        if kind in refused:
            with pytest.raises(UsageError) as caught:
                running._check_same(step(name, words), state, OPTIONS)
            made_by = f"its step {name} was made by another command; name another folder: {finished[name]}"
            assert str(caught.value) == f"`output` adapted: {made_by}"
        else:
            running._check_same(step(name, words), state, OPTIONS)


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize("problem", [None, ManifestError("damaged"), EncoderError("damaged"), FileNotFoundError()])
@pytest.mark.parametrize(
    ("done", "refused"),
    [
        ({}, ""),
        ({"tokenizer": "vocabulary", "texts": "pairs", "embed": "embed run/model"}, ""),
        ({"tokenizer": "vocabulary --size=9", "texts": "pairs"}, "tokenizer"),
        ({"tokenizer": "vocabulary", "texts": "pairs --dedup"}, "texts"),
        ({"train": "lora"}, ""),  # its command is not known yet
        ({"embed": "embed start"}, "embed"),
    ],
)
def test_each_step_whose_command_is_known_is_compared_with_what_is_finished(
    done: dict[str, str], refused: str, problem: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steps(options: Adapt, runs: bool) -> Iterator[Step]:
        assert options is OPTIONS and not runs
        yield from (step("tokenizer", "vocabulary"), step("texts", "pairs"), step("train", "RECIPE", is_known=False))
        if problem is not None:
            raise problem

    monkeypatch.setattr(running, "steps", steps)
    monkeypatch.setattr(running, "embedding", lambda _, source: step("embed", f"embed {source.relative_to('adapted')}"))
    state = {"steps": made(**done), "delivered": TRAINED}
    if not refused:
        running.check_finished(state, OPTIONS)
        return
    with pytest.raises(UsageError, match=f"its step {refused} was made by another command"):
        running.check_finished(state, OPTIONS)


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("delivered", "is_same"),
    [(TRAINED, False), (UNTRAINED, True), ("all-MiniLM-L6-v2", True), (None, True)],
)
def test_the_vectors_are_compared_if_the_model_that_was_delivered_is_still_compared(
    delivered: str | None, is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder holds the vectors of the static encoder that was not trained."""
    monkeypatch.setattr(running, "steps", lambda *_, **__: iter(()))
    monkeypatch.setattr(running, "embedding", lambda _, source: step("embed", f"embed {source.relative_to('adapted')}"))
    assert list(OPTIONS.untrained) == [UNTRAINED]
    base = str(OPTIONS.base.relative_to("adapted"))
    state = {"steps": made(embed=f"embed {base}"), **({"delivered": delivered} if delivered else {})}
    if is_same:
        running.check_finished(state, OPTIONS)
        return
    with pytest.raises(UsageError, match="its step embed was made by another command"):
        running.check_finished(state, OPTIONS)
