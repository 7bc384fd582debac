"""The figures of one task, and how far they would move with other examples.

    TaskScores ── scores, in percent
               └─ Examples of a metric ──> figure, interval (bootstrap over examples), difference of two models

Pure functions of arrays. A figure is computed anew of each sample of the examples, so an interval is of the metric
itself: of a correlation, of F1, of a mean over subsets.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.eval.report.html import Section

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

RESAMPLES = 1000
_BLOCK = 1 << 22  # resampled values held at once, 32 MB of an array of them


def _mean(predicted: Floats, gold: Floats) -> Floats:
    return predicted.mean(axis=1)


def _pearson(predicted: Floats, gold: Floats) -> Floats:
    x = predicted - predicted.mean(axis=1, keepdims=True)
    y = gold - gold.mean(axis=1, keepdims=True)
    norms = np.sqrt((x * x).sum(axis=1) * (y * y).sum(axis=1))
    # A constant's own mean may be off by a last digit, so norms alone do not show it.
    vary = (np.ptp(predicted, axis=1) > 0) & (np.ptp(gold, axis=1) > 0) & (norms > 0)
    return np.divide((x * y).sum(axis=1), norms, out=np.full(len(x), np.nan), where=vary)


def _spearman(predicted: Floats, gold: Floats) -> Floats:
    from scipy.stats import rankdata  # whose import takes half a second

    return _pearson(rankdata(predicted, axis=1), rankdata(gold, axis=1))


def _counts(predicted: Floats, gold: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """(true positives, false positives, false negatives, true negatives); 1 is the positive class."""
    yes, true = predicted == 1, gold == 1
    both = (yes & true).sum(axis=1).astype(float)
    return both, yes.sum(axis=1) - both, true.sum(axis=1) - both, (~yes & ~true).sum(axis=1).astype(float)


def _f1(predicted: Floats, gold: Floats) -> Floats:
    tp, fp, fn, _ = _counts(predicted, gold)
    whole = 2 * tp + fp + fn
    return np.divide(2 * tp, whole, out=np.zeros(len(tp)), where=whole > 0)


def _matthews(predicted: Floats, gold: Floats) -> Floats:
    tp, fp, fn, tn = _counts(predicted, gold)
    norms = np.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    return np.divide(tp * tn - fp * fn, norms, out=np.zeros(len(tp)), where=norms > 0)


METRICS: dict[str, Callable[[Floats, Floats], Floats]] = {
    "mean": _mean,
    "accuracy": lambda predicted, gold: _mean((predicted == gold).astype(float), gold),
    "pearson": _pearson,
    "spearman": _spearman,
    "f1": _f1,
    "matthews": _matthews,
    "accuracy_f1": lambda predicted, gold: (METRICS["accuracy"](predicted, gold) + _f1(predicted, gold)) / 2,
    "pearson_spearman": lambda predicted, gold: (_pearson(predicted, gold) + _spearman(predicted, gold)) / 2,
}
"""(predicted, gold), each (samples, n) float64 -> (samples,) as a share of 1; NaN where undefined. F1 and Matthews'
coefficient are of two classes, 0 and 1; the last two are the plain means that GLUE ranks by."""


@dataclass(frozen=True)
class Examples:
    """What a figure was computed of, one row an example.

    Attributes:
        metric: a key of METRICS.
        predicted: float64 (n,): a class, a cosine, or with `mean` the example's own value, between 0 and 1.
        gold: float64 (n,); zeros with `mean`.
        groups: int64 (n,): where not all the same, the figure is the plain mean of the groups' figures (STS's subsets),
            and samples are drawn within each.
    """

    metric: str
    predicted: Floats
    gold: Floats
    groups: Ints

    @classmethod
    def of(cls, metric: str, predicted: Any, gold: Any = None, groups: Any = None) -> "Examples":
        """From arrays or lists of any number type; `gold` and `groups` are zeros where not given."""
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


@dataclass(frozen=True)
class Difference:
    """Two models' figures on the same examples, in percentage points.

    Attributes:
        value: the second's minus the first's.
        low, high: the 95 % interval of the value.
        p: the share of samples in which the difference has the other sign or none, or is undefined, both sides: small
            where the difference exceeds noise. Never under 1 / (samples + 1).
    """

    value: float
    low: float
    high: float
    p: float


def figure(examples: Examples) -> float:
    """The metric over all examples, in percent; NaN where undefined."""
    return float(_figures((examples,), [np.argsort(examples.groups, kind="stable")[None]])[0, 0])


def interval(examples: Examples, seed: int = 0, resamples: int = RESAMPLES) -> tuple[float, float]:
    """The 95 % percentile interval of the figure under resampling of the examples, in percent."""
    (figures,) = _figures((examples,), _samples(examples.groups, seed, resamples))
    return _quantiles(figures)


def difference(first: Examples, second: Examples, seed: int = 0, resamples: int = RESAMPLES) -> Difference:
    """How the second's figure differs from the first's, by paired bootstrap: both are computed of the same samples.

    Raises:
        ValueError: the two are not of the same examples by the same metric.
    """
    same = first.metric == second.metric and np.array_equal(first.gold, second.gold)
    if not same or not np.array_equal(first.groups, second.groups):
        raise ValueError("the figures are not of the same examples by the same metric")
    one, two = _figures((first, second), _samples(first.groups, seed, resamples))
    apart = two - one
    low, high = _quantiles(apart)
    undefined = np.isnan(apart)  # as of a sample of one pair many times; it counts against either sign
    tail = min(np.sum((apart <= 0) | undefined), np.sum((apart >= 0) | undefined))
    p = min(1.0, 2 * (float(tail) + 1) / (resamples + 1))
    return Difference(figure(second) - figure(first), low, high, p)


def _quantiles(figures: Floats) -> tuple[float, float]:
    if not np.isfinite(figures).any():
        return float("nan"), float("nan")
    low, high = np.nanquantile(figures, (0.025, 0.975))
    return float(low), float(high)


def _samples(groups: Ints, seed: int, resamples: int) -> Iterator[Ints]:
    """Rows drawn with replacement within each group, (samples, n), in blocks; the same for the same groups and seed."""
    generator = np.random.default_rng(seed)
    members = [np.flatnonzero(groups == group) for group in np.unique(groups)]
    step = max(1, _BLOCK // max(1, len(groups)))
    for start in range(0, resamples, step):
        num = min(step, resamples - start)
        yield np.concatenate([rows[generator.integers(len(rows), size=(num, len(rows)))] for rows in members], axis=1)


def _figures(several: Sequence[Examples], samples: Iterable[Ints]) -> Floats:
    """The figures of each sample in percent, (several, all samples), of examples with the same groups.

    `samples` are blocks of rows (samples, n), a group's columns side by side.
    """
    found = []
    for rows in samples:
        bounds = np.flatnonzero(np.diff(several[0].groups[rows[0]])) + 1
        parts = np.split(rows, bounds, axis=1)
        found.append([np.mean([_metric(one, columns) for columns in parts], axis=0) for one in several])
    return 100 * np.concatenate(found, axis=1)


def _metric(examples: Examples, rows: Ints) -> Floats:
    if examples.metric == "mean":
        return _mean(examples.predicted[rows], examples.gold)
    if examples.metric == "accuracy":  # compared once, not in every sample
        return _mean((examples.predicted == examples.gold)[rows], examples.gold)
    if examples.metric == "spearman":
        return _pearson(_ranks(examples.predicted, rows), _ranks(examples.gold, rows))
    return METRICS[examples.metric](examples.predicted[rows], examples.gold[rows])


def _ranks(values: Floats, rows: Ints) -> Floats:
    """The ranks of each sample's values, (samples, n), ties at their mean: by counting, as samples draw from the same n
    values; to sort each anew takes several times as long."""
    codes = np.unique(values, return_inverse=True)[1]
    num_values = codes.max() + 1
    keys = codes[rows] + num_values * np.arange(len(rows))[:, None]
    counts = np.bincount(keys.ravel(), minlength=num_values * len(rows)).reshape(len(rows), num_values)
    middle = np.cumsum(counts, axis=1) - (counts - 1) / 2
    ranks: Floats = middle.ravel()[keys]
    return ranks


_OWN_UNITS = re.compile(r"(alignment|uniformity)(_\w+)?|mse|\w+_medr")


def in_percent(metric: str) -> bool:
    """Whether a key of `TaskScores.scores` is in percent, where more is better; of the others less is."""
    return not _OWN_UNITS.fullmatch(metric)


@dataclass(frozen=True)
class TaskScores:
    """The figures of one task.

    Attributes:
        scores: metric -> value in percent, unrounded; NaN where it is undefined (a constant has no correlation).
            Alignment, uniformity, squared errors (mse) and median ranks (*_medr) alone are in units of their own.
        main: the key of `scores` that stands for the task in charts.
        headline: the keys of `scores` that the summary table shows.
        counts: what the figures were computed over, such as {"pairs": 3108}.
        section: the task's part of the report.
        subsets: subset -> metric -> value in percent, or a count where the metric's name begins with `num_`.
        examples: key of `scores` -> what it was computed of; `main`'s at least, where it is a figure over examples.
        settings: what the figures rest on beside data and model: seeds, the chosen L2, epochs.
    """

    scores: dict[str, float]
    main: str
    headline: tuple[str, ...]
    counts: dict[str, int]
    section: Section
    subsets: dict[str, dict[str, float]] = field(default_factory=dict)
    examples: dict[str, Examples] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
