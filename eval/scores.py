"""Compute the scores of a task, and their uncertainty by bootstrap over the task's examples.

    Examples: predicted and gold values ──> figure: the value of a metric
                                        ──> interval: its 95 % interval by bootstrap
    Examples of two models ───────────────> difference: its value, 95 % interval and p-value

The bootstrap draws samples of the examples with replacement, and computes the metric anew on each sample. This works
for every metric, such as a correlation, an F1 or a mean over subsets.
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.progress import ProgressBar
from clearspan.eval.details import Details

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RESAMPLES = 1000
LEVEL = 0.05
MIN_DECIDING = 20
"""The fewest examples by which a difference can exceed noise. With fewer, the bootstrap's intervals are too narrow: of
the verdicts on equal systems, of which 2.5 % should be `better`, 5.5 % were `better` with ten queries, 3.4 % with
twenty, and 2.2 % with a hundred.
"""
_BLOCK = 1 << 22  # resampled values in memory at a time: 32 MB per float64 array


def _accuracy(predicted: Floats, gold: Floats, rows: Ints) -> Floats:
    means: Floats = (predicted == gold)[rows].mean(axis=1)  # compares once, not once per sample
    return means


def _correlation(predicted: Floats, gold: Floats) -> Floats:
    x = predicted - predicted.mean(axis=1, keepdims=True)
    y = gold - gold.mean(axis=1, keepdims=True)
    norms = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    # The computed mean of a constant may be off in its last digit, so norms alone do not reveal a constant.
    vary = (np.ptp(predicted, axis=1) > 0) & (np.ptp(gold, axis=1) > 0) & (norms > 0)
    correlations: Floats = np.divide((x * y).sum(axis=1), norms, out=np.full(len(x), np.nan), where=vary)
    return correlations


def _pearson(predicted: Floats, gold: Floats, rows: Ints) -> Floats:
    return _correlation(predicted[rows], gold[rows])


def _spearman(predicted: Floats, gold: Floats, rows: Ints) -> Floats:
    return _correlation(_ranks(predicted, rows), _ranks(gold, rows))


def _counts(predicted: Floats, gold: Floats, rows: Ints) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the numbers of true positives, false positives, false negatives and true negatives in each sample.

    The positive class is 1. Each of the four arrays is (samples,) float64, where `samples` is the number of bootstrap
    samples.

    Args:
        predicted: the predicted class indices of the n examples, (n,).
        gold: the correct class indices of the examples, (n,).
        rows: the indices of the examples that each sample consists of, (samples, n) int64.
    """
    yes, true = predicted[rows] == 1, gold[rows] == 1
    both = (yes & true).sum(axis=1).astype(float)
    return both, yes.sum(axis=1) - both, true.sum(axis=1) - both, (~yes & ~true).sum(axis=1).astype(float)


def _f1(predicted: Floats, gold: Floats, rows: Ints) -> Floats:
    tp, fp, fn, _ = _counts(predicted, gold, rows)
    whole = 2 * tp + fp + fn
    return np.divide(2 * tp, whole, out=np.zeros(len(tp)), where=whole > 0)


def _matthews(predicted: Floats, gold: Floats, rows: Ints) -> Floats:
    tp, fp, fn, tn = _counts(predicted, gold, rows)
    norms = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return np.divide(tp * tn - fp * fn, norms, out=np.zeros(len(tp)), where=norms > 0)


METRICS: dict[str, Callable[[Floats, Floats, Ints], Floats]] = {
    "mean": lambda predicted, gold, rows: predicted[rows].mean(axis=1),
    "accuracy": _accuracy,
    "pearson": _pearson,
    "spearman": _spearman,
    "f1": _f1,
    "matthews": _matthews,
    "accuracy_f1": lambda *arrays: (_accuracy(*arrays) + _f1(*arrays)) / 2,
    "pearson_spearman": lambda *arrays: (_pearson(*arrays) + _spearman(*arrays)) / 2,
}
"""Metric -> function that computes the metric on each sample.

The arguments of the function are `predicted` and `gold`, (n,) float64 each, and the row indices of each sample,
(samples, n) int64. It returns (samples,) values as fractions of 1, or NaN if a value is undefined. F1 and Matthews'
coefficient are defined for the classes 0 and 1. The last two metrics are means of two metrics, by which GLUE ranks
models."""


