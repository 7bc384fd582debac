"""SentEval's three schemes for the accuracy of a classifier: a grid search over L2, and a final fit.

    nested   MR CR SUBJ MPQA    k folds; in each, L2 by k folds of its training rows, then a fit tested on its test rows
    kfold    TREC MRPC          L2 by k folds of the training rows, then a fit tested on the test rows
    split    SST SICK-E SNLI    L2 by the dev rows; that fit tested on the test rows; also the probing tasks

All fits of a grid, over all folds, are one batched problem; the final fits are another. For comparison with published
figures, two weaknesses of SentEval are reproduced: grid fits stop early on the same rows that select the L2 value, so
dev accuracies are optimistic; and accuracies are rounded to two decimals in percent before they are compared or
averaged.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearspan.eval.fit.classifiers import Fits, Fold, Problem, Settings, fit
from clearspan.eval.fit.folds import NUM_FOLDS, Ints, Scheme, stratified

L2 = tuple(10.0**power for power in range(-5, -1))
_NESTED_SEED = 1111  # for nested's folds SentEval uses this constant instead of the run's seed


@dataclass(frozen=True)
class Protocol:
    """The number of folds and the settings of a classifier's training."""

    num_folds: int
    settings: Settings


PROTOCOLS = {
    "full": Protocol(NUM_FOLDS["full"], Settings()),
    "fast": Protocol(NUM_FOLDS["fast"], Settings(optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)),
}
"""`full`: SentEval's defaults, which the papers used. `fast`: SentEval's settings for prototyping."""


@dataclass(frozen=True)
class Outcome:
    """The result of a scheme.

    Attributes:
        accuracy, dev_accuracy: in percent, as SentEval reports them, without its final rounding.
        rows, predicted: the test rows and their predicted classes, int64 (n,).
        groups: int64 (n,), the fold in which each row was tested; `accuracy` is the mean over folds.
        l2: the selected value of each tested fold.
    """

    accuracy: float
    dev_accuracy: float
    rows: Ints
    predicted: Ints
    groups: Ints
    l2: list[float]


@dataclass(frozen=True)
class Trainer:
    """The inputs that all fits of a task share."""

    problem: Problem
    protocol: Protocol
    seed: int
    device: str = "cpu"
    progress: str = ""

    def fit(self, folds: Sequence[Fold], l2: NDArray[np.float64]) -> Fits:
        return fit(self.problem, folds, l2, self.protocol.settings, self.seed, self.device, self.progress)


def run_scheme(trainer: Trainer, scheme: Scheme, grid: Sequence[float] = L2) -> Outcome:
    """Run a scheme on the problem of `trainer`.

    Raises:
        ValueError: there are too few examples for the folds; see `folds.too_few`.
    """
    schemes = {"nested": _nested, "kfold": _kfold, "split": _split}
    return schemes[scheme](trainer, np.array(grid))


def _nested(trainer: Trainer, grid: NDArray[np.float64]) -> Outcome:
    problem, num_folds = trainer.problem, trainer.protocol.num_folds
    outer = stratified(problem.splits["train"], problem.labels, num_folds, _NESTED_SEED)
    inner = [stratified(train, problem.labels, num_folds, _NESTED_SEED) for train, _ in outer]
    fits = trainer.fit([Fold(*fold) for folds in inner for fold in folds], _repeated(grid, num_folds**2))
    dev = np.array([_percent(scores) for scores in fits.dev_accuracy.reshape(num_folds, num_folds, -1).mean(axis=1)])
    chosen = dev.argmax(axis=1)
    last = trainer.fit([Fold(train) for train, _ in outer], grid[chosen][:, None])
    predicted = [last.predict(problem.features, test, fold) for fold, (_, test) in enumerate(outer)]
    accuracies = [
        _percent(np.mean(classes == problem.labels[test])) for classes, (_, test) in zip(predicted, outer, strict=True)
    ]
    tests = [test for _, test in outer]
    return Outcome(
        accuracy=float(np.mean(accuracies)),
        dev_accuracy=float(np.mean(dev.max(axis=1))),
        rows=np.concatenate(tests),
        predicted=np.concatenate(predicted),
        groups=np.repeat(np.arange(num_folds), [len(test) for test in tests]),
        l2=grid[chosen].tolist(),
    )


def _kfold(trainer: Trainer, grid: NDArray[np.float64]) -> Outcome:
    problem, num_folds = trainer.problem, trainer.protocol.num_folds
    train = problem.splits["train"]
    folds = stratified(train, problem.labels, num_folds, trainer.seed)
    fits = trainer.fit([Fold(*fold) for fold in folds], _repeated(grid, num_folds))
    dev = _percent(fits.dev_accuracy.mean(axis=0))
    chosen = int(dev.argmax())
    return _tested(problem, trainer.fit([Fold(train)], grid[chosen][None, None]), 0, dev, grid[chosen])


def _split(trainer: Trainer, grid: NDArray[np.float64]) -> Outcome:
    """Test the grid's fit with the chosen L2. SentEval fits it again, which gives the same weights."""
    problem = trainer.problem
    fits = trainer.fit([Fold(problem.splits["train"], problem.splits["dev"])], grid[None])
    dev = _percent(fits.dev_accuracy[0])
    chosen = int(dev.argmax())
    return _tested(problem, fits, chosen, dev, grid[chosen])


def _tested(problem: Problem, fits: Fits, slot: int, dev: NDArray[np.float64], l2: float) -> Outcome:
    test = problem.splits["test"]
    predicted = fits.predict(problem.features, test, 0, slot)
    return Outcome(
        accuracy=100 * float(np.mean(predicted == problem.labels[test])),
        dev_accuracy=float(dev.max()),
        rows=test,
        predicted=predicted,
        groups=np.zeros(len(test), np.int64),
        l2=[float(l2)],
    )


def _repeated(grid: NDArray[np.float64], times: int) -> NDArray[np.float64]:
    return np.tile(grid, (times, 1))


def _percent(share: Any) -> NDArray[np.float64]:
    rounded: NDArray[np.float64] = np.round(100 * np.asarray(share), 2)
    return rounded
