"""STS: the scores that papers publish, under the names of their aggregations."""

import math
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from clearspan.common.encoder.embedder import cosines
from clearspan.common.encoder.library import load_with_library
from clearspan.common.records import MissingDataError
from clearspan.eval.models.embed import EmbeddingSimilarity
from clearspan.eval.tasks import sts
from clearspan.eval.tasks.task import TaskContext


def bag_of_words(texts: Sequence[str]) -> np.ndarray:
    """Encode texts without weights: counts of hashed lower-cased words, (n, 1024)."""
    out = np.zeros((len(texts), 1024), np.float32)
    for row, text in zip(out, texts, strict=True):
        for word in text.lower().split():
            row[zlib.crc32(word.encode()) % 1024] += 1
    return out


# The figures that sentence-transformers' evaluation of all-MiniLM-L6-v2 publishes for the same files.
MINILM_SPEARMAN = {("STS16", "spearman_all"): 78.99, ("STSBenchmark", "spearman"): 82.03}


@pytest.mark.published("senteval")
@pytest.mark.guarantee("published-scores")
@pytest.mark.exhaustive
def test_all_minilm_gets_its_published_spearman(shared_data: Path, minilm: Path) -> None:
    embedder = EmbeddingSimilarity(load_with_library(minilm).encode)
    wanted = {task for task, _ in MINILM_SPEARMAN}
    tasks = [task for task in sts.load(shared_data / "senteval").tasks if task.name in wanted]
    # The dev split is not among the published figures, and takes a minute.
    for task in tasks:
        assert isinstance(task, sts.StsTask)
        task.subsets.pop("dev", None)
    scores = {task.name: task.score(TaskContext(embedder)).scores for task in tasks}
    assert {key: scores[key[0]][key[1]] for key in MINILM_SPEARMAN} == pytest.approx(MINILM_SPEARMAN, abs=0.02)


@pytest.mark.guarantee("published-scores")
def test_the_three_aggregations_differ_as_their_names_say() -> None:
    # msr agrees with the gold perfectly over 3 pairs, news disagrees over 2; together only the last two are swapped.
    msr = (np.array([0.1, 0.2, 0.3]), np.array([1.0, 2.0, 3.0]))
    news = (np.array([0.9, 0.8]), np.array([4.0, 5.0]))
    figures = sts.aggregate({"msr": msr, "news": news})
    assert figures["spearman_mean"] == pytest.approx((100 - 100) / 2)
    assert figures["spearman_wmean"] == pytest.approx((3 * 100 - 2 * 100) / 5)
    assert figures["spearman_all"] == pytest.approx(100 * (1 - 6 * 2 / (5 * (5**2 - 1))))
    x, y = np.array([0.1, 0.2, 0.3, 0.9, 0.8]), np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    covariance = np.mean(x * y) - x.mean() * y.mean()
    assert figures["pearson_all"] == pytest.approx(100 * covariance / (x.std() * y.std()))


@pytest.mark.guarantee("published-scores")
def test_an_encoder_of_one_direction_has_no_correlation_by_rounding() -> None:
    generator = np.random.default_rng(0)
    left, right = (np.outer(generator.random(50), [0.1, 0.3, 0.7]).astype(np.float32) for _ in range(2))
    assert set(cosines(left, right)) == {1.0}
    assert math.isnan(sts.correlations(cosines(left, right), generator.random(50))["spearman"])


@pytest.mark.guarantee("published-scores")
@pytest.mark.parametrize(
    ("cosine", "gold"), [([0.5, 0.5, 0.5], [1.0, 2.0, 3.0]), ([0.1, 0.2], [3.0, 3.0]), ([0.1], [3.0])]
)
def test_a_correlation_that_is_undefined_is_nan_and_no_number_in_disguise(cosine: list, gold: list) -> None:
    assert all(math.isnan(value) for value in sts.correlations(np.array(cosine), np.array(gold)).values())


@pytest.mark.guarantee("published-scores")
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_year_with_an_undefined_subset_has_no_mean_over_the_others(place: int) -> None:
    generator = np.random.default_rng(1)
    subsets = [(generator.random(30), generator.random(30)) for _ in range(2)]
    subsets.insert(place, (generator.random(20), np.full(20, 3.0)))
    scores = sts.aggregate({str(number): each for number, each in enumerate(subsets)})
    for metric in ("pearson", "spearman"):
        assert math.isnan(scores[f"{metric}_mean"]) and math.isnan(scores[f"{metric}_wmean"])
        assert np.isfinite(scores[f"{metric}_all"]), "over all pairs it is defined"


def test_a_missing_year_is_named_with_the_place_looked_at_and_the_rest_loads(shared_data: Path) -> None:
    loaded = sts.load(shared_data / "senteval")
    assert [task.name for task in loaded.tasks] == ["STS12", "STS14", "STS16", "STSBenchmark", "SICKRelatedness"]
    assert set(loaded.missing) == {"STS13", "STS15"}
    assert str(Path("downstream", "STS", "STS13-en-test")) in loaded.missing["STS13"]


@pytest.mark.parametrize("given_folder", [".", "senteval", "senteval/downstream"])
def test_stsb_dev_finds_the_data_however_it_is_named(shared_data: Path, given_folder: str) -> None:
    value = sts.pairs_spearman(bag_of_words, sts.read_stsb_dev(shared_data / given_folder))
    rows = [
        line.split("\t")
        for line in (shared_data / "senteval/downstream/STS/STSBenchmark/sts-dev.csv").read_text("utf-8").splitlines()
    ]
    left, right = bag_of_words([row[5] for row in rows]), bag_of_words([row[6] for row in rows])
    cosine = ((left * right).sum(1) / np.linalg.norm(left, axis=1) / np.linalg.norm(right, axis=1)).round(6)
    assert value == pytest.approx(100 * spearmanr(cosine, [float(row[4]) for row in rows]).statistic, abs=0.01)


@pytest.mark.parametrize("language", ["de", "zh"])
def test_stsb_dev_may_be_a_file_of_pairs_in_another_language(shared_data: Path, language: str) -> None:
    path = shared_data / "stsb_multi_mt" / f"stsb-{language}-dev.csv"
    pairs = sts.read_stsb_dev(path)
    assert len(pairs) == 1500 and np.isfinite(sts.pairs_spearman(bag_of_words, pairs))
    with pytest.raises(MissingDataError, match=r"no file .*stsb-xx-dev\.csv"):
        sts.read_stsb_dev(path.with_name("stsb-xx-dev.csv"))
