"""Supervised relatedness: SentEval's rows in SentEval's order, and the score of a fitted model."""

from pathlib import Path

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from clearspan.common.records import DataError
from clearspan.eval.data.sts_data import ScoredPairs
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.scores import figure
from clearspan.eval.tasks import relatedness
from clearspan.eval.tasks.task import TaskContext
from tests.eval.tasks.test_sts import bag_of_words


def few_dimensions(texts: list[str]) -> np.ndarray:
    return bag_of_words(texts) @ np.random.RandomState(0).randn(1024, 48).astype(np.float32) / 10


@pytest.mark.slow
def test_both_tasks_have_the_published_sizes_and_senteval_s_order(shared_data: Path) -> None:
    loaded = relatedness.load(shared_data / "senteval")
    assert loaded.missing == {}
    tasks = {task.name: task for task in loaded.tasks if isinstance(task, relatedness.RelatednessTask)}
    sizes = {name: [len(pairs) for pairs in task.splits.values()] for name, task in tasks.items()}
    assert sizes == {"SICKRelatedness-finetune": [4500, 500, 4927], "STSBenchmark-finetune": [5749, 1500, 1379]}
    for task in tasks.values():
        assert [path.is_file() for path in task.files] == [True] * 3
        for pairs in task.splits.values():
            rows = zip(pairs.left, pairs.right, pairs.gold, strict=True)
            keys = [(len(left.split()), len(right.split()), gold) for left, right, gold in rows]
            assert keys == sorted(keys)


@pytest.mark.slow
def test_the_figures_are_of_the_test_pairs_and_beat_what_is_not_fitted(shared_data: Path) -> None:
    task = next(t for t in relatedness.load(shared_data / "senteval").tasks if t.name.startswith("SICK"))
    assert isinstance(task, relatedness.RelatednessTask)
    few = {name: ScoredPairs(p.left[::9], p.right[::9], p.gold[::9]) for name, p in task.splits.items()}
    scored = relatedness.RelatednessTask(task.name, few).score(TaskContext(EmbeddingSimilarity(few_dimensions)))
    examples = scored.examples["spearman"]
    predicted, gold = examples.predicted, examples.gold
    assert set(scored.scores) == {"spearman", "pearson", "mse", "devspearman", "devpearson"}
    assert sorted(gold) == sorted(few["test"].gold)
    assert scored.scores["spearman"] == pytest.approx(100 * spearmanr(predicted, gold).statistic)
    assert scored.scores["pearson"] == pytest.approx(100 * pearsonr(predicted, gold).statistic)
    assert scored.scores["mse"] == pytest.approx(np.mean((predicted - gold) ** 2))
    assert all(figure(examples) == pytest.approx(scored.scores[name]) for name, examples in scored.examples.items())
    assert 1 <= predicted.min() < predicted.max() <= 5
    assert scored.scores["mse"] < np.var(gold)
    assert scored.counts == {"pairs": len(gold), "train": 500, "dev": 56}


def test_a_score_off_the_scale_is_no_score(shared_data: Path, tmp_path: Path) -> None:
    folder = tmp_path / "downstream/STS/STSBenchmark"
    folder.mkdir(parents=True)
    for split in ("train", "dev", "test"):
        (folder / f"sts-{split}.csv").write_text(f"g\tf\ty\t1\t{'7.5' if split == 'dev' else '2'}\ta b\tc\n")
    with pytest.raises(DataError, match=r"sts-dev\.csv: a score is 7\.5, outside 0 to 5"):
        relatedness.load(tmp_path)
