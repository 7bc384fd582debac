"""STS-B in other languages: one task per language with data, scored like STS-B."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from clearspan.eval.models.embed import Embedder
from clearspan.eval.tasks import multilingual
from clearspan.eval.tasks.sts import SplitTask
from clearspan.eval.tasks.task import Run


def letters(texts: list[str]) -> np.ndarray:
    """Encode texts in any script as counts of characters."""
    return np.array([np.bincount([ord(c) % 256 for c in text], minlength=256) for text in texts], np.float32)


@pytest.mark.parametrize("place", [".", "stsb_multi_mt"])
def test_every_language_that_is_there_is_a_task(shared_data: Path, place: str) -> None:
    loaded = multilingual.load(shared_data / place)
    assert loaded.missing == {}
    assert [task.name for task in loaded.tasks] == ["stsb/de", "stsb/zh"]
    sizes = [{split: len(p) for split, p in t.splits.items()} for t in loaded.tasks if isinstance(t, SplitTask)]
    assert sizes == [{"test": 1379, "dev": 1500}] * 2


def test_the_figure_is_the_spearman_of_the_test_split(shared_data: Path) -> None:
    task = multilingual.load(shared_data).tasks[1]
    assert isinstance(task, SplitTask)
    scored = task.score(Run(Embedder(letters)))
    test = task.splits["test"]
    left, right = letters(test.left), letters(test.right)
    cosine = (left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)
    assert scored.scores["spearman"] == pytest.approx(100 * spearmanr(cosine, test.gold).statistic, abs=0.02)
    assert {"spearman_dev", "pearson"} <= set(scored.scores)


def test_what_is_missing_has_a_reason(shared_data: Path, tmp_path: Path) -> None:
    assert "no stsb-<language>-test.csv" in multilingual.load(tmp_path).missing["stsb-multilingual"]
    shutil.copy(shared_data / "stsb_multi_mt/stsb-de-dev.csv", tmp_path / "stsb-pt-br-dev.csv")
    shutil.copy(shared_data / "stsb_multi_mt/stsb-zh-test.csv", tmp_path / "stsb-zh-test.csv")
    loaded = multilingual.load(tmp_path)
    assert [task.name for task in loaded.tasks] == ["stsb/zh"]
    assert "stsb-pt-br-test.csv" in loaded.missing["stsb/pt-br"]
    assert "stsb-zh-dev.csv" in loaded.missing["stsb/zh dev"]
