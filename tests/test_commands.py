"""The one command `clearspan`: every step is a subcommand of it, whose help is quick."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from clearspan.__main__ import COMMANDS, PIPELINES, main
from clearspan.pipelines.__main__ import KINDS, OTHERS
from tests.conftest import ROOT


def cpu_seconds_of(*words: str) -> tuple[float, str]:
    """What a process of its own takes, of its cores rather than of a busy machine's clock; and what it prints."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def test_every_kind_of_dataset_is_a_subcommand() -> None:
    named = {name for name, command in COMMANDS.items() if command.module == PIPELINES}
    assert named == {*KINDS, *OTHERS}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_help_takes_less_than_a_second_and_names_the_command_as_typed(name: str) -> None:
    seconds, text = cpu_seconds_of("-m", "clearspan", name, "--help")
    assert text.startswith(f"usage: python -m clearspan {name} ") and f"  clearspan {name} " in text
    assert seconds < 1


def test_the_list_of_commands_is_in_the_order_of_their_use(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    shown = capsys.readouterr().out
    assert sorted(COMMANDS, key=lambda name: shown.index(f"\n  {name} ")) == list(COMMANDS)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["documets"], "; did you mean 'documents'? (see --help)"),
        (["--versio"], "no such option: --versio; did you mean '--version'? (see --help)"),
        ([], "the following arguments are required: COMMAND (see --help)"),
        (["no_such_module:Kind", "--help"], f"there is no module no_such_module, installed or in {ROOT} (see --help)"),
    ],
)
def test_a_mistyped_command_is_one_line(
    words: list[str], message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit, match="2"):
        main(words)
    line = capsys.readouterr().err
    assert line.startswith("clearspan") and line.endswith(f"{message}\n") and line.count("\n") == 1


@pytest.mark.parametrize("typed", ["documents", "train", "sweep", "search", "shards ls"])
def test_an_error_names_the_command_as_typed(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*typed.split(), "--no-such-option"])
    assert capsys.readouterr().err.startswith(f"clearspan {typed}: ")


def test_adapt_works_outside_a_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It gets as far as its first real error."""
    words = ["--input", "texts.csv", "--model", str(tmp_path / "absent"), "--output", str(tmp_path / "out")]
    assert main(["adapt", *words]) == 2
    assert "absent: no such folder" in capsys.readouterr().err
