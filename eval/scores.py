"""The scores of one task, and their uncertainty by bootstrap over the task's examples.

    TaskScores ── scores, in percent
               └─ Examples of a metric ──> figure, interval (bootstrap over examples), difference of two models

Pure functions of arrays. The bootstrap recomputes the metric itself on each sample of the examples: a correlation, F1,
a mean over subsets.
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
    """Return (true positives, false positives, false negatives, true negatives); 1 is the positive class."""
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
"""Metric -> function of (predicted, gold), each float64 (n,), and the rows of each sample, int64 (samples, n), that
returns (samples,) as fractions of 1, NaN where undefined. F1 and Matthews' coefficient take the classes 0 and 1; the
last two are the plain means by which GLUE ranks models."""


@dataclass(frozen=True)
class Examples:
    """The examples that a figure is computed from, one row each.

    Attributes:
        metric: a key of METRICS.
        predicted: float64 (n,): a class, a cosine, or for `mean` the value of the example, from 0 to 1.
        gold: float64 (n,); zeros for `mean`.
        groups: int64 (n,): with several groups (the subsets of an STS year), the figure is the plain mean of the
            groups' figures, and the bootstrap draws within each group.
    """

    metric: str
    predicted: Floats
    gold: Floats
    groups: Ints

    @classmethod
    def of(cls, metric: str, predicted: Any, gold: Any = None, groups: Any = None) -> "Examples":
        """Build examples from arrays or lists of any numeric type; `gold` and `groups` default to zeros."""
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
        """Return the metric of each sample of rows (samples, n), as a fraction of 1: (samples,)."""
        return METRICS[self.metric](self.predicted, self.gold, rows)


@dataclass(frozen=True)
class Difference:
    """Two models' figures on the same examples, in percentage points.

    Attributes:
        value: the second model's figure minus the first model's figure.
        low, high: the 95 % interval of the value.
        p: the two-sided p-value: twice the fraction of samples whose difference has the opposite sign, is zero or is
            undefined. At least 1 / (samples + 1).
        p_holm: the p-value corrected for the number of differences that are tested together; see `tested`.
    """

    value: float
    low: float
    high: float
    p: float
    p_holm: float = math.nan

    @property
    def exceeds_noise(self) -> bool:
        """Return whether the corrected p-value is below 0.05."""
        return self.p_holm < LEVEL


def figure(examples: Examples) -> float:
    """Return the metric over all examples, in percent; NaN where undefined."""
    return float(_figures((examples,), [np.argsort(examples.groups, kind="stable")[None]])[0, 0])


def interval(examples: Examples) -> tuple[float, float]:
    """Return the figure's 95 % percentile interval, in percent, by bootstrap over the examples."""
    return _quantiles(resampled(examples))


def resampled(examples: Examples, resamples: int = RESAMPLES) -> Floats:
    """Return the figure of each bootstrap sample of the examples, in percent, (resamples,).

    Examples with the same groups get the same samples, so that the figures of several models are paired.
    """
    (figures,) = _figures((examples,), _samples(examples.groups, resamples))
    return np.asarray(figures)


def comparable(first: Examples, second: Examples) -> bool:
    """Return whether two models' figures are computed from the same examples by the same metric."""
    same = first.metric == second.metric and np.array_equal(first.gold, second.gold)
    return same and np.array_equal(first.groups, second.groups)


def difference(first: Examples, second: Examples, resamples: int = RESAMPLES) -> Difference:
    """Return the difference of two models' figures by paired bootstrap: both are computed on the same samples.

    Args:
        first, second: figures that are `comparable`.
    """
    first_figures, second_figures = _figures((first, second), _samples(first.groups, resamples))
    differences = second_figures - first_figures
    low, high = _quantiles(differences)
    undefined = np.isnan(differences)  # such as the correlation of one pair drawn n times; counts against either sign
    tail = min(np.sum((differences <= 0) | undefined), np.sum((differences >= 0) | undefined))
    p = min(1.0, 2 * (float(tail) + 1) / (resamples + 1))
    value = figure(second) - figure(first)
    # An undefined difference, as of a constant's correlation, is no evidence in either direction.
    return Difference(value, low, high, math.nan if math.isnan(value) else p)


def num_resamples(num_figures: int) -> int:
    """Return the number of bootstrap samples with which the least possible p-value stays significant when corrected."""
    return max(RESAMPLES, 4 * math.ceil(2 * num_figures / LEVEL))


def tested(pairs: Sequence[tuple[Examples, Examples]], progress: bool = False) -> list[Difference]:
    """Return the difference of each pair of comparable figures, with p-values corrected by Holm over all of them.

    If a p-value exceeds the level after the first 1,000 samples, no more are drawn.
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
    """Return the p-values after Holm's step-down correction (1979), in their order; a NaN stays NaN, and counts.

    The correction bounds the probability of any false finding among all of them by the significance level.
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
    """Yield blocks of rows (samples, n), drawn with replacement within each group, the same in every call."""
    generator = np.random.default_rng(0)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    step = max(1, _BLOCK // max(1, len(groups)))
    for start in range(0, resamples, step):
        num = min(step, resamples - start)
        yield np.concatenate([rows[generator.integers(len(rows), size=(num, len(rows)))] for rows in members], axis=1)


def _figures(several: Sequence[Examples], samples: Iterable[Ints]) -> Floats:
    """Return the figures of several models on each sample, in percent, (len(several), all samples).

    Args:
        several: the examples of each model, all with the same groups.
        samples: blocks of rows (samples, n), in which each group's columns are contiguous.
    """
    blocks = []
    for rows in samples:
        bounds = np.flatnonzero(np.diff(several[0].groups[rows[0]])) + 1
        parts = np.split(rows, bounds, axis=1)
        blocks.append([np.mean([each.metric_of(columns) for columns in parts], axis=0) for each in several])
    return 100 * np.concatenate(blocks, axis=1)


def _ranks(values: Floats, rows: Ints) -> Floats:
    """Return the ranks of each sample's values, (samples, n), with ties at their mean rank.

    Counting is several times as fast as sorting each sample, since all samples draw from the same n values.
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
    """Return whether a metric is in percent, and so higher is better; for all other metrics, lower is better."""
    return not _NO_PERCENTAGE.fullmatch(metric)


@dataclass(frozen=True)
class TaskScores:
    """The scores of one task.

    Attributes:
        scores: metric -> value in percent, unrounded; NaN where it is undefined (a constant has no correlation).
            Alignment, uniformity and squared errors (mse) are not percentages.
        main: the key of `scores` that represents the task in charts.
        headline: the keys of `scores` that the summary table shows.
        counts: sizes of the data behind the scores, such as {"pairs": 3108}.
        details: further texts and tables for the report.
        subsets: subset -> metric -> value in percent, or a count where the metric's name begins with `num_`.
        examples: key of `scores` -> its examples; includes `main` if the main score is computed from examples.
        settings: settings, other than data and model, that affect the scores: seeds, the chosen L2, epochs.
    """

    scores: dict[str, float]
    main: str
    headline: tuple[str, ...]
    counts: dict[str, int]
    details: Details = field(default_factory=Details)
    subsets: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: dict[str, Examples] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
