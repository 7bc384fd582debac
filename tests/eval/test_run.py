"""Runs of several models, and runs that share cached embeddings."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from clearspan.common import compute
from clearspan.eval.__main__ import main
from tests.conftest import exit_code

ROWS = [
    ("an owl hunts at night", "an owl hunts in the dark", 4.5),
    ("an owl hunts at night", "a man plays a guitar", 0.0),
    ("a man plays", "a man plays a guitar", 3.5),
    ("snow falls", "it snows in the north", 4.0),
    ("snow falls", "the owl sleeps", 0.5),
    ("the dark", "at night", 3.0),
]
NUM_TEXTS = len({text for *texts, _ in ROWS for text in texts})


def letters(texts: list[str]) -> np.ndarray:
    """Encode texts as counts of their letters."""
    return np.array([[text.count(chr(97 + letter)) for letter in range(26)] for text in texts])


def lengths(texts: list[str]) -> np.ndarray:
    return np.array([[len(text), len(text.split()), 1] for text in texts])


def breaks_down(texts: list[str]) -> np.ndarray:
    """Return two rows at most: enough for the two texts of the trial, too few for more."""
    return np.ones((min(len(texts), 2), 2))


def not_finite(texts: list[str]) -> np.ndarray:
    return np.array([[np.nan if "owl" in text else len(text), 1] for text in texts])


def talks(texts: list[str]) -> np.ndarray:
    print("loading my model")
    return letters(texts)


def is_interrupted(texts: list[str]) -> np.ndarray:
    raise KeyboardInterrupt


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    words = sorted({word for *texts, _ in ROWS for text in texts for word in text.split()})
    rng = np.random.default_rng(0)
    path = tmp_path / "owls.txt"
    path.write_text("".join(f"{word} {' '.join(map(str, rng.normal(size=8)))}\n" for word in words))
    return path


@pytest.fixture
def arguments(tmp_path: Path) -> list[str]:
    pairs = tmp_path / "owls.csv"
    pairs.write_text("".join(f'"{left}","{right}",{score}\n' for left, right, score in ROWS))
    output, cache = tmp_path / "out", tmp_path / "cache"
    return ["--pairs", str(pairs), "--output", str(output), "--device", "cpu", "--cache", str(cache), "--quiet"]


def results_of(folder: Path) -> dict:
    return json.loads((folder / "results.json").read_text())


def models(*names: str) -> list[str]:
    return [argument for name in names for argument in ("--model", name if "/" in name else f"{__name__}:{name}")]


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_each_of_several_models_has_its_folder_and_all_have_one_report(
    arguments: list[str], vectors: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*models("letters", str(vectors)), "--name", "by letter", "--name", "glove", *arguments]
    assert main([*given, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    output = tmp_path / "out"
    assert files(output) == {"report.html"} | {
        f"{name}/{file}" for name in ("by letter", "glove") for file in ("results.json", "examples.npz")
    }
    assert [one["model"] for one in printed] == ["by letter", "glove"]
    assert printed == [results_of(output / "by letter"), results_of(output / "glove")]
    assert printed[0]["scores"] != printed[1]["scores"]
    report = (output / "report.html").read_text()
    assert "by letter" in report and "glove" in report


@pytest.mark.slow
def test_several_models_leave_no_results_of_one_before_them(arguments: list[str], tmp_path: Path) -> None:
    assert main([*models("letters"), *arguments]) == 0
    assert files(tmp_path / "out") == {"report.html", "results.json", "examples.npz"}
    assert main([*models("letters", "lengths"), "--name", "letters", "--name", "lengths", *arguments]) == 0
    assert (tmp_path / "out" / "lengths" / "results.json").is_file()
    assert not (tmp_path / "out" / "results.json").exists() and not (tmp_path / "out" / "examples.npz").exists()


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["mine"], "1 --name for 2 --model: give one each, in the same order"),
        (["mine", "mine"], "two models are called 'mine': tell them apart with --name"),
        (["mine", "a/b"], "must be a valid folder name, not 'a/b'"),
        (["mine", "report.html"], "must be a valid folder name, not 'report.html'"),
        ([], "two models are called 'tests.eval.test_run:letters'"),
    ],
)
def test_names_that_do_not_fit_are_bad_usage(
    arguments: list[str], names: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [argument for name in names for argument in ("--name", name)]
    assert exit_code(main, *models("letters", "letters"), *given, *arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("order", [["letters", "breaks_down"], ["breaks_down", "letters"], ["nothing", "letters"]])
def test_a_model_that_cannot_be_used_does_not_cost_the_other_its_results(
    order: list[str], arguments: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [*models(*order), "--name", "one", "--name", "two", *arguments]
    assert main(given) == 1
    (line,) = capsys.readouterr().err.splitlines()
    good = "one" if order[0] == "letters" else "two"
    bad = next(name for name in order if name != "letters")
    assert f"{__name__}:{bad}" in line and f"(scored, in {tmp_path / 'out'}: {good})" in line
    assert files(tmp_path / "out") == {"report.html", f"{good}/results.json", f"{good}/examples.npz"}


def test_embeddings_that_are_no_numbers_are_reported(arguments: list[str], tmp_path: Path) -> None:
    assert main([*models("not_finite"), *arguments]) == 0
    (warning,) = results_of(tmp_path / "out")["warnings"]
    bad = len({text for *texts, _ in ROWS for text in texts if "owl" in text})
    assert warning.startswith(f"{bad} of {NUM_TEXTS} embeddings hold a NaN")


def test_auto_is_resolved_printed_and_recorded(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compute, "bfloat16", lambda device: compute.Bfloat16(True, "this CPU multiplies it"))
    assert main([*models("letters"), *arguments, "--precision", "auto"]) == 0
    out, err = capsys.readouterr()
    assert err == "--precision auto: bf16: this CPU multiplies it\n" and "\ncomputed on cpu in bf16\n" in out
    environment = results_of(tmp_path / "out")["environment"]
    assert (environment["device"], environment["precision"]) == ("cpu", "bf16")
    assert "device cpu, precision bf16" in (tmp_path / "out" / "report.html").read_text()


def sts16(shared_data: Path, tmp_path: Path) -> list[str]:
    """Copy STS16 into a folder whose files a test may damage; return the arguments that score it."""
    place = Path("senteval", "downstream", "STS", "STS16-en-test")
    shutil.copytree(shared_data / place, tmp_path / place, copy_function=shutil.copyfile)
    given = ["--tasks", "sts", "--data", str(tmp_path), "--output", str(tmp_path / "out"), "--cache", "none"]
    return [*models("letters"), *given, "--device", "cpu", "--quiet"]


@pytest.mark.published("senteval")
@pytest.mark.slow
def test_a_truncated_task_is_scored_and_fails_the_command_unless_it_is_allowed(
    shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = sts16(shared_data, tmp_path)
    for kind in ("input", "gs"):
        file = tmp_path / f"senteval/downstream/STS/STS16-en-test/STS.{kind}.plagiarism.txt"
        file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:400]))
    assert main(given) == 1
    err = capsys.readouterr().err
    rows = "STS.gs.plagiarism.txt: 98 rows, not 230"
    assert f"truncated data: {rows}: restore the files, or accept them with --allow-missing" in err
    results = results_of(tmp_path / "out")
    (warning,) = results["warnings"]
    assert "not the published data" in warning and "STS16 (STS.input.plagiarism.txt differs" in warning
    assert results["truncated"] == {"STS16": rows} and "STS16" in results["scores"]
    assert main([*given, "--allow-missing"]) == 0


def test_what_a_models_code_prints_does_not_get_among_the_results(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", f"{__name__}:talks", *arguments, "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["model"] == f"{__name__}:talks"
    assert "loading my model" in err


def test_ctrl_c_is_one_line_and_a_code_of_its_own(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--model", f"{__name__}:is_interrupted", *arguments]) == 130
    assert capsys.readouterr() == ("", "python -m clearspan.eval: stopped: run the same command again to continue\n")