@dataclass(frozen=True)
class Examples:
    """The n examples from which a score is computed.

    Attributes:
        metric: the metric of the score, a key of METRICS, such as `accuracy`, `spearman` or `mean`.
        predicted: the model's result for each example, (n,) float64: a class index, a similarity such as a cosine, or
            for the metric `mean` the score of the single example, from 0 to 1.
        gold: the expected class index or similarity, (n,) float64; zeros for the metric `mean`.
        groups: a number that identifies each example's group, (n,) int64; examples with equal numbers form a group,
            such as a subset of an STS year. The score is the mean of the metric over the groups, and the bootstrap
            draws samples within each group.
    """

    metric: str
    predicted: Floats
    gold: Floats
    groups: Ints

    @classmethod
    def of(cls, metric: str, predicted: Any, gold: Any = None, groups: Any = None) -> "Examples":
        """Return the `Examples` for arrays or lists of any numeric type.

        Args:
            metric: a key of METRICS.
            predicted, gold, groups: the attributes of `Examples`. If `gold` or `groups` is None, it is set to zeros.
        """
        values = np.asarray(predicted, np.float64)
        zeros = np.zeros(len(values))
        return cls(
            metric,
            values,
            zeros if gold is None else np.asarray(gold, np.float64),
            (zeros if groups is None else np.asarray(groups)).astype(np.int64),
        )

    def __len__(self) -> int:
        return len(self.predicted)

    def metric_of(self, rows: Ints) -> Floats:
        """Return the metric on each bootstrap sample as a fraction, which is 1 for 100 %: (samples,) float64.

        The groups of the examples are ignored.

        Args:
            rows: the indices of the examples that each sample consists of, (samples, n) int64.
        """
        return METRICS[self.metric](self.predicted, self.gold, rows)


@dataclass(frozen=True)
class Difference:
    """The difference between the scores of two models on the same examples, in percentage points.

    Attributes:
        value: the score of the second model minus the score of the first model; NaN if one of them is undefined.
        low, high: the ends of the 95 % interval of `value`.
        p: the two-sided p-value by bootstrap: 2 (k + 1) / (n + 1), at most 1, for n samples. k is the smaller one of
            two counts: the samples whose difference is at most 0, and the samples whose difference is at least 0. A
            sample whose difference is undefined is in both counts. p is NaN if `value` is NaN.
        p_holm: the p-value after Holm's correction for the number of all differences that are tested together; NaN
            before the correction.
        has_few: whether there are fewer than 20 examples (`MIN_DECIDING`), too few to decide.
    """

    value: float
    low: float
    high: float
    p: float
    p_holm: float = math.nan
    has_few: bool = False

    @property
    def exceeds_noise(self) -> bool:
        """Return whether the corrected p-value `p_holm` is below 0.05 (LEVEL), and there are enough examples."""
        return self.p_holm < LEVEL and not self.has_few


def figure(examples: Examples) -> float:
    """Return the score that the examples give, in percent; NaN if it is undefined."""
    return float(_figures((examples,), [np.argsort(examples.groups, kind="stable")[None]])[0, 0])


def interval(examples: Examples) -> tuple[float, float]:
    """Return the ends of the 95 % interval of the examples' score, in percent, by percentile bootstrap.

    Both ends are NaN if the score is undefined on every sample.
    """
    return _quantiles(resampled(examples))


