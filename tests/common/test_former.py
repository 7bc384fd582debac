"""Words that went are refused with the word that takes their place, wherever a user may write them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import pytest

import clearspan
from clearspan.cli.parser import parse
from clearspan.common import former
from clearspan.common.encoder import packed_pooling, pooling_names
from clearspan.common.options import Flag, Options, from_keywords
from clearspan.common.terminal import UsageError
from clearspan.eval.__main__ import main
from clearspan.train.config.options import ModelConfig, RecipeError
from clearspan.train.recipe import load_recipe


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    went = {"--lenght": "write --size", "training.lenght": "write training.max_steps"}
    monkeypatch.setattr(former, "FORMER", {**former.FORMER, **went})


class Sized(Options):
    size: Annotated[int, Flag("N")] = 1
    """Size."""


@pytest.mark.guarantee("changed-words")
def test_an_option(gone: None) -> None:
    with pytest.raises(UsageError, match=r"^no such option: (--)?lenght: write --size$"):
        parse(Sized, ["--lenght", "3"], prog="sized", raises=True)


@pytest.mark.guarantee("changed-words")
def test_a_word_that_never_was_has_no_advice() -> None:
    assert former.advice("--never") == "" and former.advice("--pooling cls-before-head").startswith(": write cls,")


@pytest.mark.guarantee("changed-words")
def test_a_recipe_key(gone: None) -> None:
    with pytest.raises(RecipeError, match=r"unknown key 'training.lenght': write training.max_steps$"):
        load_recipe("demo", ["data.text.path=d", "output=o", "model.path=m", "training.lenght=3"])


@pytest.mark.guarantee("changed-words")
def test_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, output = str(tmp_path), str(tmp_path / "out")
    with pytest.raises(SystemExit):
        main(["--model", "bow", "--tasks", "sts", "--data", data, "--output", output, "--pooling", "cls-before-head"])
    assert "write cls," in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"^`pooling` cls-before-head: write cls,"):
        clearspan.evaluate("bow", "sts", data, output, pooling="cls-before-head")


def test_the_poolings_are_one_table() -> None:
    """What training offers, and what is computed of packed batches, are entries of it."""
    (offered,) = (set(each.__args__) for each in [ModelConfig.__annotations__["pooling"]])
    assert offered == {"", *pooling_names.TRAINED}
    computed = {name for name, use in pooling_names.POOLINGS.items() if use.exported}
    assert packed_pooling.FUNCTIONS.keys() == computed


@pytest.mark.guarantee("changed-words")
@pytest.mark.parametrize("word", former.FORMER)
def test_the_advice_is_told_to_its_end(word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert former.advice(word) == f": {former.FORMER[word]}"
    with pytest.raises(SystemExit):
        main(
            [
                "--model",
                "bow",
                "--tasks",
                "sts",
                "--data",
                str(tmp_path),
                "--output",
                str(tmp_path / "o"),
                *word.split(),
            ]
        )
    assert former.FORMER[word] in capsys.readouterr().err


@dataclass(frozen=True, kw_only=True)
class Split(Options):
    unit: Annotated[str, Flag(choices=("word", "token"))] = "word"
    """Unit of the lengths."""


LONG = f"write --size N, which counts words (as --lenght did until 0.1), {'and ' * 100}not characters"
NEVER = [
    "--lenghts", "--lengh", "--LENGHT", "--lenght ", " --lenght", "lenght", "--lenght=3", "--lenght 3", "--size", "",
    "--", "--pooling", "--pooling cls", "--pooling CLS-before-head", "--pooling cls-before-heads",
    "--pooling cls-before", "--pooling  cls-before-head", "--pooling mean", "pooling cls-before-head",
    "--pool cls-before-head", "cls-before-head", "training.lenghts", "training", "lenght.training", "Training.lenght",
    "--training.lenght",
]  # fmt: skip


@pytest.mark.guarantee("changed-words")
def test_at_each_door_only_the_word_itself_is_advised_and_each_time_to_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where another word is more similar to one that is known."""
    went = {"--lenght": LONG, "--units": "write --unit once", "--unit words": LONG, "training.lenght": LONG}
    monkeypatch.setattr(former, "FORMER", {**former.FORMER, **went})
    recipe = ["data.text.path=d", "output=o", "model.path=m"]
    doors: list[tuple[Callable[[], object], str]] = [
        (lambda: parse(Sized, ["--lenght", "3"], prog="sized", raises=True), f"no such option: --lenght: {LONG}"),
        (lambda: parse(Split, ["--units=3"], prog="split", raises=True), "no such option: --units: write --unit once"),
        (lambda: from_keywords(Sized, {"lenght": 3}), f"no such option: lenght: {LONG}"),
        (lambda: from_keywords(Split, {"units": 3}), "no such option: units: write --unit once"),
        (lambda: Split(unit="words"), f"`unit` words: {LONG}"),
        (lambda: from_keywords(Split, {"unit": "words"}), f"`unit` words: {LONG}"),
        (lambda: parse(Split, ["--unit", "words"], prog="split", raises=True), f"token'): {LONG}"),
        (lambda: load_recipe("demo", [*recipe, "training.lenght=3"]), f"unknown key 'training.lenght': {LONG}"),
    ]
    for refused, message in doors * 2:
        with pytest.raises(ValueError, match=f"{re.escape(message)}$"):
            refused()
    assert [former.advice(word) for word in NEVER] == [""] * len(NEVER)
