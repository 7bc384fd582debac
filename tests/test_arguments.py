"""Arguments of the public functions: a value of another type is refused by name, in one line, before any work."""

import datetime
import inspect
import math
import re
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import clearspan
from clearspan.common.terminal import UsageError
from clearspan.common.typed import MismatchError, conform
from clearspan.retrieval.search_command import Search

GIVEN: dict[str, dict[str, Any]] = {
    "Dataset": {"folder": "shards"},
    "Run": {"folder": "run"},
    "adapt": {"inputs": "texts.csv", "output": "adapted", "holdout_fraction": 0.2},
    "compare": {"a": "one", "b": "two"},
    "evaluate": {"model": "model", "tasks": ["sts"], "data": "data", "seed": 3},
    "export_model": {"run": "run", "output": "model"},
    "load_model": {"model": "model"},
    "load_recipe": {"name_or_file": "demo"},
    "make_dataset": {"kind": "documents", "inputs": "texts.csv", "output": "shards", "min_tokens": 2},
    "make_tokenizer": {"inputs": "texts.csv", "output": "tokenizer", "min_frequency": 2},
    "mine_negatives": {"pairs": "shards", "output": "mined", "bm25": 4, "min_score": 0.1},
    "open_collection": {"folder": "vectors", "model": "model"},
    "search": {"vectors": "vectors", "queries": "owls", "model": "model"},
    "train_model": {"recipe": "demo", "num_gpus": 1},
    "verify": {"folder": "shards"},
    "webdataset_pipeline": {"dataset": "shards"},
}
"""Each public function, and arguments that it takes."""
WRONG = [None, b"out", 3, 2.5, np.int64(3), np.float32(0.5), True, object(), {"a": 1}, np.zeros(3), ["a", b"b"], [None]]


def parameters(function: Callable[..., Any]) -> Iterator[tuple[str, Any]]:
    """The names of a function's arguments, with one of its further options, and what each takes."""
    target = function.__init__ if inspect.isclass(function) else function  # type: ignore[misc]
    hints = typing.get_type_hints(inspect.unwrap(target))
    for name, parameter in inspect.signature(function).parameters.items():
        further = parameter.kind is inspect.Parameter.VAR_KEYWORD
        yield "more" if further else name, hints[name]


def refused(hint: Any, value: Any) -> bool:
    try:
        conform(value, hint)
    except MismatchError:
        return True
    return False


@pytest.mark.guarantee("typed-arguments")
@pytest.mark.parametrize("name", GIVEN)
def test_an_argument_of_another_type_is_refused_by_its_name_and_nothing_is_made(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    function, tried = getattr(clearspan, name), 0
    for parameter, hint in parameters(function):
        for value in WRONG:
            if refused(hint, value):
                tried += 1
                with pytest.raises(UsageError, match=rf"^`{parameter}`(\.\d+)? must be ") as error:
                    function(**{**GIVEN[name], parameter: value})
                assert "\n" not in str(error.value)
    assert tried > 5 and not list(tmp_path.iterdir())


@pytest.mark.guarantee("typed-arguments")
def test_bytes_and_none_are_refused_everywhere_and_numbers_of_numpy_are_numbers(minilm: Path) -> None:
    for hint in (str | Path, int, float, bool, int | float | bool, list[str | Path]):
        assert refused(hint, b"out") and refused(hint, None)
    assert [conform(np.int64(3), int), conform(np.float32(0.5), float), conform(np.bool_(1), bool)] == [3, 0.5, True]
    assert type(conform(np.int64(3), int)) is int
    assert refused(int, True) and refused(int, 3.0) and refused(float, "1") and refused(bool, 1)
    assert Search(folder="v", model=str(minilm), query=("owls",), top=np.int64(3)).top == 3
    with pytest.raises(ValueError, match="`top` must be an integer, not None"):
        Search(folder="v", model=str(minilm), query=("owls",), top=None)


def test_an_argument_that_is_given_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"^input: already given"):
        clearspan.make_dataset("pairs", "a.csv", tmp_path / "out", input="b.csv", tokenizer="none")


def test_every_public_function_is_tried() -> None:
    made = {"Adapted", "Encoder"}  # what functions return
    assert GIVEN.keys() == set(clearspan.__all__) - made


@pytest.mark.parametrize("value", [b"3", object(), np.zeros(3), {1, 2}])
def test_a_recipe_takes_no_other_value_of_python(value: object) -> None:
    for given in ({"training.max_steps": value}, {"training": {"max_steps": value}}):
        with pytest.raises(UsageError, match=r"^training\.max_steps must be True or False or an integer or"):
            clearspan.load_recipe("demo", given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"optimizer.eps": math.nan}, "optimizer.eps must be finite"),
        ({"optimizer.betas": [0.9, np.float32("inf")]}, "optimizer.betas.1 must be finite"),
        ({"optimizer": {"options": {"eps": -math.inf}}}, "optimizer.options.eps must be finite"),
        ({"optimizer.options": {datetime.date(2024, 1, 1): 3}}, "optimizer.options: the key 2024-01-01 must be"),
        ({"model.config": {"a": {b"b": 2}}}, "model.config.a: the key b'b' must be a text"),
        ({"training.max_steps": 10**20}, "training.max_steps must be at most 9,223,372,036,854,775,807"),
        ({"training.max_steps": 10**400}, "training.max_steps must be at most 9,223,372,036,854,775,807"),
        ({"training.max_steps": 10**5000}, "training.max_steps: Exceeds the limit (4300 digits)"),
    ],
)
def test_a_value_of_python_that_yaml_would_change_is_refused_by_its_key(given: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{re.escape(message)}"):
        clearspan.load_recipe("demo", given)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan")])
def test_nan_and_infinities_are_refused_from_python_and_from_the_command_line(value: float) -> None:
    for given in (
        {"model.config.a": [value]},
        [f"model.config.a=[{str(value).replace('inf', '.inf').replace('nan', '.nan')}]"],
    ):
        with pytest.raises(UsageError, match=rf"^model\.config\.a\.0 must be finite, not {value}$"):
            clearspan.load_recipe("demo", given)


@pytest.mark.parametrize("value", [10**20, -(10**20), 2**53 + 1, 1e20])
def test_a_number_is_the_same_in_a_recipe_from_python_and_from_the_command_line(value: float) -> None:
    given = {"data.text.path": "shards", "output": "out", "model.config.x": value}
    loaded = clearspan.load_recipe("demo", given)
    assert clearspan.load_recipe("demo", [f"{key}={each}" for key, each in given.items()]) == loaded
    found = loaded.model.config["x"]
    assert found == value and type(found) is type(value)
