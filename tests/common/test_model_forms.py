"""`--model static:DIR` and `hybrid:DIR`: a command that does not take the form says what to write, in one line."""

from pathlib import Path

import pytest

from clearspan.cli.main import main
from clearspan.common.model_forms import HYBRID, STATIC, model_value_error
from tests.conftest import exit_code

REST = {
    "adapt": ("--input", "texts.csv", "--output", "adapted", "--dry-run"),
    "distill": ("--output", "static"),
    "embed": ("--input", "texts.csv", "--output", "vectors"),
    "eval": ("--pairs", "pairs.csv", "--output", "scores"),
    "search": ("vectors", "--query", "owls"),
}
TAKEN = {"adapt": STATIC, "eval": HYBRID}
FORMS = [
    "static:",
    "hybrid:",
    "static:DIR",
    "hybrid:DIR",
    "static:static:DIR",
    "hybrid:hybrid:DIR",
    "hybrid:static:DIR",
]


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.usefixtures("command_line")
@pytest.mark.parametrize("command", REST)
def test_a_form_that_the_command_does_not_take_is_led_out_of(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.csv").write_text("title,text\nowls,they hunt at dusk\n")
    for spec in FORMS:
        if (problem := model_value_error(spec, TAKEN.get(command, ""))) is None:
            assert spec == f"{TAKEN[command]}DIR"
            continue
        assert exit_code(main, command, "--model", spec, *REST[command]) == 2
        line = capsys.readouterr().err
        assert line.count("\n") == 1 and f"{spec!r}: {problem}" in line


@pytest.mark.guarantee("one-line-errors")
@pytest.mark.parametrize(
    ("spec", "taken", "said"),
    [
        ("", "", "names no folder: write DIR"),
        ("static: ", "", "names no folder: write DIR"),
        ("static: ", STATIC, "names no folder: write static:DIR"),
        ("static:DIR", HYBRID, "clearspan distill --model DIR --output NEW"),
        ("hybrid:static:DIR", HYBRID, "clearspan distill --model DIR --output NEW"),
        ("hybrid:DIR", STATIC, "name DIR alone"),
        ("static:static:DIR", STATIC, "write static: once: static:DIR"),
        ("static:hybrid:DIR", STATIC, "name DIR alone"),
    ],
)
def test_what_is_said_leads_out(spec: str, taken: str, said: str) -> None:
    assert said in str(model_value_error(spec, taken))


@pytest.mark.guarantee("one-line-errors")
def test_a_folder_of_that_name_is_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "static:owls").mkdir()
    assert [model_value_error(spec) for spec in ("static:owls", "owls", "tfidf")] == [None] * 3
    assert model_value_error("static:owls", HYBRID) is None
    assert model_value_error("static:owls", STATIC) is model_value_error("static:barn owls", STATIC) is None


@pytest.mark.guarantee("one-line-errors")
def test_what_is_said_depends_on_the_folders_that_are_there_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for spec in ("static:owls", "hybrid:owls", "static:hybrid:owls"):
        for name, makes_it_a_path in (("owls", False), (spec, True)):
            assert model_value_error(spec) is not None
            (tmp_path / name).mkdir()
            assert (model_value_error(spec) is None) == makes_it_a_path
            (tmp_path / name).rmdir()
            (tmp_path / name).touch()
            assert (model_value_error(spec) is None) == makes_it_a_path
            (tmp_path / name).unlink()
        assert model_value_error(spec) is not None
