"""docs/recipes.md says of every recipe and key what the files and docstrings say, and is as they are today."""

from collections.abc import Callable

import pytest

from clearspan.train import __main__ as launcher
from clearspan.train import reference, run
from clearspan.train.config import layers
from clearspan.train.config.keys import keys
from clearspan.train.config.options import DatasetConfig, Recipe
from clearspan.train.objectives import config_class, types
from tests.conftest import ROOT

PAGE = ROOT / "docs" / "recipes.md"


@pytest.mark.slow
def test_the_page_is_what_the_command_writes(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main([]) == 0
    assert capsys.readouterr().out == PAGE.read_text()


def test_every_key_that_a_recipe_may_have_is_there() -> None:
    wanted = keys(Recipe) + keys(DatasetConfig) + [key for name in types() for key in keys(config_class(name))]
    assert {f"training.{key}" for key in ("max_hours", "zero_stage")} < set(wanted)
    page = PAGE.read_text()
    assert [key for key in wanted if f"| `{key.rpartition('.')[2]}` |" not in page] == []


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
