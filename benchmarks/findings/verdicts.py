"""Verdicts: paired bootstrap over examples and seeds, of the difference of two systems' averages.

    run -> score -> (figure, resampled figures) -> mean over scores -> difference of two systems -> interval -> verdict

A resample draws examples of every task, and seeds, with replacement. Both systems get the same examples and the same
seeds, so that what two runs share (the examples, the order of the data) does not count as noise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Score = tuple[str, str]
"""(task, metric) of `results.json`."""
Floats = NDArray[np.float64]
REPRODUCED, NOISE, OPPOSITE = "reproduced at this scale", "within noise", "opposite"


@dataclass(frozen=True)
class Sampled:
    """A figure of one run in percent, and its resampled values (resamples,), which are paired across runs."""

    figure: float
    resampled: Floats


Run = Mapping[Score, Sampled]
"""The scores of one seed of a system."""


@dataclass(frozen=True)
class Verdict:
    """The difference of two systems in points, its 95 % interval, and the verdict."""

    difference: float
    low: float
    high: float
    word: str


def judge(low: float, high: float, margin: float | None = None) -> str:
    """Return the verdict on an interval of the difference `better - worse`.

    Args:
        margin: None: the claim is that the difference is above 0. A number: that it is at most so far from 0. Such a
            claim is reproduced if the whole interval is within the margin, and opposite if all of it is outside.
    """
    if margin is None:
        holds, fails = low > 0, high < 0
    else:
        holds, fails = -margin <= low and high <= margin, low > margin or high < -margin
    return REPRODUCED if holds else OPPOSITE if fails else NOISE


def shared_scores(group: Sequence[Score], *systems: Sequence[Run]) -> list[Score]:
    """Return the scores of a group that every run of the systems has."""
    return [score for score in group if all(score in run for runs in systems for run in runs)]


def averaged(runs: Sequence[Run], scores: Sequence[Score]) -> tuple[Floats, Floats]:
    """Return the mean over scores, for each seed: figures (seeds,), resampled (seeds, resamples)."""
    figures = np.array([np.mean([run[score].figure for score in scores]) for run in runs])
    resampled = np.array([np.mean([run[score].resampled for score in scores], axis=0) for run in runs])
    return figures, resampled


def compare(
    better: Sequence[Run], worse: Sequence[Run], group: Sequence[Score], margin: float | None = None
) -> Verdict | None:
    """Compare two systems on the scores that all their runs have; None if there is no such score, or one is undefined.

    A system without seeds, such as word vectors, has one run, which is paired with every seed of the other.
    """
    scores = shared_scores(group, better, worse) if better and worse else []
    if not scores:
        return None
    (first, of_first), (second, of_second) = averaged(better, scores), averaged(worse, scores)
    difference, num_resamples = float(first.mean() - second.mean()), of_first.shape[1]
    if np.isnan(difference):
        return None
    generator = np.random.default_rng(0)
    drawn = _draw(generator, len(better), num_resamples)
    drawn_worse = drawn if len(worse) == len(better) else _draw(generator, len(worse), num_resamples)
    columns = np.arange(num_resamples)[:, None]
    differences = of_first[drawn, columns].mean(1) - of_second[drawn_worse, columns].mean(1)
    low, high = (float(bound) for bound in np.nanquantile(differences, (0.025, 0.975)))
    return Verdict(difference, low, high, judge(low, high, margin))


def _draw(generator: np.random.Generator, num_seeds: int, num_resamples: int) -> NDArray[np.int64]:
    return generator.integers(num_seeds, size=(num_resamples, num_seeds))
