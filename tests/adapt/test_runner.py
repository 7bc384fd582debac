"""What an earlier call made by other commands is refused, whichever step it is."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clearspan.adapt import run, runner
from clearspan.adapt.options import UNTRAINED, Adapt
from clearspan.adapt.runner import UPDATED, AdaptRecord, with_share, with_stemmer
from clearspan.adapt.stages import Stage
from clearspan.cli.command import Command
from clearspan.common.model_folder import EncoderError
from clearspan.common.terminal import UsageError
from clearspan.eval.verdict import TRAINED
from clearspan.shards.manifest import ManifestError

OPTIONS = Adapt(inputs=("owls.jsonl",), output=Path("adapted"))


class Told(Stage):
    """A stage with a command line as it is given."""

    __slots__ = ()

    @property
    def recorded(self) -> str:
        return f"python -m clearspan.pipelines {self.about}"


def stage(name: str, words: str, is_known: bool = True) -> Stage:
    return Told(name, words, ("clearspan.pipelines",), Command, {}, is_known, of_call={"update": True})


def made(**commands: str) -> dict[str, str]:
    """Return the commands of finished stages, as adapt.json holds them."""
    return {name: f"python -m clearspan.pipelines {words}" for name, words in commands.items()}


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
                AdaptRecord(OPTIONS.output, state).check(stage(name, words), OPTIONS)
            made_by = f"its step {name} was made by another command; name another folder: {finished[name]}"
            assert str(caught.value) == f"`output` adapted: {made_by}"
        else:
            AdaptRecord(OPTIONS.output, state).check(stage(name, words), OPTIONS)


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize("more", [{}, {"embed": "embed"}, {UPDATED: "yes"}])
def test_a_training_that_an_earlier_version_evaluated_more_often_is_finished(
    more: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "clearspan.train --recipe=pairs training.eval_steps={} training.max_steps={}"
    steps = {**made(train=line.format(57, 225)), **{name: text for name, text in more.items() if name != UPDATED}}
    state: dict[str, Any] = {"steps": steps, **({UPDATED: True} if UPDATED in more else {})}
    record = AdaptRecord(OPTIONS.output, state)
    monkeypatch.setattr(runner, "damage", lambda *_: "")
    monkeypatch.setattr(Stage, "run", lambda *_: pytest.fail("trains again"))
    record.run(stage("train", line.format(113, 225))._replace(of_call={}), OPTIONS)
    assert record.commands["train"] == steps["train"]
    with pytest.raises(UsageError, match="its step train was made by another command"):
        record.check(stage("train", line.format(57, 300)), OPTIONS)
    own = dataclasses.replace(OPTIONS, overrides=("training.eval_steps=113",))
    with pytest.raises(UsageError, match="its step train was made by another command"):
        record.check(stage("train", line.format(113, 225)), own)


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
    def until_verdict(options: Adapt, check: Callable[[Stage], object]) -> None:
        assert options is OPTIONS
        for each in (
            stage("tokenizer", "vocabulary"),
            stage("texts", "pairs"),
            stage("train", "RECIPE", is_known=False),
        ):
            check(each)
        if problem is not None:
            raise problem

    monkeypatch.setattr(run, "until_verdict", until_verdict)
    monkeypatch.setattr(run.stages, "embed", lambda _, source: stage("embed", f"embed {source.relative_to('adapted')}"))
    state: dict[str, Any] = {"steps": made(**done), "delivered": TRAINED}
    if not refused:
        run.refuse_other_commands(OPTIONS, AdaptRecord(OPTIONS.output, state))
        return
    with pytest.raises(UsageError, match=f"its step {refused} was made by another command"):
        run.refuse_other_commands(OPTIONS, AdaptRecord(OPTIONS.output, state))


@pytest.mark.guarantee("adapt-reads-all-inputs")
@pytest.mark.parametrize(
    ("delivered", "is_same"),
    [(TRAINED, False), (UNTRAINED, True), ("all-MiniLM-L6-v2", True), (None, True)],
)
def test_the_vectors_are_compared_if_the_model_that_was_delivered_is_still_compared(
    delivered: str | None, is_same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder holds the vectors of the static encoder that was not trained."""
    monkeypatch.setattr(run, "until_verdict", lambda *_: None)
    monkeypatch.setattr(run.stages, "embed", lambda _, source: stage("embed", f"embed {source.relative_to('adapted')}"))
    assert list(OPTIONS.untrained) == [UNTRAINED]
    base = str(OPTIONS.base.relative_to("adapted"))
    state: dict[str, Any] = {"steps": made(embed=f"embed {base}"), **({"delivered": delivered} if delivered else {})}
    if is_same:
        run.refuse_other_commands(OPTIONS, AdaptRecord(OPTIONS.output, state))
        return
    with pytest.raises(UsageError, match="its step embed was made by another command"):
        run.refuse_other_commands(OPTIONS, AdaptRecord(OPTIONS.output, state))


