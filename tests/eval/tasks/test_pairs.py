"""STS-B in other languages, one task each, and the user's own pairs, one task per file."""

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from clearspan.common.records import DataError
from clearspan.eval.__main__ import main
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.tasks import sts
from clearspan.eval.tasks.sts import StsTask
from clearspan.eval.tasks.task import TaskContext

ROWS = "Ein Haus.,Ein Heim.,4.5\nEin Hund.,Eine Suppe.,0.5\nEr lacht.,Er lächelt.,3\n"


def letters(texts: list[str]) -> np.ndarray:
    """Encode texts in any script as counts of characters."""
    return np.array([np.bincount([ord(c) % 256 for c in text], minlength=256) for text in texts], np.float32)


@pytest.mark.parametrize("place", [".", "stsb_multi_mt"])
def test_every_language_that_is_there_is_a_task(shared_data: Path, place: str) -> None:
    loaded = sts.load_languages(shared_data / place)
    assert loaded.missing == {}
    assert [task.name for task in loaded.tasks] == ["stsb/de", "stsb/zh"]
    sizes = [{split: len(p) for split, p in t.subsets.items()} for t in loaded.tasks if isinstance(t, StsTask)]
    assert sizes == [{"test": 1379, "dev": 1500}] * 2


def test_what_is_missing_has_a_reason(shared_data: Path, tmp_path: Path) -> None:
    assert "no stsb-<language>-test.csv" in sts.load_languages(tmp_path).missing["stsb-multilingual"]
    shutil.copy(shared_data / "stsb_multi_mt/stsb-de-dev.csv", tmp_path / "stsb-pt-br-dev.csv")
    shutil.copy(shared_data / "stsb_multi_mt/stsb-zh-test.csv", tmp_path / "stsb-zh-test.csv")
    loaded = sts.load_languages(tmp_path)
    assert [task.name for task in loaded.tasks] == ["stsb/zh"]
    assert "stsb-pt-br-test.csv" in loaded.missing["stsb/pt-br"]
    assert "stsb-zh-dev.csv" in loaded.missing["stsb/zh dev"]


def written(path: Path, content: str = ROWS) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(content, encoding="utf-8")
    return path


def test_files_of_one_name_are_told_apart_by_ending_or_folder(tmp_path: Path) -> None:
    files = [written(tmp_path / "de/dev.csv"), written(tmp_path / "fr/dev.csv"), written(tmp_path / "fr/test.csv")]
    assert [task.name for task in sts.load_pairs(files)] == ["pairs/de/dev.csv", "pairs/fr/dev.csv", "pairs/test"]
    files = [written(tmp_path / "de/dev.csv"), written(tmp_path / "de/dev.tsv", ROWS.replace(",", "\t"))]
    assert [task.name for task in sts.load_pairs(files)] == ["pairs/dev.csv", "pairs/dev.tsv"]


def test_a_file_given_twice_is_refused_however_it_is_written(tmp_path: Path) -> None:
    path = written(tmp_path / "dev.csv")
    with pytest.raises(DataError, match=r"dev\.csv is given twice"):
        sts.load_pairs([path, tmp_path / ".." / tmp_path.name / "dev.csv"])


@pytest.mark.parametrize(
    "content",
    ["Ein Haus.,Ein Heim.,4\n", "Ein Haus.,Ein Heim.,4\nEin Hund.,Eine Suppe.,4.0\n", "aa,aa,4\nb,b,1\n"],
    ids=["one pair", "one score", "one cosine"],
)
def test_a_correlation_that_is_undefined_says_why(tmp_path: Path, content: str) -> None:
    (task,) = sts.load_pairs([written(tmp_path / "own.csv", content)])
    scored = task.score(TaskContext(EmbeddingSimilarity(lambda texts: np.round(letters(texts)))))
    assert math.isnan(scored.scores["spearman"]) and math.isnan(scored.scores["pearson"])
    assert "undefined, since there are fewer than two pairs, or all" in scored.details.text


@pytest.fixture
def command(minilm: Path, tmp_path: Path) -> list[str]:
    output = str(tmp_path / "eval")
    return ["--model", str(minilm), "--output", output, "--device", "cpu", "--cache", "none", "--quiet"]


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
