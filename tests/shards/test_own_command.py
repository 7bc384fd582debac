"""A command of the user's own, examples/extend/longest.py: alone, and as a subcommand by one line."""

import json
import shutil
from pathlib import Path

import pytest

import clearspan.__main__ as clearspan_command
from clearspan.common.catalog import Entry
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
    assert "how many examples (default 5)" in run("--help")[1]
    assert run(dataset, "--top", "0")[::2] == (2, "python longest.py: --top must be at least 1, not 0 (see --help)\n")
    code, _, err = run(tmp_path / "nowhere")
    assert code == 1 and "no manifest.json" in err and err.count("\n") == 1


def test_a_line_makes_it_a_subcommand(
    dataset: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copy(EXAMPLE, tmp_path / "longest_examples.py")
    monkeypatch.syspath_prepend(tmp_path)
    line = Entry("longest_examples", "print the longest examples of a dataset")
    monkeypatch.setitem(clearspan_command.COMMANDS, "longest", line)
    assert clearspan_command.main(["longest", str(dataset), "--top", "1"]) == 0
    assert capsys.readouterr().out.startswith("example ")
    assert exit_code(clearspan_command.main, "longest", str(dataset), "--tip", "1") == 2
    assert "clearspan longest: no such option: --tip; did you mean '--top'?" in capsys.readouterr().err
    assert exit_code(clearspan_command.main, "--help") == 0
    assert "  longest     print the longest examples of a dataset\n" in capsys.readouterr().out
