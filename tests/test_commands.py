"""The one command `clearspan`: every step is a subcommand of it, whose help is quick."""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from clearspan.cli.catalog import COMMANDS, PIPELINES
from clearspan.cli.main import found, main
from clearspan.pipelines.__main__ import COMMANDS as OF_PIPELINES
from clearspan.pipelines.__main__ import OTHERS
from tests.conftest import ROOT

HEAVY = {
    *{"apache_beam", "deepspeed", "matplotlib", "sentence_transformers", "sklearn", "torch", "transformers"},
    *{"markdown_it", "pyarrow.compute", "webdataset"},
}
"""Packages that take half a second or more to import, and modules that few calls need."""
IMPORTED = "import sys; from clearspan.cli.main import main\ntry: main(sys.argv[1:])\nfinally: print(*sys.modules)"


def test_every_kind_of_dataset_is_a_subcommand() -> None:
    named = {name for name, command in COMMANDS.items() if command.command == PIPELINES}
    assert named == {*OF_PIPELINES} - {"mine", "search", "serve"} >= {"vocabulary"} and {*OTHERS} <= {*COMMANDS}


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_help_imports_nothing_that_is_slow(name: str) -> None:
    words = [sys.executable, "-c", IMPORTED, name, "--help"]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0 and f"  clearspan {name} " in done.stdout, done.stderr
    imported = done.stdout.splitlines()[-1].split()
    assert "argparse" in imported and not HEAVY & set(imported)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in OF_PIPELINES])
def test_help_begins_with_what_the_command_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A class's own docstring, "The command `eval`.", tells a user nothing."""
    module = "clearspan.train.run" if name == "train" else COMMANDS[name].module
    first = str(importlib.import_module(module).__doc__).partition("\n")[0]
    with pytest.raises(SystemExit, match="0"):
        main([name, "--help"])
    assert f"\n\n{first}\n" in capsys.readouterr().out


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.guarantee("nearest-name")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["documets"], "; did you mean 'documents'? (see --help)"),
        (["documets", "--input", "a"], "; did you mean 'documents'? (see --help)"),
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


@pytest.mark.guarantee("nearest-name")
@pytest.mark.parametrize("name", COMMANDS)
def test_only_the_whole_name_of_a_command_runs_it(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run: list[str] = []
    monkeypatch.setattr("clearspan.cli.main.importlib", SimpleNamespace(import_module=run.append))
    typed = {name.upper(), name.title(), name[:-1], name[1:], f"{name}s", f" {name}", f"{name} ", name[:3], f"--{name}"}
    for word in sorted(typed - {*COMMANDS}):
        with pytest.raises(SystemExit, match="2"):
            main([word, "--help"] if word[0] != "-" else [word])
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and line.startswith("clearspan: ")
        if word[0] != "-" and len(word) > 3:
            assert f"; did you mean '{name}'? (see --help)\n" in line
    assert not run


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.guarantee("nearest-name")
@pytest.mark.parametrize("typed", ["documents", "train", "sweep", "search", "shards ls"])
def test_an_error_names_the_command_as_typed(typed: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([*typed.split(), "--no-such-option"])
    assert capsys.readouterr().err.startswith(f"clearspan {typed}: ")


@pytest.mark.parametrize(
    ("name", "words"), [("search", ["owls"]), ("serve", []), ("mine", ["--negatives", "1", "--bm25", "1"])]
)
def test_a_failure_begins_with_the_name_of_the_command(
    name: str, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = ["--output", str(tmp_path / "mined")] if name == "mine" else []
    assert main([name, str(tmp_path / "none"), *words, *output]) == 1
    line = capsys.readouterr().err
    assert line.startswith(f"{name}: {tmp_path / 'none'}") and line.count("\n") == 1


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.parametrize("prog", ["clearspan", "python -m clearspan"])
@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_gets_its_words_and_its_name(name: str, prog: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path, environment = list(sys.path), dict(os.environ)

    def imported(module: str) -> SimpleNamespace:
        assert (sys.path, dict(os.environ)) == (path, environment), "what is imported does not depend on the folder"
        named = SimpleNamespace(work=lambda words, prog: (module, words, prog))
        return SimpleNamespace(**{COMMANDS[name].command.partition(":")[2]: named})

    monkeypatch.setattr("clearspan.cli.main.importlib", SimpleNamespace(import_module=imported))
    words = [name, "--input", "a:b", name]
    is_of_group = COMMANDS[name].is_of_group
    expected = (words, prog) if is_of_group else (["--input", "a:b", name], f"{prog} {name}")
    assert found(words, prog) == (COMMANDS[name].module, *expected)
    assert found([name], prog) == (COMMANDS[name].module, [name] if is_of_group else [], expected[1])


@pytest.mark.guarantee("installed-wheel")
def test_a_command_of_the_users_own_gets_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearspan.cli.main._own", lambda words, prog: [*words, prog])
    assert found(["owls:Count", "documents", "--help"], "clearspan") == [
        "owls:Count",
        "documents",
        "--help",
        "clearspan",
    ]


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.parametrize("words", [["--help"], ["--version"], ["--help", "documents"]])
def test_without_a_command_help_and_the_version_are_printed(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(words)
    printed = capsys.readouterr().out
    assert printed == "clearspan 0.1.0\n" or all(f"\n  {name:<12}" in printed for name in COMMANDS)


OWN = """from dataclasses import dataclass
from clearspan.cli.command import Command, Printed

@dataclass(frozen=True, kw_only=True)
class Owls(Command):
    def run(self):
        import tabulate  # not imported before
        print("owls", "mine" if hasattr(tabulate, "mine") else "installed")
        return Printed()
"""


@pytest.mark.guarantee("installed-wheel")
@pytest.mark.guarantee("no-code-beside-data")
@pytest.mark.slow
def test_a_command_of_ones_own_works_beside_files_named_as_libraries(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    for name in ("tabulate", "zstandard", "tokenizers"):
        (tmp_path / f"{name}.py").write_text("mine = True\n")
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONSAFEPATH": "1"}
    words = [sys.executable, "-m", "clearspan", "own:Owls"]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "owls installed\n"), done.stderr