def resampled(examples: Examples, resamples: int = RESAMPLES) -> Floats:
    """Return the score of each bootstrap sample of the examples, in percent, (resamples,) float64.

    The samples depend only on `examples.groups`, so that all models on the same data are scored on the same samples.
    """
    (figures,) = _figures((examples,), _samples(examples.groups, resamples))
    return np.asarray(figures)


def comparable(first: Examples, second: Examples) -> bool:
    """Return whether the examples of two models have equal metrics, gold values and groups.

    Only then can `difference` compare them.
    """
    same = first.metric == second.metric and np.array_equal(first.gold, second.gold)
    return same and np.array_equal(first.groups, second.groups)


def difference(first: Examples, second: Examples, resamples: int = RESAMPLES) -> Difference:
    """Return the second model's score minus the first model's score, with interval and p-value by paired bootstrap.

    Args:
        first, second: the two models' results on the same examples; `comparable` must be true for them.
        resamples: the number of bootstrap samples.
    """
    first_figures, second_figures = _figures((first, second), _samples(first.groups, resamples))
    differences = second_figures - first_figures
    low, high = _quantiles(differences)
    undefined = np.isnan(differences)  # e.g. the correlation of one pair drawn n times; counts against both signs
    tail = min(np.sum((differences <= 0) | undefined), np.sum((differences >= 0) | undefined))
    p = min(1.0, 2 * (float(tail) + 1) / (resamples + 1))
    value = figure(second) - figure(first)
    # A difference is undefined if, for example, all predictions are equal and so have no correlation.
    p = math.nan if math.isnan(value) else p
    return Difference(value, low, high, p, has_few=len(first) < MIN_DECIDING)


def num_resamples(num_figures: int) -> int:
    """Return the number of bootstrap samples for `num_figures` differences that are tested together, at least 1,000.

    The smallest p-value that n samples can give is 2 / (n + 1), and Holm's correction multiplies it by `num_figures`.
    With the returned number of samples, the product is below a quarter of the significance level, 0.05, so that a clear
    difference is found to be significant.
    """
    return max(RESAMPLES, 4 * math.ceil(2 * num_figures / LEVEL))


