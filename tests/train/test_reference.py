"""docs/recipes.md says of every recipe and key what the files and docstrings say, and is as they are today."""

import dataclasses
from collections.abc import Callable
from pathlib import Path

import pytest

from clearspan.train import __main__ as launcher
from clearspan.train import reference, run
from clearspan.train.config import layers
from clearspan.train.config.keys import keys
from clearspan.train.objectives import config_class, types
from clearspan.train.options import DatasetConfig, Recipe
from clearspan.train.schedules import OptimizerConfig
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "recipes.md"


@dataclasses.dataclass
class Base:
    """What both have.

    Args:
        first, second: two words that are said together and go on in a
            second line.
    """

    first: int = 1
    second: str = ""


@dataclasses.dataclass
class Derived(Base):
    """More of it.

    Args:
        third: a|b, of its own.
        fourth: said last.

    Note: this is no key.
    """

    third: float | None = None
    fourth: list[int] = dataclasses.field(default_factory=lambda: [1, 2])
    second: str = "x"


@pytest.mark.slow
def test_the_page_is_what_the_command_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main([]) == 0
    assert capsys.readouterr().out == PAGE.read_text()


def test_every_key_that_a_recipe_may_have_is_there() -> None:
    wanted = keys(Recipe) + keys(DatasetConfig) + [key for name in types() for key in keys(config_class(name))]
    assert {f"training.{key}" for key in ("max_hours", "zero_stage")} < set(wanted)
    page = PAGE.read_text()
    assert [key for key in wanted if f"| `{key.rpartition('.')[2]}` |" not in page] == []


def test_a_meaning_comes_from_the_docstring_of_the_class_that_says_it() -> None:
    together = "two words that are said together and go on in a second line"
    assert reference.meanings(Derived) == {
        "first": together,
        "second": together,
        "third": "a|b, of its own",
        "fourth": "said last",
    }


def test_a_row_has_type_default_and_meaning() -> None:
    rows = reference.keys(Derived, Base)
    assert rows == [
        ["`third`", "float or null", "`null`", "a|b, of its own"],
        ["`fourth`", "list of int", "`[1, 2]`", "said last"],
    ]
    assert r"| a\|b, of" in reference.table(["key", "type", "default", "meaning"], rows)
    assert reference.keys(DatasetConfig)[0][2] == "must be given"


def test_a_type_has_its_range_or_its_choices() -> None:
    types = {row[0]: row[1] for row in reference.keys(DatasetConfig) + reference.keys(OptimizerConfig)}
    assert types["`share`"] == "float, above 0, at most 1" and types["`batch_size`"] == "int, at least 1"
    assert types["`short_documents`"] == "`error` or `skip` or `shrink`"
    assert types["`eps`"] == "float, above 0"
    assert types["`betas`"] == "list of float, at least 0, below 1"


def test_a_key_of_which_nothing_is_said_is_an_error() -> None:
    @dataclasses.dataclass
    class Silent:
        """Nothing."""

        width: int = 1

    with pytest.raises(reference.UndocumentedError, match=r"Silent: its docstring does not describe width"):
        reference.keys(Silent)


def test_a_recipe_that_does_not_say_what_it_is_for_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("extends: demo\n# late\n")
    with pytest.raises(reference.UndocumentedError, match=r"mine\.yaml: its first line does not say what it is for"):
        reference.purpose(tmp_path / "mine.yaml")


@pytest.mark.parametrize("main", [run.main, launcher.main])
def test_the_list_has_a_line_for_each_recipe_and_asks_for_none(
    main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 120
    assert sorted(line.split()[0] for line in lines if line.startswith("  ")) == layers.names()
    assert "  declutr-small                      DeCLUTR-small: continued pretraining of DistilRoBERTa" in "\n".join(
        lines
    )
