"""Options as JSON: what is read is what was written, of the class that was asked for, and checked again."""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import pytest
from annotated_types import Ge

from clearspan.adapt.options import Adapt
from clearspan.common.options import Flag, Options, from_keywords
from clearspan.common.plain_json import from_json, to_json
from clearspan.common.spawned import CommandError, call
from clearspan.pipelines.builders import Builder
from clearspan.pipelines.builders.pairs import Pairs
from clearspan.pipelines.dataset_command import MakeDataset, making
from clearspan.train.request import LauncherOptions, TrainOptions


@dataclass(frozen=True, kw_only=True)
class Owl(Options):
    """Options with a value of each form."""

    nest: Annotated[Path | None, Flag("DIR")] = None
    hours: Annotated[tuple[int, ...], Flag("H")] = ()
    prey: Annotated[tuple[str, ...], Flag("NAME")] = ("mice",)
    weight: Annotated[float, Flag("G"), Ge(0)] = 0.5
    sizes: dict[str, list[int]] = field(default_factory=dict)
    pairs: tuple[tuple[str, Path], ...] = ()


@dataclass(frozen=True, kw_only=True)
class BarnOwl(Owl):
    """A subclass."""

    barn: str = ""


OWLS = [
    Owl(),
    Owl(nest=Path("a barn/ü \ud800"), hours=(1, 2), prey=(), weight=0.1 + 0.2),
    Owl(sizes={"eggs": [4, 5]}, pairs=(("a", Path("b")),)),
    BarnOwl(barn="null", prey=("voles, shrews", "")),
    TrainOptions(recipe='{"output": "run"}', overrides=("a=1", "b='x y'"), resume=True),
    LauncherOptions(num_gpus=2, include_devices="0,2"),
    Adapt(inputs=("a.csv",), output=Path("out"), fields=("title", "text"), holdout_fraction=0.3),
]


@pytest.mark.parametrize("options", OWLS, ids=repr)
def test_what_is_read_is_what_was_written(options: Any) -> None:
    read = from_json(type(options), to_json(options))
    assert read == options and type(read) is type(options)
    for name, value in vars(options).items():
        assert type(getattr(read, name)) is type(value), name


def test_the_builder_and_the_options_of_a_dataset_are_read_as_they_were_made() -> None:
    given = {"input": ["a.csv", "b*.jsonl"], "output": "out", "tokenizer": "tok", "fields": "title,text", "dedup": True}
    command = from_keywords(making(Pairs), given)
    assert isinstance(command, MakeDataset)
    function, builder, options = command.request(("--runner=FlinkRunner",))
    assert function == "clearspan.pipelines.dataset_command:make" and options.beam == ("--runner=FlinkRunner",)
    read = from_json(Builder, to_json(builder))  # type: ignore[type-abstract]
    assert (read, from_json(type(options), to_json(options))) == (builder, options) and type(read) is Pairs


@pytest.mark.parametrize(
    "text",
    [
        to_json(LauncherOptions()),
        '{"class": "subprocess:Popen", "args": "ls"}',
        '{"class": "pathlib:Path"}',
        '{"class": "os:system"}',
    ],
)
def test_another_class_is_not_made(text: str) -> None:
    with pytest.raises(TypeError, match="expected"):
        from_json(Owl, text)


def test_values_are_checked_again() -> None:
    with pytest.raises(ValueError, match="weight"):
        from_json(Owl, to_json(Owl(weight=1.5)).replace("1.5", "-1.5"))
    with pytest.raises(TypeError, match="set: JSON has no such type"):
        to_json({1, 2})


ECHO = """
from clearspan.adapt.options import Adapt

def same(options: Adapt, numbers: tuple[int, ...]) -> Adapt:
    assert type(numbers) is tuple and numbers == (1, 2)
    print("in another process")
    return options

def fails(options: Adapt) -> Adapt:
    raise ZeroDivisionError("a defect")
"""


def test_a_result_comes_back_and_a_defect_shows_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "echo.py").write_text(ECHO)
    monkeypatch.setenv("PYTHONPATH", ":".join([str(tmp_path), *filter(None, sys.path)]))
    options = Adapt(inputs=("a.csv", "b"), output=tmp_path)
    assert call("echo:same", options, (1, 2)) == options
    assert capfd.readouterr().out == "in another process\n"
    with pytest.raises(CommandError, match=r"^echo:fails ended with exit code 1$"):
        call("echo:fails", options, expected=[ValueError])
    assert "ZeroDivisionError: a defect" in capfd.readouterr().out
