"""A supervised regressor of relatedness: pair features to a score from 1 to 5, as SentEval trains it.

    |u-v|, u*v ──> linear ──> softmax over the scores 1..5 ──> sum of score x probability
                                  │
                    squared error to a distribution of the gold score (Tai et al. 2015, section 4.2)

Some seventy thousand steps of 64 rows: what a step calls decides the time, not its arithmetic. Gradient and Adam are
therefore written out in numpy, which is several times faster than autograd and than a GPU's launches.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearspan.eval.fit.early_stopping import EarlyStopping
from clearspan.eval.models.embed import finite

Floats = NDArray[np.float32]

SCORES = np.arange(1, 6)
_BATCH = 64
_PASSES_A_CHECK, _MOST_PASSES = 50, 1000
_TENACITY = 3
_RATE, _BETA1, _BETA2, _EPSILON = 1e-3, 0.9, 0.999, 1e-8  # Adam's defaults in torch


@dataclass(frozen=True)
class Regressor:
    """The best model of a training, by Pearson on dev.

    Attributes:
        weights: (5, features + 1) float32, the bias in the last column.
        passes: over the training rows, until training ended.
        best_passes: over the training rows, until this model.
    """

    weights: Floats
    passes: int
    best_passes: int

    def predict(self, features: Floats) -> NDArray[np.float64]:
        """Expected score of each row of (n, features): float64 (n,), from 1 to 5."""
        expected: NDArray[np.float64] = _probabilities(_with_ones(features), self.weights).astype(np.float64) @ SCORES
        return expected


def pair_features(left: NDArray[np.floating[Any]], right: NDArray[np.floating[Any]]) -> Floats:
    """[|u-v|, u*v] of each row of two (n, d) arrays: float32 (n, 2d). A NaN or an infinity counts as 0."""
    u, v = (finite(embeddings.astype(np.float32)) for embeddings in (left, right))
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def score_distributions(scores: NDArray[np.float64]) -> Floats:
    """For each score a row of weights of 1..5 whose mean it is: float32 (n, 5). 3.6 is 0.4 of 3 and 0.6 of 4.

    A score below 1 has no such row. As in SentEval, it gets one that sums to the score itself: 0.75 is 0.75 of 1, and 0
    is nothing at all. STS-B has such scores, SICK has none.
    """
    whole = np.floor(scores)[:, None]
    share = scores[:, None] - whole
    return (np.where(whole + 1 == SCORES, share, 0) + np.where(whole == SCORES, 1 - share, 0)).astype(np.float32)


def train(
    features: Floats, scores: NDArray[np.float64], dev_features: Floats, dev_scores: NDArray[np.float64], seed: int
) -> Regressor:
    """Trains until dev's Pearson has failed to rise at four checks in all, or 1,050 passes.

    SentEval's protocol to the detail: Adam without L2, batches of 64, rows in a new order each pass; a check every 50
    passes, of which the fourth that fails ends the training (`eval.fit.early_stopping`); the limit of 1,000 passes is
    looked at before fifty more. Weights and orders are those that torch and
    numpy draw from `seed`. A Pearson that is undefined counts as 0.

    Args:
        features: (n, features).
        scores: (n,), 0 to 5.
        dev_features, dev_scores: the same of dev.
    """
    rows, targets = _with_ones(features), score_distributions(scores)
    dev_rows = _with_ones(dev_features)
    order = np.random.RandomState(seed)
    adam = _Adam(_starting_weights(features.shape[1], seed))
    best, best_passes, passes = adam.weights.copy(), 0, 0
    checks = EarlyStopping(_TENACITY)
    while passes <= _MOST_PASSES and not checks.over:
        for _ in range(_PASSES_A_CHECK):
            _one_pass(adam, rows, targets, order.permutation(len(rows)))
        passes += _PASSES_A_CHECK
        pearson = _pearson(_probabilities(dev_rows, adam.weights) @ SCORES, dev_scores)
        if checks.better(pearson):
            best, best_passes = adam.weights.copy(), passes
    return Regressor(best, passes, best_passes)


def _one_pass(adam: "_Adam", rows: Floats, targets: Floats, order: NDArray[np.int64]) -> None:
    gathered = np.empty((_BATCH, rows.shape[1]), np.float32)
    for start in range(0, len(order), _BATCH):
        chosen = order[start : start + _BATCH]
        batch = gathered[: len(chosen)]
        np.take(rows, chosen, axis=0, out=batch, mode="clip")  # any other mode copies once more
        p = _probabilities(batch, adam.weights)
        # Of the mean of (p - target)^2, through the softmax: dL/dz = p * (e - sum(p * e)), e = dL/dp.
        e: Floats = (p - targets[chosen]) * np.float32(2 / p.size)
        e -= (p * e).sum(axis=1, keepdims=True)
        e *= p
        adam.step(e.T @ batch)


class _Adam:
    """torch.optim.Adam of one array, in place."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights
        self._mean = np.zeros_like(weights)
        self._square = np.zeros_like(weights)
        self._scratch = np.empty_like(weights)
        self._steps = 0

    def step(self, gradient: Floats) -> None:
        """One update; `gradient` is used up."""
        self._steps += 1
        f = np.float32
        scratch = np.multiply(gradient, f(1 - _BETA1), out=self._scratch)
        self._mean *= f(_BETA1)
        self._mean += scratch
        gradient *= gradient
        gradient *= f(1 - _BETA2)
        self._square *= f(_BETA2)
        self._square += gradient
        np.sqrt(self._square, out=scratch)
        scratch *= f((1 - _BETA2**self._steps) ** -0.5)
        scratch += f(_EPSILON)
        np.divide(self._mean, scratch, out=scratch)
        scratch *= f(_RATE / (1 - _BETA1**self._steps))
        self.weights -= scratch


def _starting_weights(num_features: int, seed: int) -> Floats:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        layer = torch.nn.Linear(num_features, len(SCORES))
    return np.ascontiguousarray(torch.cat([layer.weight, layer.bias[:, None]], dim=1).detach().numpy())


def _with_ones(features: Floats) -> Floats:
    return np.concatenate([features, np.ones((len(features), 1), np.float32)], axis=1)


def _probabilities(rows: Floats, weights: Floats) -> Floats:
    p: Floats = rows @ weights.T
    p -= p.max(axis=1, keepdims=True)
    np.exp(p, out=p)
    p /= p.sum(axis=1, keepdims=True)
    return p


def _pearson(predicted: NDArray[np.floating[Any]], gold: NDArray[np.float64]) -> float:
    if len(gold) < 2 or np.ptp(predicted) == 0 or np.ptp(gold) == 0:
        return 0.0
    return float(np.corrcoef(predicted, gold)[0, 1])