def tested(pairs: Sequence[tuple[Examples, Examples]], progress: bool = False) -> list[Difference]:
    """Return the difference of each pair, with p-values that Holm's method corrects for the number of pairs.

    Each difference is computed with 1,000 bootstrap samples. If its p-value is then below 0.05, it is computed again
    with `num_resamples` samples, because the corrected p-value can be small only if there are enough samples.

    Args:
        pairs: for each score, the first model's and the second model's examples, which must be `comparable`.
        progress: whether to show a progress bar.
    """
    resamples = num_resamples(len(pairs))
    changes = []
    bar = ProgressBar(len(pairs), f"comparing {len(pairs):,} figures", not progress, unit=" figures")
    for first, second in bar.over(pairs):
        change = difference(first, second)
        if change.p < LEVEL and resamples > RESAMPLES:
            change = difference(first, second, resamples)
        changes.append(change)
    corrected = holm([change.p for change in changes])
    return [replace(change, p_holm=p) for change, p in zip(changes, corrected, strict=True)]


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p-values after Holm's step-down correction (1979), in the order of `ps`.

    If differences with a corrected p-value below a level count as significant, the probability of at least one false
    finding is at most that level. A NaN stays NaN, but counts in the number of p-values.
    """
    order = sorted(range(len(ps)), key=lambda place: (math.isnan(ps[place]), ps[place]))
    corrected = [math.nan] * len(ps)
    largest = 0.0
    for rank, place in enumerate(order):
        if not math.isnan(ps[place]):
            largest = max(largest, min(1.0, (len(ps) - rank) * ps[place]))
            corrected[place] = largest
    return corrected


def _quantiles(figures: Floats) -> tuple[float, float]:
    if not np.isfinite(figures).any():
        return float("nan"), float("nan")
    low, high = np.nanquantile(figures, (0.025, 0.975))
    return float(low), float(high)


def _samples(groups: Ints, resamples: int) -> Iterator[Ints]:
    """Yield bootstrap samples in blocks: the indices of the examples in each sample, (samples, n) int64.

    The indices of a group are drawn with replacement, as many as the group has examples. They are in adjacent columns,
    which are the same in all samples. The same arguments always give the same samples.

    Args:
        groups: the group of each of the n examples, (n,).
        resamples: the number of samples in all blocks together.
    """
    generator = np.random.default_rng(0)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    step = max(1, _BLOCK // max(1, len(groups)))
    for start in range(0, resamples, step):
        num = min(step, resamples - start)
        yield np.concatenate([rows[generator.integers(len(rows), size=(num, len(rows)))] for rows in members], axis=1)


def _figures(several: Sequence[Examples], samples: Iterable[Ints]) -> Floats:
    """Return the score of each model on each bootstrap sample, in percent, (models, samples) float64.

    Args:
        several: the results of each model on the same n examples.
        samples: blocks (samples, n). A row holds the indices of the examples of one sample, group by group; a group has
            the same range of columns in all rows of a block. The groups are those of `Examples.groups`, over which a
            score is averaged.
    """
    blocks = []
    for rows in samples:
        bounds = np.flatnonzero(np.diff(several[0].groups[rows[0]])) + 1
        parts = np.split(rows, bounds, axis=1)
        blocks.append([np.mean([each.metric_of(columns) for columns in parts], axis=0) for each in several])
    return 100 * np.concatenate(blocks, axis=1)


def _ranks(values: Floats, rows: Ints) -> Floats:
    """Return the rank of each value in its bootstrap sample, (samples, n) float64; the smallest value has rank 1.

    Equal values get the mean of their ranks. All samples are drawn from the same n values, so ranks can be found by
    counting, which is several times as fast as sorting each sample.

    Args:
        values: the n values, (n,).
        rows: the indices of the values that each sample consists of, (samples, n) int64.
    """
    codes = np.unique(values, return_inverse=True)[1]
    num_values = codes.max() + 1
    keys = codes[rows] + num_values * np.arange(len(rows))[:, None]
    counts = np.bincount(keys.ravel(), minlength=num_values * len(rows)).reshape(len(rows), num_values)
    middle = np.cumsum(counts, axis=1) - (counts - 1) / 2
    ranks: Floats = middle.ravel()[keys]
    return ranks


_NO_PERCENTAGE = re.compile(r"(alignment|uniformity)(_\w+)?|mse")


def in_percent(metric: str) -> bool:
    """Return whether a metric is a percentage; alignment, uniformity and mean squared errors (mse) are not.

    Of percentages, higher ones are better; of the other metrics, lower values are better.
    """
    return not _NO_PERCENTAGE.fullmatch(metric)


@dataclass(frozen=True)
class TaskScores:
    """The scores of one task.

    Attributes:
        scores: metric -> value, unrounded; NaN if it is undefined, such as a correlation if all predictions are equal.
            All metrics are percentages except alignment, uniformity and mean squared errors (mse).
        main: the metric that represents the task in charts and comparisons.
        headline: the metrics that the summary table shows.
        counts: what is counted in the task's data -> number, such as {"pairs": 3108}.
        details: texts and tables for the report.
        subsets: subset of the task's data -> metric -> value. Counts, such as `num_pairs`, are stored like metrics;
            their names begin with `num_`.
        examples: metric -> the examples from which its value is computed. Metrics that are not computed from examples
            are left out, and have no interval.
        settings: name of a setting that affects the scores, such as a seed or the chosen L2 value -> value. Data and
            model are not among them.
    """

    scores: dict[str, float]
    main: str
    headline: tuple[str, ...]
    counts: dict[str, int]
    details: Details = field(default_factory=Details)
    subsets: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: dict[str, Examples] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
