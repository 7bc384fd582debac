"""A command of the user's own, examples/extend/longest.py: alone, by its module and class, and as a subcommand."""

import json
import shutil
from pathlib import Path

import pytest

import clearspan.cli.main as clearspan_command
from clearspan.cli.catalog import Listing
from clearspan.shards import Dataset
from tests.conftest import ROOT, exit_code
from tests.processes import environment, run_commands

EXAMPLE = ROOT / "examples" / "extend" / "longest.py"


@pytest.mark.exhaustive
def test_it_has_help_limits_json_and_errors_of_one_line(dataset: Path, tmp_path: Path) -> None:
    def run(*words: str | Path) -> tuple[int, str, str]:
        done = run_commands([str(EXAMPLE), *map(str, words)], [environment()], folder=tmp_path)
        return done.returncode, done.stdout, done.stderr

    lengths = sorted((len(row["tokens"]) for batch in Dataset(dataset) for row in batch.to_pylist()), reverse=True)
    code, out, _ = run(dataset, "--top", "3", "--json")
    assert code == 0 and [row["tokens"] for row in json.loads(out)] == lengths[:3]
    assert f": {lengths[0]:,} tokens\n" in run(dataset)[1]
    assert "How many examples (default 5)" in run("--help")[1]
    assert run(dataset, "--top", "0")[::2] == (2, "python longest.py: --top must be at least 1, not 0 (see --help)\n")
    code, _, err = run(tmp_path / "nowhere")
    assert code == 1 and "no manifest.json" in err and err.count("\n") == 1


@pytest.mark.exhaustive
def test_clearspan_runs_it_from_the_working_folder(dataset: Path, tmp_path: Path) -> None:
    shutil.copy(EXAMPLE, tmp_path)

    def run(*words: str | Path) -> tuple[int, str, str]:
        command = ["-m", "clearspan", "longest:Longest", *map(str, words)]
        done = run_commands(command, [environment()], folder=tmp_path)
        return done.returncode, done.stdout, done.stderr

    assert run(dataset, "--top", "2")[1].count("example ") == 2
    code, out, err = run("--help")
    assert (code, err) == (0, "") and "usage: python -m clearspan longest:Longest [-h] " in out
    code, _, err = run(tmp_path / "nowhere")
    assert code == 1 and err.startswith("python -m clearspan longest:Longest: ") and err.count("\n") == 1


INCOMPLETE = """
from clearspan.cli.command import Command
class Nothing(Command):
    pass
number = 3
"""


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Nothing", "not a command: it lacks run (see clearspan.cli.command.Command)"),
        ("Nothin", "unfinished_command has no 'Nothin'; did you mean 'Nothing'?"),
        (
            "number",
            "an object of type int, not a builder of datasets (a subclass of clearspan.pipelines.builders.Builder)",
        ),
    ],
)
def test_a_class_that_is_no_command_is_refused_in_one_line(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "unfinished_command.py").write_text(INCOMPLETE)
    monkeypatch.syspath_prepend(tmp_path)
    assert exit_code(clearspan_command.main, f"unfinished_command:{name}") == 2
    assert capsys.readouterr().err == f"clearspan: unfinished_command:{name}: {message} (see --help)\n"


def test_a_line_makes_it_a_subcommand(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(EXAMPLE, tmp_path / "longest_examples.py")
    monkeypatch.syspath_prepend(tmp_path)
    line = Listing("longest_examples:Longest", "print the longest examples of a dataset")
    monkeypatch.setitem(clearspan_command.COMMANDS, "longest", line)
    assert clearspan_command.main(["longest", str(dataset), "--top", "1"]) == 0
    assert capsys.readouterr().out.startswith("example ")
    assert exit_code(clearspan_command.main, "longest", str(dataset), "--tip", "1") == 2
    assert "clearspan longest: no such option: --tip; did you mean '--top'?" in capsys.readouterr().err
    assert exit_code(clearspan_command.main, "--help") == 0
    assert "  longest     print the longest examples of a dataset\n" in capsys.readouterr().out
