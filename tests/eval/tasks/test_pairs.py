"""The user's own pairs: one task per file, named after it, with `--pairs` alone."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from clearspan.eval.__main__ import main
from clearspan.eval.files import DataError
from clearspan.eval.models.embed import Embedder
from clearspan.eval.tasks import pairs
from clearspan.eval.tasks.task import Run
from tests.eval.tasks.test_multilingual import letters

ROWS = "Ein Haus.,Ein Heim.,4.5\nEin Hund.,Eine Suppe.,0.5\nEr lacht.,Er lächelt.,3\n"


def written(path: Path, content: str = ROWS) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_a_task_is_named_after_its_file(tmp_path: Path) -> None:
    files = [written(tmp_path / "deutsch.csv"), written(tmp_path / "dev.v2.csv")]
    assert [task.name for task in pairs.load(files)] == ["pairs/deutsch", "pairs/dev.v2"]


def test_files_of_one_name_are_told_apart_by_ending_or_folder(tmp_path: Path) -> None:
    files = [written(tmp_path / "de/dev.csv"), written(tmp_path / "fr/dev.csv"), written(tmp_path / "fr/test.csv")]
    assert [task.name for task in pairs.load(files)] == ["pairs/de/dev.csv", "pairs/fr/dev.csv", "pairs/test"]
    files = [written(tmp_path / "de/dev.csv"), written(tmp_path / "de/dev.tsv", ROWS.replace(",", "\t"))]
    assert [task.name for task in pairs.load(files)] == ["pairs/dev.csv", "pairs/dev.tsv"]


def test_a_file_given_twice_is_refused_however_it_is_written(tmp_path: Path) -> None:
    path = written(tmp_path / "dev.csv")
    with pytest.raises(DataError, match=r"dev\.csv is given twice: leave one out"):
        pairs.load([path, tmp_path / ".." / tmp_path.name / "dev.csv"])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("Ein Haus.,Ein Heim.,4\n", "it has one pair"),
        ("Ein Haus.,Ein Heim.,4\nEin Hund.,Eine Suppe.,4.0\n", "every pair has the same score"),
        ("aa,aa,4\nb,b,1\n", "every pair has the same cosine"),
    ],
)
def test_a_correlation_that_is_undefined_says_why(tmp_path: Path, content: str, reason: str) -> None:
    (task,) = pairs.load([written(tmp_path / "own.csv", content)])
    scored = task.score(Run(Embedder(lambda texts: np.round(letters(texts)))))
    assert math.isnan(scored.scores["spearman"]) and math.isnan(scored.scores["pearson"])
    assert reason in scored.details.text


@pytest.fixture
def command(minilm: Path, tmp_path: Path) -> list[str]:
    output = str(tmp_path / "eval")
    return ["--model", str(minilm), "--output", output, "--device", "cpu", "--cache", "none", "--quiet"]


@pytest.mark.slow
def test_files_in_other_languages_are_scored_with_no_data_folder(
    command: list[str], shared_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for language in ("de", "zh"):
        lines = (shared_data / f"stsb_multi_mt/stsb-{language}-test.csv").read_text("utf-8").splitlines()[:20]
        written(tmp_path / f"{language}.csv", "\ufeff一,二,Score\n" + "\n".join(lines))
    both = ["--pairs", str(tmp_path / "de.csv"), "--pairs", str(tmp_path / "zh.csv")]
    assert main([*command, *both]) == 0
    results = json.loads((tmp_path / "eval/results.json").read_text())
    assert list(results["scores"]) == ["pairs/de", "pairs/zh"]
    assert all(-100 <= scores["spearman"] <= 100 for scores in results["scores"].values())
    assert results["counts"] == {"pairs/de": {"pairs": 20}, "pairs/zh": {"pairs": 20}}
    low, high = results["intervals"]["pairs/de"]["spearman"]
    assert low < results["scores"]["pairs/de"]["spearman"] < high
    assert list(results["data"]["pairs/zh"]) == [str(tmp_path / "zh.csv")]
    assert "pairs/zh" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("content", "message"), [("", "holds no scored pair"), ("a,b\n", "expected two sentences"), (None, "no file")]
)
def test_a_file_that_does_not_do_is_one_line_and_exit_1(
    command: list[str], tmp_path: Path, content: str | None, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.csv"
    if content is not None:
        written(path, content)
    assert main([*command, "--pairs", str(path)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("python -m clearspan.eval: --pairs: ") and str(path) in line and message in line
