"""How a scheme cuts labelled examples into folds; without torch, so that data can be checked before it is loaded."""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Scheme = Literal["nested", "kfold", "split"]

NUM_FOLDS = {"full": 10, "fast": 5}
HELD_OUT = 0.05
"""The share of a fold's rows that a fit keeps as dev split where it is given none."""


def stratified(rows: Ints, labels: Ints, num_folds: int, seed: int) -> list[tuple[Ints, Ints]]:
    """(training rows, test rows) of each fold, both ascending, as scikit-learn draws them."""
    from sklearn.model_selection import StratifiedKFold

    cut = StratifiedKFold(n_splits=num_folds, shuffle=True, random_state=seed)
    return [(rows[train], rows[test]) for train, test in cut.split(rows, labels[rows])]


def too_few(labels: Ints, scheme: Scheme, num_folds: int) -> str:
    """Why training labels cannot be cut into the scheme's folds, as the end of a sentence; empty where they can."""
    if len(np.unique(labels)) < 2:
        return "all training examples are of one class, and a classifier needs two"
    if scheme == "split":
        return ""
    most = int(np.bincount(labels).max())
    needed = 2 * num_folds if scheme == "nested" else num_folds  # nested cuts its folds once more
    if most < needed:
        return f"its largest class has {most} training examples, and {num_folds} folds need {needed}"
    least = round(1 / HELD_OUT) * (2 if scheme == "nested" else 1)  # a fold of nested has half of the rows at least
    if len(labels) < least:
        return (
            f"it has {len(labels)} training examples, and a dev split of {100 * HELD_OUT:g} % of a fold needs {least}"
        )
    return ""
