"""A task from outside the package: `--tasks module:name`, scored beside the built-in ones or refused in one line."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from clearspan.common.plugins import PluginError
from clearspan.eval.request import EvalOptions
from clearspan.eval.run import EvaluationError, score_models
from clearspan.eval.tasks.registry import family

HAIKU = '''
from pathlib import Path

import numpy as np

from clearspan.common.records import DataError, MissingDataError
from clearspan.common.encoder.embedder import unit_vectors
from clearspan.eval.scores import Examples, TaskScores, figure
from clearspan.eval.tasks.task import TaskContext


class Haiku:
    """Find the last line of each haiku by its first line."""

    name = "haiku"

    def __init__(self, data: Path) -> None:
        self.files = (data / "haiku.txt",)
        if not self.files[0].is_file():
            raise MissingDataError(f"no file {self.files[0]}")
        self.poems = [line.split(" / ") for line in self.files[0].read_text().splitlines()]
        if any(len(poem) != 3 for poem in self.poems):
            raise DataError(f"{self.files[0]}: a haiku has three lines")

    def score(self, run: TaskContext) -> TaskScores:
        first, last = (unit_vectors(run.embedder.embed([poem[line] for poem in self.poems])) for line in (0, 2))
        examples = Examples.of("mean", (first @ last.T).argmax(axis=1) == np.arange(len(first)))
        return TaskScores({"acc": figure(examples)}, "acc", ("acc",), {"poems": len(first)}, examples={"acc": examples})


def encode(texts: list[str]) -> list[list[int]]:
    return [[text.count(letter) for letter in "aehlnorstwy"] for text in texts]
'''
POEMS = """the old pond, so still / a frog leaps into the pond / the sound of water
over the winter / the wind howls in rage / with no leaves to blow
"""


@pytest.fixture
def haiku(own_module: Callable[[str], str], tmp_path: Path) -> str:
    """A module with the task `Haiku` and the model `encode`, beside a data folder."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "haiku.txt").write_text(POEMS)
    return own_module(HAIKU)


def request(module: str, *words: str) -> EvalOptions:
    return EvalOptions(
        model=(f"{module}:encode",), name=("letters",), tasks=words, data=Path("data"), output=Path("out"), quiet=True
    )


def test_a_task_from_the_working_folder_is_scored_beside_the_built_in_ones(haiku: str) -> None:
    (scored,) = score_models(request(haiku, "retrieval", f"{haiku}:Haiku"))
    assert scored.results.scores["haiku"]["acc"] in (0, 50, 100)
    assert scored.families == {"haiku": f"{haiku}:Haiku"}
    assert list(scored.results.skipped) == ["retrieval"]
    written = json.loads(Path("out/results.json").read_text())
    assert list(written["data"]["haiku"]) == ["data/haiku.txt"]
    assert "haiku" in Path("out/report.html").read_text()


def test_a_task_without_its_data_is_skipped(haiku: str) -> None:
    Path("data/haiku.txt").unlink()
    with pytest.raises(EvaluationError) as error:
        score_models(request(haiku, f"{haiku}:Haiku"))
    assert error.value.skipped == {f"{haiku}:Haiku": "no file data/haiku.txt"}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "class Haiku:\n    name = 'haiku'\n    def __init__(self, data): ...\n",
            "it lacks files, score",
        ),
        ("class Haiku: ...\n", "raised TypeError: "),
        ("Haiku = 'a poem'\n", "an object of type str"),
        ("class Waka: ...\n", "has no 'Haiku'"),
    ],
)
def test_a_task_that_breaks_the_contract_is_told_what_it_lacks(
    source: str, message: str, own_module: Callable[[str], str], tmp_path: Path
) -> None:
    name = own_module(source)
    with pytest.raises(PluginError, match=rf"^{name}:Haiku: .*{message}") as error:
        family(f"{name}:Haiku").load(tmp_path)
    assert "\n" not in str(error.value)


def test_a_task_that_returns_something_else_than_scores_is_named(haiku: str, own_module: Callable[[str], str]) -> None:
    own = own_module(f"from {haiku} import Haiku as Base\nclass Haiku(Base):\n    def score(self, run): return 3.5\n")
    with pytest.raises(EvaluationError, match=r"haiku: score\(\) must return eval.scores.TaskScores"):
        score_models(request(haiku, f"{own}:Haiku"))


def test_two_tasks_of_one_name_are_refused(haiku: str, own_module: Callable[[str], str]) -> None:
    with pytest.raises(EvaluationError, match="two tasks are called 'haiku'"):
        score_models(request(haiku, f"{haiku}:Haiku", f"{own_module(HAIKU)}:Haiku"))
