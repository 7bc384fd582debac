"""Cut labeled examples into folds. This module does not import torch, so that data can be checked quickly."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Scheme = Literal["nested", "kfold", "split"]

NUM_FOLDS = {"full": 10, "fast": 5}
HELD_OUT = 0.05
"""The share of a fold's training rows that become its dev rows if it has no dev rows."""


def stratified(rows: Ints, labels: Ints, num_folds: int, seed: int) -> list[tuple[Ints, Ints]]:
    """Cut rows into folds with scikit-learn's StratifiedKFold: a class has about the same frequency in all folds.

    Args:
        rows: the row indices to cut, (n,) int64.
        labels: the class index of every row of the data set, not only of `rows`.
        num_folds: the number of folds.
        seed: the seed of the random assignment of rows to folds.

    Returns:
        The row indices (training rows, test rows) of each fold, both ascending.
    """
    from sklearn.model_selection import StratifiedKFold

    cut = StratifiedKFold(n_splits=num_folds, shuffle=True, random_state=seed)
    return [(rows[train], rows[test]) for train, test in cut.split(rows, labels[rows])]


def too_few(labels: Ints, scheme: Scheme, num_folds: int) -> str:
    """Return the reason why the training examples do not suffice for a scheme; "" if they suffice.

    The examples must be of at least two classes, and must be enough for the folds that the scheme cuts them into.

    Args:
        labels: the class indices of the training examples, (n,) int64.
        scheme: the way to select the L2 value. `split` uses a separate dev split and needs no folds, `kfold` cuts the
            training examples into folds, and `nested` also cuts the training examples of each fold into folds.
        num_folds: the number of folds.
    """
    if len(np.unique(labels)) < 2:
        return "all training examples are of one class, and a classifier needs two"
    if scheme == "split":
        return ""
    most = int(np.bincount(labels).max())
    needed = 2 * num_folds if scheme == "nested" else num_folds  # nested cuts each fold into folds again
    if most < needed:
        return f"its largest class has {most} training examples, and {num_folds} folds need {needed}"
    least = round(1 / HELD_OUT) * (2 if scheme == "nested" else 1)  # inner folds have at least half of the rows
    if len(labels) < least:
        return (
            f"it has {len(labels)} training examples, and a dev split of {100 * HELD_OUT:g} % of a fold needs {least}"
        )
    return ""
