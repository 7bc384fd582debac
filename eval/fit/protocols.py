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

from clearspan.eval.fit.classifiers import ClassifierSettings, Fits, Fold, Problem, fit
from clearspan.eval.fit.folds import NUM_FOLDS, Ints, Scheme, stratified

L2 = tuple(10.0**power for power in range(-5, -1))
_NESTED_SEED = 1111  # for nested's folds SentEval uses this constant instead of the run's seed


@dataclass(frozen=True)
class Protocol:
    """The number of folds and the settings of a classifier's training."""

    num_folds: int
    settings: ClassifierSettings


PROTOCOLS = {
    "full": Protocol(NUM_FOLDS["full"], ClassifierSettings()),
    "fast": Protocol(
        NUM_FOLDS["fast"], ClassifierSettings(optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
    ),
}
"""`full`: SentEval's defaults, which the papers used. `fast`: SentEval's settings for prototyping."""


@dataclass(frozen=True)
class FitResult:
    """The result of a scheme.

    Attributes:
        accuracy, dev_accuracy: in percent, as SentEval reports them, without its final rounding.
        rows, predicted: the test rows and their predicted classes, int64 (n,).
        groups: int64 (n,), the fold in which each row was tested; `accuracy` is the mean over folds.
        l2: the selected L2 value of each tested fold.
    """

    accuracy: float
    dev_accuracy: float
    rows: Ints
    predicted: Ints
    groups: Ints
    l2: list[float]


@dataclass(frozen=True)
class FitInputs:
    """The inputs that all fits of a task share."""

    problem: Problem
    protocol: Protocol
    seed: int
    device: str = "cpu"
    progress: str = ""

    def fit(self, folds: Sequence[Fold], l2: NDArray[np.float64]) -> Fits:
        return fit(self.problem, folds, l2, self.protocol.settings, self.seed, self.device, self.progress)


def run_scheme(trainer: FitInputs, scheme: Scheme, grid: Sequence[float] = L2) -> FitResult:
    """Run a scheme on the problem of `trainer`.

    Raises:
        ValueError: there are too few examples for the folds; see `folds.too_few`.
    """
    problem = trainer.problem
    values = np.array(grid)
    seed = _NESTED_SEED if scheme == "nested" else trainer.seed

    def folds(rows: Ints) -> list[tuple[Ints, Ints]]:
        return stratified(rows, problem.labels, trainer.protocol.num_folds, seed)

    train = problem.splits["train"]
    tested = folds(train) if scheme == "nested" else [(train, problem.splits["test"])]
    inner = [folds(rows) for rows, _ in tested] if scheme != "split" else [[(train, problem.splits["dev"])]]
    searched = [Fold(*fold) for of_tested in inner for fold in of_tested]
    fits = trainer.fit(searched, np.tile(values, (len(searched), 1)))
    dev = _percent(fits.dev_accuracy.reshape(len(tested), -1, len(values)).mean(axis=1))
    chosen = dev.argmax(axis=1)
    slots = chosen  # SentEval fits again for `split` too, which gives the same weights
    if scheme != "split":
        fits = trainer.fit([Fold(rows) for rows, _ in tested], values[chosen][:, None])
        slots = np.zeros_like(chosen)
    predicted = [fits.predict(problem.features, rows, i, slots[i]) for i, (_, rows) in enumerate(tested)]
    shares = [np.mean(classes == problem.labels[rows]) for classes, (_, rows) in zip(predicted, tested, strict=True)]
    accuracies = _percent(shares) if scheme == "nested" else 100 * np.array(shares)
    return FitResult(
        accuracy=float(np.mean(accuracies)),
        dev_accuracy=float(np.mean(dev.max(axis=1))),
        rows=np.concatenate([rows for _, rows in tested]),
        predicted=np.concatenate(predicted),
        groups=np.repeat(np.arange(len(tested)), [len(rows) for _, rows in tested]),
        l2=values[chosen].tolist(),
    )


def _percent(share: Any) -> NDArray[np.float64]:
    rounded: NDArray[np.float64] = np.round(100 * np.asarray(share), 2)
    return rounded
