"""Words that went are refused with the word that takes their place, wherever a user may write them."""

from pathlib import Path
from typing import Annotated

import pytest

import clearspan
from clearspan.common import former
from clearspan.common.encoder import packed_pooling, pooling_names
from clearspan.common.options import Flag, Options, parse
from clearspan.common.terminal import UsageError
from clearspan.eval.__main__ import main
from clearspan.train.config.options import ModelConfig, RecipeError
from clearspan.train.recipe import load_recipe


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> None:
    went = {"--lenght": "write --size", "training.lenght": "write training.max_steps"}
    monkeypatch.setattr(former, "FORMER", {**former.FORMER, **went})


class Sized(Options):
    size: Annotated[int, Flag("size", "N")] = 1


@pytest.mark.guarantee("changed-words")
def test_an_option(gone: None) -> None:
    with pytest.raises(UsageError, match=r"^no such option: lenght: write --size$"):
        parse(Sized, ["--lenght", "3"], prog="sized", raises=True)


@pytest.mark.guarantee("changed-words")
def test_a_word_that_never_was_has_no_advice() -> None:
    assert former.advice("--never") == "" and former.advice("--pooling cls").startswith(": write pooler")


@pytest.mark.guarantee("changed-words")
def test_a_recipe_key(gone: None) -> None:
    with pytest.raises(RecipeError, match=r"unknown key 'training.lenght': write training.max_steps$"):
        load_recipe("demo", ["data.text.path=d", "output=o", "model.path=m", "training.lenght=3"])


@pytest.mark.guarantee("changed-words")
def test_a_value(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, output = str(tmp_path), str(tmp_path / "out")
    with pytest.raises(SystemExit):
        main(["--model", "bow", "--tasks", "sts", "--data", data, "--output", output, "--pooling", "cls"])
    assert "write pooler for [CLS] through the model's head" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"^pooling cls: write pooler for"):
        clearspan.evaluate("bow", "sts", data, output, pooling="cls")


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
