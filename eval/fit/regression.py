"""Train a regressor that predicts relatedness scores from 1 to 5 from the embeddings u, v of pairs, as SentEval does.

    |u-v|, u*v ──> linear layer ──> softmax over the scores 1..5 ──> predicted score: the mean of this distribution

The loss is the squared error between this distribution and a distribution that represents the gold score (Tai et al.
2015, section 4.2). Training takes about seventy thousand steps of 64 rows, whose time is mostly overhead and not
arithmetic. The gradient and Adam are therefore written out in numpy, which is several times as fast as autograd or a
GPU.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.common.encoder.embedder import finite
from clearspan.eval.fit.batched import initial_layers

Floats = NDArray[np.float32]

SCORES = np.arange(1, 6)
_BATCH = 64
_PASSES_A_CHECK, _MOST_PASSES = 50, 1000
_TENACITY = 3
_RATE, _BETA1, _BETA2, _EPSILON = 1e-3, 0.9, 0.999, 1e-8  # Adam's defaults in torch


@dataclass(frozen=True)
class Regressor:
    """A trained regressor, with the weights that had the best Pearson correlation on the dev split.

    Attributes:
        weights: the weights of the linear layer, (5, features + 1) float32, with the bias in the last column.
        passes: the number of passes over the training rows until training ended.
        best_passes: the number of passes after which the regressor had these weights.
    """

    weights: Floats
    passes: int
    best_passes: int

    def predict(self, features: Floats) -> NDArray[np.float64]:
        """Return the predicted score of each of n pairs, (n,) float64, from 1 to 5.

        Args:
            features: the features of the pairs, (n, features).
        """
        expected: NDArray[np.float64] = _probabilities(_with_ones(features), self.weights).astype(np.float64) @ SCORES
        return expected


def pair_features(left: NDArray[np.floating[Any]], right: NDArray[np.floating[Any]]) -> Floats:
    """Return the features of n pairs of d-dimensional embeddings u and v, (n, 2d) float32.

    The features of a pair are |u-v|, followed by u*v. NaN and infinities in an embedding become 0.

    Args:
        left, right: the embeddings u and the embeddings v, (n, d) each.
    """
    u, v = (finite(embeddings.astype(np.float32)) for embeddings in (left, right))
    return np.concatenate([np.abs(u - v), u * v], axis=1)


def score_distributions(scores: NDArray[np.float64]) -> Floats:
    """Return, for each of n scores, a distribution over 1..5 whose mean is the score, (n, 5) float32.

    For example, the score 3.6 gives 3 the probability 0.4 and 4 the probability 0.6. A score below 1, which occurs
    in STS-B, is the mean of no such distribution. As in SentEval, the first value of its row is then the score itself,
    and the other values are 0.
    """
    floor = np.floor(scores)[:, None]
    share = scores[:, None] - floor
    return (np.where(floor + 1 == SCORES, share, 0) + np.where(floor == SCORES, 1 - share, 0)).astype(np.float32)


def train(
    features: Floats, scores: NDArray[np.float64], dev_features: Floats, dev_scores: NDArray[np.float64], seed: int
) -> Regressor:
    """Train a regressor by SentEval's protocol.

    The optimizer is Adam without L2, with batches of 64 rows, in a new order each pass. Every 50 passes, a check
    computes the Pearson correlation on the dev split; an undefined correlation counts as 0. A check fails if
    the correlation is not higher than in all checks before. Training ends with the fourth failed check (the four need
    not be consecutive) or after 1,050 passes.

    Args:
        features: the features of the n training pairs, (n, features).
        scores: the gold scores of the training pairs, (n,), from 0 to 5.
        dev_features, dev_scores: the features and the gold scores of the m dev pairs, (m, features) and (m,).
        seed: the seed of torch, which draws the initial weights, and of numpy, which draws the orders of rows.
    """
    rows = _with_ones(features)
    targets = score_distributions(scores)
    dev_rows = _with_ones(dev_features)
    order = np.random.RandomState(seed)
    (layer,), _ = initial_layers(features.shape[1], 0, len(SCORES), seed)
    adam = _Adam(np.ascontiguousarray(layer[:, : rows.shape[1]].detach().numpy()))
    best = adam.weights.copy()
    best_passes = 0
    passes = 0
    highest = -1.0
    failed = 0
    while passes <= _MOST_PASSES and failed <= _TENACITY:
        for _ in range(_PASSES_A_CHECK):
            _one_pass(adam, rows, targets, order.permutation(len(rows)))
        passes += _PASSES_A_CHECK
        pearson = _pearson(_probabilities(dev_rows, adam.weights) @ SCORES, dev_scores)
        if pearson > highest:
            best = adam.weights.copy()
            best_passes = passes
            highest = pearson
        else:
            failed += 1
    return Regressor(best, passes, best_passes)


def _one_pass(adam: "_Adam", rows: Floats, targets: Floats, order: NDArray[np.int64]) -> None:
    gathered = np.empty((_BATCH, rows.shape[1]), np.float32)
    for start in range(0, len(order), _BATCH):
        chosen = order[start : start + _BATCH]
        batch = gathered[: len(chosen)]
        np.take(rows, chosen, axis=0, out=batch, mode="clip")  # other modes make another copy
        p = _probabilities(batch, adam.weights)
        # L = mean (p - target)^2; with e = dL/dp, the gradient by the logits is dL/dz = p * (e - sum(p * e)).
        e: Floats = (p - targets[chosen]) * np.float32(2 / p.size)
        e -= (p * e).sum(axis=1, keepdims=True)
        e *= p
        adam.step(e.T @ batch)


class _Adam:
    """The optimizer `torch.optim.Adam` in numpy. It updates one array, `weights`, in place."""

    def __init__(self, weights: Floats) -> None:
        self.weights = weights
        self._mean = np.zeros_like(weights)
        self._square = np.zeros_like(weights)
        self._scratch = np.empty_like(weights)
        self._steps = 0

    def step(self, gradient: Floats) -> None:
        """Update the weights once. The array `gradient` is overwritten."""
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
