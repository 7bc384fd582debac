"""SentEval's three schemes to test a classifier. Each selects an L2 value by a grid search, and tests a final fit.

    scheme   tasks                      L2 is selected on                    the final fit is tested on
    nested   MR CR SUBJ MPQA            k inner folds of the training rows   the test rows of each of k outer folds
    kfold    TREC MRPC                  k folds of the training split        the test split
    split    SST SICK-E SNLI, probing   the dev split                        the test split

k is 10, or 5 with `--protocol fast`. A fit is the training of one classifier. The fits of the grid search, over all
folds, are trained together, and then the final fits. Two weaknesses of SentEval are reproduced, so that scores are
comparable with published figures. First, the rows that select the L2 value also decide when a fit of the grid search
stops early, which makes dev accuracies optimistic. Second, accuracies in percent are rounded to two decimals before
they are compared or averaged.
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
    """The settings of a task's classifiers.

    Attributes:
        num_folds: the number of folds of a cross-validation.
        settings: the settings with which each classifier is trained.
    """

    num_folds: int
    settings: ClassifierSettings


PROTOCOLS = {
    "full": Protocol(NUM_FOLDS["full"], ClassifierSettings()),
    "fast": Protocol(
        NUM_FOLDS["fast"], ClassifierSettings(optimizer="rmsprop", batch_size=128, tenacity=3, epoch_size=2)
    ),
}
"""Value of `--protocol` -> protocol: `full` has SentEval's defaults, which the papers used, and `fast` has SentEval's
settings for prototyping."""


@dataclass(frozen=True)
class FitResult:
    """The result of selecting L2 values, and of testing the final classifiers on n test rows.

    The scheme `nested` tests a classifier for each outer fold; `kfold` and `split` test one classifier.

    Attributes:
        accuracy: the test accuracy in percent, the mean over the tested classifiers. SentEval reports it rounded.
        dev_accuracy: the dev accuracy of the selected L2 value in percent, the mean over the tested classifiers.
        rows: the row indices of the test rows, (n,) int64.
        predicted: the predicted class index of each test row, (n,) int64.
        groups: the index of the classifier that is tested on each row, (n,) int64; zeros if there is only one.
        l2: the selected L2 value of each tested classifier.
    """

    accuracy: float
    dev_accuracy: float
    rows: Ints
    predicted: Ints
    groups: Ints
    l2: list[float]


@dataclass(frozen=True)
class FitInputs:
    """The inputs that all classifiers of a task share.

    Attributes:
        problem: the features, labels and splits.
        protocol: the number of folds, and the settings of the classifiers.
        seed: the seed of the initial weights, of the order of rows, and of the cut into folds. In the scheme `nested`,
            the folds are cut with the seed 1111 instead, as in SentEval.
        device: the torch device on which the classifiers are trained.
        progress: the name of the progress bar; "" for no bar.
    """

    problem: Problem
    protocol: Protocol
    seed: int
    device: str = "cpu"
    progress: str = ""

    def fit(self, folds: Sequence[Fold], l2: NDArray[np.float64]) -> Fits:
        return fit(self.problem, folds, l2, self.protocol.settings, self.seed, self.device, self.progress)


def run_scheme(inputs: FitInputs, scheme: Scheme, grid: Sequence[float] = L2) -> FitResult:
    """Select L2 values by a grid search, train the final classifiers with them, and test these.

    Args:
        inputs: the problem, with the splits that the scheme uses, and the protocol.
        scheme: the rows that select an L2 value and those that test the classifier:
            `nested`: the split `train` is cut into outer folds. Each has an L2 value, selected on inner folds of its
            training rows, and a classifier, tested on its test rows.
            `kfold`: one L2 value is selected on folds of the split `train`. The split `test` tests the classifier.
            `split`: one L2 value is selected on the split `dev`. The split `test` tests the classifier.
        grid: the L2 values to select from.

    Raises:
        ValueError: there are too few examples for the folds.
    """
    problem = inputs.problem
    values = np.array(grid)
    seed = _NESTED_SEED if scheme == "nested" else inputs.seed

    def folds(rows: Ints) -> list[tuple[Ints, Ints]]:
        return stratified(rows, problem.labels, inputs.protocol.num_folds, seed)

    train = problem.splits["train"]
    tested = folds(train) if scheme == "nested" else [(train, problem.splits["test"])]
    inner = [folds(rows) for rows, _ in tested] if scheme != "split" else [[(train, problem.splits["dev"])]]
    searched = [Fold(*fold) for of_tested in inner for fold in of_tested]
    fits = inputs.fit(searched, np.tile(values, (len(searched), 1)))
    dev = _percent(fits.dev_accuracy.reshape(len(tested), -1, len(values)).mean(axis=1))
    chosen = dev.argmax(axis=1)
    slots = chosen  # SentEval fits again for `split` too, which gives the same weights
    if scheme != "split":
        fits = inputs.fit([Fold(rows) for rows, _ in tested], values[chosen][:, None])
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
