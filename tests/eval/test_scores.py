"""Figures over examples, their intervals and differences, against scipy and scikit-learn."""

import numpy as np
import pytest
from scipy import stats
from sklearn import metrics

from clearspan.eval.scores import Examples, _figures, difference, figure, in_percent, interval

GENERATOR = np.random.default_rng(7)
GOLD = GENERATOR.integers(0, 2, 300)
PREDICTED = np.where(GENERATOR.random(300) < 0.8, GOLD, 1 - GOLD)
SCORES = GENERATOR.integers(0, 6, 300).astype(float)
COSINES = SCORES + GENERATOR.normal(0, 2, 300)
CLASSIFIED = (metrics.accuracy_score, metrics.f1_score)
CORRELATIONS = (stats.pearsonr, stats.spearmanr)


@pytest.mark.guarantee("published-scores")
@pytest.mark.parametrize(
    ("metric", "predicted", "gold", "expected"),
    [
        ("accuracy", PREDICTED, GOLD, metrics.accuracy_score(GOLD, PREDICTED)),
        ("f1", PREDICTED, GOLD, metrics.f1_score(GOLD, PREDICTED)),
        ("matthews", PREDICTED, GOLD, metrics.matthews_corrcoef(GOLD, PREDICTED)),
        ("pearson", COSINES, SCORES, stats.pearsonr(COSINES, SCORES).statistic),
        ("spearman", COSINES, SCORES, stats.spearmanr(COSINES, SCORES).statistic),
        ("mean", PREDICTED, None, PREDICTED.mean()),
        ("accuracy_f1", PREDICTED, GOLD, np.mean([each(GOLD, PREDICTED) for each in CLASSIFIED])),
        ("pearson_spearman", COSINES, SCORES, np.mean([each(COSINES, SCORES)[0] for each in CORRELATIONS])),
    ],
)
def test_a_figure_is_that_of_the_libraries(metric: str, predicted: object, gold: object, expected: float) -> None:
    assert figure(Examples.of(metric, predicted, gold)) == pytest.approx(100 * expected, abs=1e-9)


def test_groups_count_alike_whatever_their_size() -> None:
    groups = np.repeat([3, 1], [200, 100])
    each = [stats.spearmanr(COSINES[groups == g], SCORES[groups == g]).statistic for g in (1, 3)]
    assert figure(Examples.of("spearman", COSINES, SCORES, groups)) == pytest.approx(100 * np.mean(each), abs=1e-9)


def test_an_interval_of_a_share_is_the_binomials() -> None:
    """The standard deviation of a share p of n examples is sqrt(p (1 - p) / n)."""
    share, n = 0.8, 2000
    low, high = interval(Examples.of("mean", np.arange(n) < share * n))
    deviation = 100 * np.sqrt(share * (1 - share) / n)
    assert low == pytest.approx(80 - 1.96 * deviation, abs=0.25)
    assert high == pytest.approx(80 + 1.96 * deviation, abs=0.25)


def test_a_paired_difference_is_seen_where_the_two_intervals_overlap() -> None:
    """One model is right wherever the other is, and on 3 % more: the intervals overlap, the paired one excludes 0."""
    right = GENERATOR.random(1000) < 0.7
    better = right | (GENERATOR.random(1000) < 0.1)
    first, second = Examples.of("mean", right), Examples.of("mean", better)
    assert interval(first)[1] > interval(second)[0]
    apart = difference(first, second)
    assert apart.value == pytest.approx(100 * (better.mean() - right.mean()))
    assert 0 < apart.low < apart.value < apart.high
    assert apart.p < 0.01


def test_what_is_not_in_percent_is_known_by_its_name() -> None:
    metrics = ("acc", "t2i_r1", "spearman_all", "alignment", "uniformity_dev", "mse")
    assert [in_percent(metric) for metric in metrics] == [True, True, True, False, False, False]


def test_samples_without_a_correlation_speak_for_no_difference() -> None:
    """One in nine samples of three pairs repeats a single pair and has no correlation, so p cannot be below 2/9."""
    gold = np.arange(3)
    apart = difference(Examples.of("spearman", -gold, gold), Examples.of("spearman", gold, gold))
    assert apart.value == 200
    assert apart.p == pytest.approx(2 / 9, abs=0.05)


@pytest.mark.parametrize("metric", ["pearson", "spearman", "pearson_spearman"])
@pytest.mark.parametrize("constant", [1.0, 0.1])  # of which the second's mean, as computed, is another number
def test_a_constant_has_no_correlation_and_no_interval(metric: str, constant: float) -> None:
    examples = Examples.of(metric, np.full(1500, constant), np.arange(1500))
    assert np.isnan(figure(examples))
    assert all(np.isnan(interval(examples)))


@pytest.mark.parametrize("metric", ["spearman", "accuracy", "mean"])
def test_a_sample_is_scored_as_its_examples_alone_would_be(metric: str) -> None:
    """Ranks and comparisons are computed once for all samples; each figure must equal that of its own rows."""
    predicted = COSINES.round(0) if metric == "spearman" else PREDICTED
    gold = {"spearman": SCORES, "accuracy": GOLD, "mean": None}[metric]
    examples = Examples.of(metric, predicted, gold)
    samples = np.random.default_rng(1).integers(300, size=(50, 300))
    (figures,) = _figures((examples,), [samples[:20], samples[20:]])
    alone = [figure(Examples.of(metric, examples.predicted[rows], examples.gold[rows])) for rows in samples]
    assert figures == pytest.approx(alone, abs=1e-9)