def test_the_stemmer_is_that_of_the_texts_and_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f'{{"title": "Eule {n}", "text": "Die Eulen jagen in Wald {n} bei Nacht."}}\n' for n in range(50))
    (tmp_path / "a.jsonl").write_text(rows)
    options, record = (
        Adapt(inputs=(str(tmp_path / "a.jsonl"),), output=tmp_path / "out"),
        AdaptRecord(tmp_path, {"steps": {}}),
    )
    assert with_stemmer(options, record).bm25_stemmer == record.content["stemmer"] == "german"
    assert "German" in capsys.readouterr().out
    (tmp_path / "a.jsonl").write_text('{"title": "An owl", "text": "Owls hunt mice at night in the woods."}\n' * 50)
    assert with_stemmer(options, record).stemmer == "english", "no dataset is made yet"
    record.content |= {"steps": {"texts": "pairs"}, "stemmer": "german"}
    assert with_stemmer(options, record).stemmer == "german", "as for the dataset"
    assert with_stemmer(dataclasses.replace(options, stemmer="none"), record).bm25_stemmer is None
    assert with_stemmer(dataclasses.replace(options, stemmer="dutch"), record).bm25_stemmer == "dutch"
    earlier = AdaptRecord(tmp_path, {"steps": {"texts": "pairs"}})
    assert with_stemmer(options, earlier).bm25_stemmer is None, "a folder that an earlier version made"


@pytest.mark.parametrize(
    ("done", "share", "trained"),
    [
        ((), None, "interpolated/model"),
        (("train",), None, "interpolated/model"),
        (("train", "judge"), None, "run/model"),
        (("train", "interpolate", "judge"), None, "interpolated/model"),
        (("train", "judge"), 1.0, "run/model"),
        ((), 0.5, "interpolated/model"),
        ((), 1.0, "run/model"),
    ],
)
def test_a_folder_that_was_judged_without_a_share_keeps_the_trained_model(
    done: tuple[str, ...], share: float | None, trained: str, minilm: Path
) -> None:
    options = Adapt(inputs=("owls.jsonl",), output=Path("adapted"), model=str(minilm), share=share)
    record = AdaptRecord(options.output, {"steps": dict.fromkeys(done, "")})
    assert with_share(options, record).trained == Path("adapted") / trained
    static = dataclasses.replace(options, model=None)
    expected = "interpolated/model" if share == 0.5 else "run/model"
    assert with_share(static, record).trained == Path("adapted") / expected, "as before, unless a share is given"


@pytest.mark.parametrize(("first", "later"), [(None, 1.0), (None, 0.25), (1.0, 0.5), (0.5, 1.0), (0.5, 0.0)])
def test_another_share_on_a_later_call_is_refused(first: float | None, later: float, minilm: Path) -> None:
    options = Adapt(inputs=("owls.jsonl",), output=Path("adapted"), model=str(minilm), share=first)
    record = AdaptRecord(options.output, {"steps": {}})
    assert with_share(options, record) == options
    record.content["steps"] = {"train": "", "interpolate": "", "judge": ""}
    with pytest.raises(UsageError, match=f"`share` {later:g}: .* another `output`"):
        with_share(dataclasses.replace(options, share=later), record)
    assert with_share(dataclasses.replace(options, share=None), record).share == first


def test_until_a_model_has_a_share_another_replaces_it_and_none_keeps_it(minilm: Path) -> None:
    options = Adapt(inputs=("owls.jsonl",), output=Path("adapted"), model=str(minilm))
    record = AdaptRecord(options.output, {"steps": {"train": ""}})
    given = (None, 0.25, None, 1.0, None, 0.0, None)
    shares = [with_share(dataclasses.replace(options, share=share), record).share for share in given]
    assert shares == [None, 0.25, 0.25, 1.0, 1.0, 0.0, 0.0]
